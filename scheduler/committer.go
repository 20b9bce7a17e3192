package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Committer is the loop of one shard: it feeds the shard its mail, and takes partitions over and lets them go between
// commit cycles. Nothing in it waits for mail or for a time: [Committer.Due] says when there is something to do, and
// [Committer.Step] does it. A goroutine of [Scheduler.Run] drives it, and so does the simulator.
//
// The methods that a goroutine other than the driver's may call say so.
type Committer struct {
	s *shared
	// index is its place among the node's committers.
	index int
	shard *Shard
	in    *Inbox
	// asked tells the driver that there may be an order.
	asked signal
	// purgeLock is held during a cycle that may load an ended task, and while old tasks are forgotten: a task that a cycle has
	// loaded must not lose its journal before the cycle has committed. Other cycles do not take it.
	purgeLock chan struct{}

	mu     sync.Mutex
	orders []order
	// held are the partitions that are adopted, or about to be.
	held map[int]*ownership
	// stats is a copy of the shard's, as of the last cycle.
	stats  Stats
	cycles Cycles
	// away are the agents that tasks wait for, as of the last look.
	away []Away

	feeds map[int]*feed
	// drains are the partitions that are being let go, with when the wait for their commands ends.
	drains map[int]core.Instant
	// stopping is set by Stop: nothing is taken over any more.
	stopping bool
	// cycledAt is when the last cycle ended; idleUntil is when the next may begin.
	cycledAt  core.Instant
	idleUntil core.Instant
	// awayAt is when away was last found out.
	awayAt core.Instant
	// flushAt is when a moved cursor has waited long enough for a commit to ride on; 0: none waits.
	flushAt core.Instant
	// failing is 1 + the number of commits when a cycle last failed; 0: there was a commit since.
	failing int64
}

// ownership is what other goroutines may know of a partition. The driver updates it after each cycle.
type ownership struct {
	// epoch is 0 while the partition is about to be adopted.
	epoch int64
	// last is the last commit.
	last int64
	// wentBack is when the database last went back under this partition; 0: never.
	wentBack core.Instant
	// waits is whether requests are deferred.
	waits   bool
	reading core.Reading
}

// feed is what brings a partition's mail; its functions stop that.
type feed struct {
	stopListen func()
	stopRead   func()
}

// stopReading stops the reader, once.
func (f *feed) stopReading() {
	if f.stopRead != nil {
		f.stopRead()
		f.stopRead = nil
	}
}

func newCommitter(s *shared, index int, bus Bus) *Committer {
	c := &Committer{
		s: s, index: index, asked: newSignal(), purgeLock: make(chan struct{}, 1),
		held: map[int]*ownership{}, feeds: map[int]*feed{}, drains: map[int]core.Instant{},
	}
	c.in = newInbox(s.cfg.Now, s.cfg.Memory, s.cfg.Admission)
	c.shard = NewShard(s.cfg.Config, s.store, bus, s.log, s.cfg.Rand, c.in.published, c.in.probed)
	return c
}

// ask gives the committer an order. It is safe for concurrent use and does not block: orders of one kind for
// one partition are merged into one.
func (c *Committer) ask(o order) {
	c.mu.Lock()
	if o.kind == orderAdopt && c.held[o.partition] == nil {
		c.held[o.partition] = &ownership{}
	}
	i := slices.IndexFunc(c.orders, func(w order) bool { return w.kind == o.kind && w.partition == o.partition })
	switch {
	case i < 0:
		c.orders = append(c.orders, o)
	case c.orders[i].epoch == o.epoch:
		o.why = bothRewound(c.orders[i].why, o.why)
		c.orders[i] = o
	case c.orders[i].epoch < o.epoch:
		c.orders[i] = o
	}
	c.mu.Unlock()
	c.asked.set()
}

// hasOrders reports whether an order waits.
func (c *Committer) hasOrders() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.orders) > 0
}

// nextOrder removes the oldest order.
func (c *Committer) nextOrder() (o order, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.orders) == 0 {
		return order{}, false
	}
	o = c.orders[0]
	c.orders = slices.Delete(c.orders, 0, 1)
	return o, true
}

// Lose says that a partition held under an epoch can no longer be read, or is another owner's. It is safe for
// concurrent use.
func (c *Committer) Lose(partition int, epoch int64, why error) {
	c.ask(order{kind: orderLost, partition: partition, epoch: epoch, why: why})
}

// Inbox is where the mail of the committer's partitions goes. It is safe for concurrent use.
func (c *Committer) Inbox() *Inbox { return c.in }

// Shard is the committer's shard. Only the driver may use it.
func (c *Committer) Shard() *Shard { return c.shard }

// worked reports that cycles work again, if one had failed.
func (c *Committer) worked() {
	if c.failing > 0 {
		c.failing = 0
		c.s.cfg.report(TroubleCycle, nil)
	}
}

// awayEvery is how often a committer finds out which agents its tasks wait for.
const awayEvery = 5 * time.Second

// measure publishes the counts of a cycle that took so long for other goroutines to read.
func (c *Committer) measure(now core.Instant, took time.Duration) {
	var away []Away
	// The last of them may be followed by no further cycle.
	refresh := c.awayAt.Elapsed(now, awayEvery) || len(c.away) > 0 && !c.shard.misses()
	if refresh {
		c.awayAt = now
		away = c.shard.agentsAway(now, c.away)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shard.Stats.Commits > c.stats.Commits {
		c.cycles.add(took)
	}
	c.stats = c.shard.Stats
	if refresh {
		c.away = away
	}
}

// lockPurge takes purgeLock. It reports false if ctx ends before. It is safe for concurrent use.
func (c *Committer) lockPurge(ctx context.Context) bool {
	select {
	case c.purgeLock <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// unlockPurge returns purgeLock.
func (c *Committer) unlockPurge() { <-c.purgeLock }

// holds reports whether a partition is adopted, or about to be. It is safe for concurrent use.
func (c *Committer) holds(partition int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[partition] != nil
}

// owns returns what is known of a partition that is adopted. It is safe for concurrent use.
func (c *Committer) owns(partition int) (ownership, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.held[partition]; o != nil && o.epoch != 0 {
		return *o, true
	}
	return ownership{}, false
}

// ownerships are the partitions that are adopted. It is safe for concurrent use.
func (c *Committer) ownerships() map[int]ownership {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[int]ownership, len(c.held))
	for p, o := range c.held {
		if o.epoch != 0 {
			all[p] = *o
		}
	}
	return all
}

// adopting reports whether a takeover is under way or ordered. It is safe for concurrent use.
func (c *Committer) adopting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.held {
		if o.epoch == 0 {
			return true
		}
	}
	return false
}

// note publishes what other goroutines may know of the adopted partitions.
func (c *Committer) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, o := range c.held {
		if o.epoch != 0 {
			own := c.shard.partitions[p]
			o.last, o.waits = c.shard.LastCommit(p), own != nil && len(own.deferred) > 0
			o.reading = c.shard.Reading(p)
		}
	}
}

// forget takes a partition off those that the committer owns.
func (c *Committer) forget(p int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, p)
}
