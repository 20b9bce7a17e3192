package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/wire"
)

// desk is a client and an agent of our own at a bare rig's engine.
type desk struct {
	client *duly.Client
	agent  *duly.Agent
	nc     *nats.Conn

	mu    sync.Mutex
	ended map[string]time.Time // when it was told of the end of a task, by its id
}

// newDesk connects and listens for tasks of these types that are processed.
func newDesk(url string, types ...string) (*desk, error) {
	nc, err := nats.Connect(url, nats.Name("bench"))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	d := &desk{nc: nc, ended: map[string]time.Time{}}
	d.client, err = duly.NewClient(nc)
	if err == nil {
		d.agent, err = duly.NewAgent(nc, duly.Running(8192), duly.Waiting(1<<16))
	}
	for _, t := range types {
		if err == nil {
			_, err = nc.Subscribe(wire.Names{}.EventSubject(t, "processed"), func(m *nats.Msg) { d.note(m.Data) })
		}
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("desk: %w", err)
	}
	return d, nil
}

// note notes the ends that one message tells of.
func (d *desk) note(told []byte) {
	at, mark := time.Now(), []byte(`"id":"`)
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		_, rest, ok := bytes.Cut(told, mark)
		if !ok {
			return
		}
		id, after, ok := bytes.Cut(rest, []byte{'"'})
		if !ok {
			return
		}
		if _, known := d.ended[string(id)]; !known {
			d.ended[string(id)] = at
		}
		told = after
	}
}

// serving runs the agent while body runs.
func (d *desk) serving(ctx context.Context, body func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer d.nc.Close()
	served := make(chan error, 1)
	go func() { served <- d.agent.Run(ctx) }()
	err := body()
	stop()
	return errors.Join(err, <-served)
}

// deskWithin is how long the tasks of a load may take after the last was submitted.
const deskWithin = 2 * time.Minute

// await waits until so many tasks in all have ended.
func (d *desk) await(ctx context.Context, n int) error {
	for by := time.Now().Add(deskWithin); ; {
		d.mu.Lock()
		got := len(d.ended)
		d.mu.Unlock()
		switch {
		case got >= n:
			return nil
		case time.Now().After(by):
			return fmt.Errorf("%d of %d tasks were processed within %v", got, n, deskWithin)
		case !pause(ctx, 5*time.Millisecond):
			return ctx.Err()
		}
	}
}

// load submits n tasks at a rate and waits for their ends. It gives the times from the submissions to the ends.
func (d *desk) load(ctx context.Context, n, rate int, prefix string, submit func(ctx context.Context, id string) error) ([]time.Duration, error) {
	d.mu.Lock()
	before := len(d.ended)
	d.mu.Unlock()
	begun := make([]time.Time, n)
	failed := make(chan error, n)
	var wg sync.WaitGroup
	from := time.Now()
	for i := range n {
		if !pause(ctx, time.Until(from.Add(time.Duration(i)*time.Second/time.Duration(rate)))) {
			break
		}
		wg.Go(func() {
			begun[i] = time.Now()
			failed <- submit(ctx, fmt.Sprintf("%s-%d", prefix, i))
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return nil, err
		}
	}
	if err := d.await(ctx, before+n); err != nil {
		return nil, err
	}
	took := make([]time.Duration, n)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range took {
		took[i] = d.ended[fmt.Sprintf("%s-%d", prefix, i)].Sub(begun[i])
	}
	return took, nil
}

// memory is what the engine holds: its heap once the garbage is collected, and its proportional set.
func (r *rig) memory() (heap, pss float64, err error) {
	var answer engineAnswer
	if err := r.engine.ask(engineRequest{Memory: true}, &answer); err != nil {
		return 0, 0, err
	}
	return answer.HeapMiB, pssOf(r.engine.pid()), nil
}

// spent is the processor time in seconds that engine and database have used.
func (r *rig) spent() (engine, database float64, err error) {
	var answer engineAnswer
	if err := r.engine.ask(engineRequest{}, &answer); err != nil {
		return 0, 0, err
	}
	watch := &sampler{database: r.pid}
	watch.take(false)
	return answer.CPU, watch.samples[0].used.database, nil
}

// bare runs a scenario at a desk of its own on an engine without the drone example.
func bare(ctx context.Context, s *settings, o rigOptions, types []string, body func(*rig, *desk) error) error {
	o = s.system(o)
	o.Bare = true
	r, err := newRig(ctx, o)
	if err != nil {
		return err
	}
	d, err := newDesk(r.natsURL, types...)
	if err == nil {
		err = body(r, d)
	}
	return errors.Join(err, r.close())
}
