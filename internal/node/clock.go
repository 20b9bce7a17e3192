package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// How far clocks may be apart. NTP keeps a machine within milliseconds, and a leap or a busy virtual machine costs
// less than a second: two seconds are a broken clock. The shortest deadlines in use are some tens of seconds: from
// thirty on, a wrong clock undoes good tasks wherever it is not corrected, as in an agent on the same machine.
const (
	clockSlack = 2 * time.Second
	clockMax   = 30 * time.Second
	// clockStep is how much the wall clock may move against the monotonic one between two looks before it counts as
	// set by hand.
	clockStep = time.Second
	// clockEvery is how often clocks are compared.
	clockEvery = 10 * time.Second
)

// nodeClock is the time that the roles of a node go by: the machine's, and where that is more than clockSlack from the
// NATS server's, the server's. Streams, leases and submissions have the server's time already, so a machine whose clock
// is wrong, or is set wrong while the node runs, neither undoes good tasks nor lets overdue ones run on.
type nodeClock struct {
	read    func() time.Time // with a monotonic reading
	began   time.Time
	drift   atomic.Int64  // how far the wall clock had moved against the monotonic one when the clocks were compared
	correct atomic.Int64  // added to the wall clock
	stepped chan struct{} // signalled when the wall clock was set

	step  sync.Mutex               // held to change drift and correct, and guards ahead
	ahead map[string]time.Duration // of each clock that it was last compared with
}

func newClock(read func() time.Time) *nodeClock {
	if read == nil {
		read = time.Now
	}
	return &nodeClock{read: read, began: read(), stepped: make(chan struct{}, 1), ahead: map[string]time.Duration{}}
}

// moved is how far the wall clock has moved against the monotonic one since the beginning.
func (c *nodeClock) moved(t, wall time.Time) time.Duration {
	return wall.Sub(c.began.Round(0)) - t.Sub(c.began)
}

// time is the present time, corrected.
func (c *nodeClock) time() time.Time {
	t := c.read()
	return c.timeAt(t, t.Round(0))
}

// timeAt is time, by a monotonic reading and the wall clock.
func (c *nodeClock) timeAt(t, wall time.Time) time.Time {
	moved := c.moved(t, wall)
	if d := moved - time.Duration(c.drift.Load()); d.Abs() > clockStep {
		c.absorb(moved)
	}
	return wall.Add(time.Duration(c.correct.Load()))
}

// absorb goes on from where the time was when the wall clock was set, until clocks are compared again.
func (c *nodeClock) absorb(moved time.Duration) {
	c.step.Lock()
	defer c.step.Unlock()
	d := moved - time.Duration(c.drift.Load())
	if d.Abs() <= clockStep {
		return // another goroutine was first
	}
	c.correct.Add(-int64(d))
	c.drift.Store(int64(moved))
	select {
	case c.stepped <- struct{}{}:
	default: // signalled already
	}
}

// instant is the present time, for the roles.
func (c *nodeClock) instant() core.Instant { return core.InstantOf(c.time()) }

// adjust takes in that the machine's clock is ahead of the server's by so much (or behind, if negative).
func (c *nodeClock) adjust(ahead time.Duration) {
	c.step.Lock()
	defer c.step.Unlock()
	t := c.read()
	c.drift.Store(int64(c.moved(t, t.Round(0))))
	if ahead.Abs() <= clockSlack {
		ahead = 0
	}
	c.correct.Store(-int64(ahead))
}

// databaseClock is a store whose server has a clock of its own.
type databaseClock interface {
	// Clock is the server's time.
	Clock(ctx context.Context) (time.Time, error)
}

// wrongClock is by how much a clock is ahead of the machine's; whose it is.
type wrongClock struct {
	whose string
	ahead time.Duration // the machine's clock, of that one
}

// Error says which clock is ahead.
func (w wrongClock) Error() string {
	id := "alert.ahead"
	if w.ahead < 0 {
		id = "alert.behind"
	}
	return say.Of(id, "time", w.ahead.Abs().Round(100*time.Millisecond), "whose", w.whose, "limit", clockSlack)
}

// clocksDiffer is all that are wrong in one line; nil: none.
func clocksDiffer(wrong []wrongClock) error {
	if len(wrong) == 0 {
		return nil
	}
	texts := make([]string, len(wrong))
	for i, w := range wrong {
		texts[i] = w.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

// apart is by how much the local clock is ahead of another, as far as that is certain: an answer that took long may
// have been given at any time meanwhile.
func apart(asked, answered, other time.Time) time.Duration {
	switch {
	case other.Before(asked):
		return asked.Sub(other)
	case other.After(answered):
		return answered.Sub(other)
	}
	return 0
}

// compareClocks compares the machine's clock with NATS's and the database's, corrects the node's time by the former,
// and returns what is too far off. A clock that cannot be asked is as it was; why is another condition's trouble.
func (n *Node) compareClocks(ctx context.Context) []wrongClock {
	wall := func() time.Time { return n.clock.read().Round(0) }
	if n.conn != nil { // what examines a node may have none
		if server, err := n.conn.ServerClock(ctx, wall); err == nil {
			ahead := apart(server.Asked, server.Asked.Add(server.Travel), server.Time)
			n.clock.adjust(ahead)
			n.clock.compared("NATS", ahead)
		}
	}
	if store, ok := n.store.(databaseClock); ok {
		asked := wall()
		if at, err := store.Clock(ctx); err == nil {
			n.clock.compared("the database", apart(asked, wall(), at))
		}
	}
	return n.clock.wrong()
}

// compared notes by how much the machine's clock is ahead of another.
func (c *nodeClock) compared(whose string, ahead time.Duration) {
	c.step.Lock()
	defer c.step.Unlock()
	c.ahead[whose] = ahead
}

// comparedWith are the clocks that the machine's was compared with.
func (c *nodeClock) comparedWith() []string {
	c.step.Lock()
	defer c.step.Unlock()
	return slices.Sorted(maps.Keys(c.ahead))
}

// wrong are the clocks that the machine's is too far from.
func (c *nodeClock) wrong() []wrongClock {
	c.step.Lock()
	defer c.step.Unlock()
	var all []wrongClock
	for _, whose := range slices.Sorted(maps.Keys(c.ahead)) {
		if ahead := c.ahead[whose]; ahead.Abs() > clockSlack {
			all = append(all, wrongClock{whose, ahead})
		}
	}
	return all
}
