package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Bounds of the load.
const (
	behindMax    = 10                    // seconds of arrivals that may be unfinished; more arrivals are left out and counted
	openMax      = 20_000                // submissions without an answer; more arrivals are left out and counted
	answerMax    = 10 * time.Second      // one try of the client; then the same id again
	newcomerMax  = 2 * time.Second       // the same where clients go away, and do not wait for a time that is told
	paceStep     = 5 * time.Millisecond  // between two looks at what is due
	doorsUsed    = 2                     // connections of the submitters
	cancelWithin = 60 * time.Millisecond // of the answer
	paceSpare    = 50 * time.Millisecond // arrivals that a stopped harness catches up on, at most
)

// load is the deliveries, open loop: each arrives at its time, whatever became of
// the ones before. A submitter that gets no positive answer hands the same id in
// again; but one that is told to come later by the first answer goes away, where there is
// a time within which each delivery must be done.
type load struct {
	within time.Duration // of each delivery; 0: the plan's, and no client goes away

	flow     *drone.Workflow
	mend     *duly.Plan[drone.Request] // of what operators act on
	bound    *duly.Plan[drone.Request] // of what limits and breakers are for
	requests *drone.Generator
	doors    []*nats.Conn
	clients  []*duly.Client
	rate     atomic.Int64 // a second

	next       atomic.Int64 // number of the last delivery
	turn       atomic.Uint64
	open       atomic.Int64
	leftOut    atomic.Int64
	behind     atomic.Int64 // accepted and not ended, when last looked at
	usual      atomic.Int64 // rate without a flood
	refused    atomic.Int64
	cancelled  atomic.Int64 // asked for; whether in time the task knows
	offered    atomic.Int64 // arrivals that were not left out
	turnedAway atomic.Int64 // of these

	mu       sync.Mutex
	accepted []string
	strange  error // a refusal, which nothing here should meet

	stop context.CancelFunc // arrivals end
	quit context.CancelFunc // and so do the submitters that still try
	wg   sync.WaitGroup
}

// newLoad connects the submitters.
func newLoad(url string, seed uint64, within time.Duration) (*load, error) {
	bound, _ := boundedPlan()
	l := &load{within: within, flow: newFlow(), mend: mendPlan(), bound: bound, requests: drone.NewGenerator(seed)}
	for range doorsUsed {
		nc, err := nats.Connect(url, nats.Name("chaos-load"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
			nats.PingInterval(2*time.Second), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // its connections are cut all the time
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect the submitters: %w", err), l.close())
		}
		l.doors = append(l.doors, nc)
		client, err := duly.NewClient(nc)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.clients = append(l.clients, client)
	}
	return l, nil
}

// begin lets deliveries arrive at a rate until end.
func (l *load) begin(ctx context.Context, rate int) {
	l.arrivals(rate)
	trying, quit := context.WithCancel(ctx)
	arriving, stop := context.WithCancel(trying)
	l.stop, l.quit = stop, quit
	l.wg.Go(func() { l.arrive(arriving, trying) })
}

// behindMost is how many may be unfinished until more are left out. Those that nodes have in flight anyway are none that wait.
func (l *load) behindMost() int64 {
	most := behindMax * l.usual.Load()
	if l.within > 0 {
		most += partitions * windowFloor
	}
	return most
}

// arrivals sets the rate.
func (l *load) arrivals(rate int) {
	l.usual.Store(int64(rate))
	l.rate.Store(int64(rate))
}

func (l *load) arrive(ctx, trying context.Context) {
	tick := time.NewTicker(paceStep)
	defer tick.Stop()
	last, due := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			due += min(now.Sub(last), paceSpare).Seconds() * float64(l.rate.Load())
			last = now
		}
		for ; due >= 1; due-- {
			if l.open.Load() >= openMax || l.behind.Load() > l.behindMost() {
				l.leftOut.Add(1)
				continue
			}
			l.offered.Add(1)
			l.open.Add(1)
			l.wg.Go(func() {
				defer l.open.Add(-1)
				l.deliver(trying)
			})
		}
	}
}

// cancelEvery: of so many deliveries one is cancelled on its way, so that there is
// always something to undo.
const cancelEvery = 40

