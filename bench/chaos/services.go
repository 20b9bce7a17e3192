package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"
	"time"

	"duly.dev/duly/examples/drone"
)

// Desk serves the mock services of a delivery to agents in other processes: their
// books are here, so that no kill of an agent can lose one. Exported for net/rpc.
type Desk struct {
	services *drone.Services
	outage   *outage
	gauge    *gauge
}

// Ask is one call to a service.
type Ask struct {
	Step  drone.Step
	Undo  bool
	Call  drone.Call
	Until time.Time // the caller's own limit; zero: none
}

// Answer is what the service said.
type Answer struct {
	Serial uint32
	Code   int // of the failure; 0: none
	Reason string
}

// Call serves one call.
func (d *Desk) Call(ask *Ask, answer *Answer) error {
	ctx := context.Background()
	if !ask.Until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, ask.Until)
		defer cancel()
	}
	takes, leave := d.gauge.enter(ask)
	defer leave()
	if refused := d.outage.meets(ask); refused != nil {
		answer.Code, answer.Reason = refused.Code, refused.Reason
		return nil
	}
	if err := take(ctx, takes); err != nil {
		return err
	}
	var err error
	if ask.Undo {
		err = d.services.Undo(ctx, ask.Step, ask.Call)
	} else {
		answer.Serial, err = d.services.Do(ctx, ask.Step, ask.Call)
	}
	var failed *drone.ServiceError
	if errors.As(err, &failed) {
		answer.Code, answer.Reason = failed.Code, failed.Reason
		return nil
	}
	return err
}

// desk is services at a socket.
type desk struct {
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
}

// openDesk serves a Desk or a Workshop at a socket of that path.
func openDesk(path string, calls any) (*desk, error) {
	server := rpc.NewServer()
	if err := server.Register(calls); err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	d := &desk{listener: l, conns: map[net.Conn]struct{}{}}
	d.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			d.mu.Lock()
			d.conns[c] = struct{}{}
			d.mu.Unlock()
			d.wg.Go(func() {
				server.ServeConn(c)
				d.mu.Lock()
				delete(d.conns, c)
				d.mu.Unlock()
			})
		}
	})
	return d, nil
}

func (d *desk) close() error {
	err := d.listener.Close()
	d.mu.Lock()
	for c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.wg.Wait()
	return err
}

// remote is drone.Backend at a Desk.
type remote struct{ client *rpc.Client }

// Do implements drone.Backend.
func (r remote) Do(ctx context.Context, step drone.Step, in drone.Call) (uint32, error) {
	return r.call(ctx, &Ask{Step: step, Call: in})
}

// Undo implements drone.Backend.
func (r remote) Undo(ctx context.Context, step drone.Step, in drone.Call) error {
	_, err := r.call(ctx, &Ask{Step: step, Call: in, Undo: true})
	return err
}

func (r remote) call(ctx context.Context, ask *Ask) (uint32, error) {
	ask.Until, _ = ctx.Deadline()
	call := r.client.Go("Desk.Call", ask, &Answer{}, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return 0, ctx.Err() // the call may still take effect
	case <-call.Done:
	}
	if call.Error != nil {
		return 0, fmt.Errorf("services: %w", call.Error)
	}
	answer := call.Reply.(*Answer)
	if answer.Code != 0 {
		return 0, &drone.ServiceError{Code: answer.Code, Reason: answer.Reason}
	}
	return answer.Serial, nil
}
