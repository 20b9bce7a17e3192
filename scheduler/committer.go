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
	s     *shared
	index int // among the node's
	shard *Shard
	in    *Inbox
	asked signal // there may be an order
	// purgeLock has an element during a cycle that may load an ended task, and while tasks are forgotten: a task that a
	// cycle has loaded must not lose its journal before the cycle has committed. Other cycles need not wait.
	purgeLock chan struct{}

	mu     sync.Mutex
	orders []order
	held   map[int]*ownership // partitions adopted, or about to be
	stats  Stats              // of the shard, as of the last cycle
	cycles Cycles
	away   []Away // as of the last look

	feeds     map[int]*feed
	drains    map[int]core.Instant // partitions that are let go, and until when they may take for it
	stopping  bool                 // takes nothing over any more
	cycledAt  core.Instant         // when the last cycle ended
	idleUntil core.Instant         // when the next cycle may begin
	awayAt    core.Instant         // of the last look which agents are waited for
	flushAt   core.Instant         // when a moved cursor has waited long enough for a commit to ride on; 0: none waits
	failing   int64                // how many commits there had been when a cycle failed, plus one; 0: none has since the last commit
}

// ownership is what other goroutines may know of a partition. The driver keeps it up to date between cycles.
type ownership struct {
	epoch    int64        // 0: it is about to be adopted
	last     int64        // the last commit
	wentBack core.Instant // when its database went back last; 0: never
	waits    bool         // a request waits for what is unread, or for a plan
	reading  core.Reading
}

// feed is what brings a partition's mail.
type feed struct {
	stopListen func()
	stopRead   func()
}

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

// ask hands an order over. It is safe for concurrent use, and does not block: there is one order of a kind for a
// partition at most.
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

func (c *Committer) hasOrders() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.orders) > 0
}

// nextOrder takes the oldest order.
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

// Lose tells, from any goroutine, that a partition held under an epoch can no longer be read, or is another owner's.
func (c *Committer) Lose(partition int, epoch int64, why error) {
	c.ask(order{kind: orderLost, partition: partition, epoch: epoch, why: why})
}

// Inbox is where the mail of the committer's partitions goes. It is safe for concurrent use.
func (c *Committer) Inbox() *Inbox { return c.in }

// Shard is the committer's shard. Only the driver may use it.
func (c *Committer) Shard() *Shard { return c.shard }

// worked reports that what failed in a cycle before works.
func (c *Committer) worked() {
	if c.failing > 0 {
		c.failing = 0
		c.s.cfg.report(TroubleCycle, nil)
	}
}

// awayEvery is how often a shard looks which agents its tasks wait for.
const awayEvery = 5 * time.Second

// measure keeps what other goroutines may know of a cycle that took so long.
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

// lockPurge keeps such cycles and forgetting apart, until unhold. It reports false when ctx ends before. It is safe for
// concurrent use.
func (c *Committer) lockPurge(ctx context.Context) bool {
	select {
	case c.purgeLock <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

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

// note keeps what other goroutines may know of the partitions adopted.
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

// forget makes a partition one that is not held.
func (c *Committer) forget(p int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, p)
}