// deliver is one delivery of the load.
func (l *load) deliver(ctx context.Context) {
	id, err := l.submit(ctx)
	if err != nil || rand.N(cancelEvery) > 0 || pause(ctx, rand.N(cancelWithin)) != nil {
		return // it is noted; without an answer it is not accepted
	}
	try, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	if l.clients[0].Cancel(try, drone.Type, id, "chaos") == nil {
		l.cancelled.Add(1)
	}
}

// submit submits one new delivery again and again until it is accepted, its client goes away, or ctx ends.
func (l *load) submit(ctx context.Context) (id string, err error) {
	r := l.requests.Request(int(l.next.Add(1)))
	if l.within > 0 {
		switch err := l.once(ctx, r); {
		case err == nil:
			l.take(r.DeliveryID)
			return r.DeliveryID, nil
		case later(err):
			l.turnedAway.Add(1)
			return r.DeliveryID, err
		}
	}
	return l.submitUntilAccepted(ctx, r)
}

// once hands a delivery in once: a [duly.Client] would come again by itself.
func (l *load) once(ctx context.Context, r drone.Request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("delivery %s: %w", r.DeliveryID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	answer, err := l.doors[l.turn.Add(1)%uint64(len(l.doors))].RequestMsgWithContext(ctx, &nats.Msg{
		Subject: wire.Names{}.SubmitSubject(drone.Type, r.DeliveryID), Header: nats.Header{wire.HeaderCompleteBy: {l.within.String()}}, Data: body,
	})
	if err != nil {
		return err
	}
	_, err = wire.DecodeSubmitAnswer(answer.Data)
	return err
}

// later reports whether an answer says that there is no time or room for a submission now.
func later(err error) bool {
	refused, ok := errors.AsType[*wire.RefusedError](err)
	return ok && refused.Code == core.CodeTooMany
}

// submitTo is submit with a delivery of that partition.
func (l *load) submitTo(ctx context.Context, partition int) (id string, err error) {
	r := l.requests.Request(int(l.next.Add(1)))
	for wire.PartitionOf(r.DeliveryID, partitions) != partition {
		r = l.requests.Request(int(l.next.Add(1)))
	}
	return l.submitUntilAccepted(ctx, r)
}

func (l *load) submitUntilAccepted(ctx context.Context, r drone.Request) (id string, err error) {
	var options []duly.SubmitOption
	if l.within > 0 {
		options = append(options, duly.Within(l.within))
	}
	return l.untilAccepted(ctx, l.flow.Plan, r, options...)
}

// client is one of those that there are, and how long one try of it takes. Where clients go away each try is a newcomer's: in
// the place that one gives up comes another, and that some client gets in is what is asked.
func (l *load) client() (client *duly.Client, patience time.Duration) {
	n := l.turn.Add(1) % uint64(len(l.clients))
	if l.within > 0 {
		if own, err := duly.NewClient(l.doors[n]); err == nil {
			return own, newcomerMax
		}
	}
	return l.clients[n], answerMax
}

// arrived are all that were not left out, and those that were turned away.
func (l *load) arrived() [2]int64 { return [2]int64{l.offered.Load(), l.turnedAway.Load()} }

func (l *load) take(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = append(l.accepted, id)
}

func (l *load) untilAccepted(ctx context.Context, plan *duly.Plan[drone.Request], r drone.Request, options ...duly.SubmitOption) (id string, err error) {
	for ctx.Err() == nil {
		client, patience := l.client()
		try, cancel := context.WithTimeout(ctx, patience)
		_, err = plan.Submit(try, client, r.DeliveryID, r, options...)
		cancel()
		if err == nil {
			l.take(r.DeliveryID)
			return r.DeliveryID, nil
		}
		if errors.Is(err, duly.ErrRefused) {
			l.note(err)
			return r.DeliveryID, err
		}
	}
	return r.DeliveryID, errors.Join(ctx.Err(), err)
}

func (l *load) note(err error) {
	l.refused.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strange == nil {
		l.strange = err
	}
}

// acceptedCount is how many deliveries were accepted so far.
func (l *load) acceptedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
}

// end lets nothing more arrive and waits, for so long, until every delivery has
// its answer.
func (l *load) end(patience time.Duration) {
	if l.stop == nil {
		return
	}
	l.stop()
	late := time.AfterFunc(patience, l.quit)
	l.wg.Wait()
	late.Stop()
	l.quit()
}

func (l *load) close() error {
	if l.quit != nil {
		l.quit()
		l.wg.Wait()
	}
	for _, nc := range l.doors {
		nc.Close()
	}
	return nil
}
