package scheduler

import (
	"context"
	"errors"
	"maps"
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
	s     *Scheduler
	index int // among the node's
	shard *Shard
	in    *Inbox
	asked signal // there may be an order
	// holding has an element during a cycle that may load an ended task, and while tasks are forgotten: a task that a
	// cycle has loaded must not lose its journal before the cycle has committed. Other cycles need not wait.
	holding chan struct{}

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

func newCommitter(s *Scheduler, index int, bus Bus) *Committer {
	c := &Committer{
		s: s, index: index, asked: newSignal(), holding: make(chan struct{}, 1),
		held: map[int]*ownership{}, feeds: map[int]*feed{}, drains: map[int]core.Instant{},
	}
	c.in = newInbox(s.cfg.Now, s.cfg.Memory, s.cfg.Admission)
	c.shard = NewShard(s.cfg.Config, s.store, bus, s.log, s.cfg.Rand, c.in.published, c.in.probed)
	return c
}

// Inbox is where the mail of the committer's partitions goes. It is safe for concurrent use.
func (c *Committer) Inbox() *Inbox { return c.in }

// Shard is the committer's shard. Only the driver may use it.
func (c *Committer) Shard() *Shard { return c.shard }

// Due is when Step has something to do; 0: when mail or an order comes.
func (c *Committer) Due() core.Instant {
	now := c.s.cfg.Now()
	if c.hasOrders() {
		return now
	}
	due := c.cycleDue(now)
	for _, until := range c.drains {
		due = earlier(due, until)
	}
	return due
}

// cycleDue is when the next commit cycle is to begin; 0: when there is mail.
func (c *Committer) cycleDue(now core.Instant) core.Instant {
	due := earlier(c.shard.NextWake(), c.flushAt)
	if c.in.isDue() {
		due = earlier(due, now)
	}
	if len(c.drains) > 0 {
		return earlier(due, c.cycledAt.Add(c.s.cfg.FlushEvery/flushesOfDrain))
	}
	if c.s.cfg.Admission.waiting() {
		due = earlier(due, c.cycledAt.Add(c.s.cfg.CycleTarget))
	}
	if due != 0 {
		due = max(due, c.idleUntil)
	}
	return due
}

// earlier is the earlier of two times of which 0 means none.
func earlier(a, b core.Instant) core.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Step carries out one order, if there is one, and runs a commit cycle, if one is due. Taking over and reading end with
// ctx, what is under way with work. Only a bug is an error.
func (c *Committer) Step(ctx, work context.Context) error {
	if o, ok := c.nextOrder(); ok {
		c.carryOut(ctx, o)
	}
	now := c.s.cfg.Now()
	if due := c.cycleDue(now); due != 0 && due <= now {
		if err := c.cycle(work); err != nil {
			return err
		}
	}
	c.endDrains(work)
	return nil
}

// cycle runs a commit cycle and lets go of what it lost. Only a bug is an error.
func (c *Committer) cycle(ctx context.Context) error {
	mail := c.in.take()
	loads := len(mail.Controls) > 0 // nothing else loads a task that has ended
	if loads && !c.hold(ctx) {
		// It ends: what is not handled is read again by the next owner. The inbox has room for what still comes.
		c.in.giveBack(mail)
		return nil
	}
	began, wrote := c.s.cfg.Now(), c.shard.Stats.Writes
	flush := len(c.drains) > 0 || c.flushAt != 0 && began >= c.flushAt
	lost, err := c.shard.RunCycle(ctx, began, mail, flush)
	if loads {
		c.unhold()
	}
	now := c.s.cfg.Now()
	c.in.giveBack(mail)
	for _, p := range lost {
		c.unfeed(p)
		if !slices.Contains(c.shard.cycle.stopped, p) {
			c.s.news.lose(p)
		}
	}
	c.note()
	if c.s.cfg.Breakers.Enabled() {
		c.s.breakers.collect(&c.shard.gate.agents, now, &c.s.cfg.Breakers.Policy)
	}
	if c.s.cfg.Limits.Store != nil {
		c.s.limits.collect(&c.shard.gate, c.shard.inOrder(), c.index)
	}
	c.measure(now, now.Sub(began))
	c.cycledAt = now
	if flush || !c.shard.Unsaved() {
		c.flushAt = 0
	}
	if c.flushAt == 0 && c.shard.Unsaved() {
		c.flushAt = now.Add(c.s.cfg.FlushEvery)
	}
	if c.idleUntil = 0; c.s.cfg.CommitGap > 0 && c.shard.Stats.Writes-wrote > 1 {
		c.idleUntil = began.Add(c.s.cfg.CommitGap)
	}
	c.s.cfg.Admission.cycle(now, now.Sub(began), c.shard.cycle.answers, c.shard.cycle.late)
	c.in.awaitRoom(c.shard.cycle.noRoom)
	for p := range c.feeds {
		c.in.setRoom(p, c.s.cfg.InFlight-c.shard.Load(p))
	}
	return c.outcome(ctx, err)
}

// outcome reports what a cycle came to, and returns the error if it is a bug.
func (c *Committer) outcome(ctx context.Context, err error) error {
	if c.shard.Stats.Commits >= c.failing {
		c.worked()
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, core.ErrForeignRow) {
		return err
	}
	c.failing = c.shard.Stats.Commits + 1
	c.s.cfg.report(TroubleCycle, err)
	return nil
}

// worked reports that what failed in a cycle before works.
func (c *Committer) worked() {
	if c.failing > 0 {
		c.failing = 0
		c.s.cfg.report(TroubleCycle, nil)
	}
}

// hold keeps such cycles and forgetting apart, until unhold. It reports false when ctx ends before. It is safe for
// concurrent use.
func (c *Committer) hold(ctx context.Context) bool {
	select {
	case c.holding <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Committer) unhold() { <-c.holding }

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
			o.last, o.waits = c.shard.LastCommit(p), own != nil && len(own.held) > 0
			o.reading = c.shard.Reading(p)
		}
	}
}

// adopt takes a partition over, unless it is another node's by now.
func (c *Committer) adopt(ctx context.Context, p int) {
	if _, ok := c.shard.Owns(p); ok {
		return
	}
	// The order may be from before another node came: nodes that start together would take each other's partitions away.
	if c.stopping || !c.s.falls(p) {
		c.forget(p)
		return
	}
	err := c.tryAdopt(ctx, p)
	if err != nil {
		c.unfeed(p)
		c.shard.Drop(p)
	}
	if ctx.Err() == nil {
		c.s.cfg.report(TroubleTakeover, c.s.news.took(p, err))
	}
	if err == nil {
		c.worked() // if what failed is still there to do, it fails again soon
	}
}

// tryAdopt listens to replies before commands are sent again: an answer that comes earlier would be lost.
func (c *Committer) tryAdopt(ctx context.Context, p int) error {
	ground, err := c.look(ctx, p)
	if err != nil {
		return err
	}
	f := &feed{}
	c.feeds[p] = f
	c.s.cfg.Admission.own(1)
	if f.stopListen, err = c.s.wires.Listen(p, c.in); err != nil {
		return err
	}
	from, err := c.shard.Adopt(ctx, c.s.cfg.Now(), p, ground)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.held[p] = &ownership{epoch: from.Epoch, last: c.shard.LastCommit(p), wentBack: c.shard.partitions[p].taken.WentBackAt}
	c.mu.Unlock()
	c.in.openGate(p, c.s.cfg.InFlight-c.shard.Load(p))
	lost := func(why error) { c.ask(order{kind: orderLost, partition: p, epoch: from.Epoch, why: why}) }
	if f.stopRead, err = c.s.wires.Read(ctx, p, from, c.in, lost); err != nil {
		c.shard.evidence.wentBack(p, err)
		return err
	}
	c.s.log.Debug("partition taken over", "partition", p, "epoch", from.Epoch, "cursor", from.Cursor, "resumed", from.Resumed)
	return nil
}

// look finds what there is of a partition outside the database, now.
func (c *Committer) look(ctx context.Context, p int) (Ground, error) {
	at := c.s.cfg.Now()
	g, err := c.s.wires.Ground(ctx, p)
	g.At, g.Again = at, func(ctx context.Context) (Ground, error) { return c.look(ctx, p) }
	return g, err
}

// drop forgets a partition and stops what brings its mail.
func (c *Committer) drop(p int) {
	c.shard.Drop(p)
	c.unfeed(p)
}

// unfeed stops what brings a partition's mail.
func (c *Committer) unfeed(p int) {
	c.in.closeGate(p)
	if f := c.feeds[p]; f != nil {
		f.stopReading()
		if f.stopListen != nil {
			f.stopListen()
		}
		delete(c.feeds, p)
		c.s.cfg.Admission.own(-1)
	}
	delete(c.drains, p)
	c.forget(p)
	if len(c.away) > 0 { // no cycle need come that looks again
		away := c.shard.agentsAway(c.s.cfg.Now(), c.away)
		c.mu.Lock()
		c.away = away
		c.mu.Unlock()
	}
}

// forget makes a partition one that is not held.
func (c *Committer) forget(p int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, p)
}

const (
	// flushesOfDrain is how many times in FlushEvery a drain looks whether it is done.
	flushesOfDrain = 10
	// drainEnd is the part of DrainMax that is left for the last commit and the release: a commit that is cut off costs
	// the shard all its partitions, and leaves those of the drain with an owner that their successor waits for.
	drainEnd = 5
)

// drain lets a partition go in order: it is not read any more; when its commands are answered and its cursors
// committed, or most of DrainMax is over, endDrains releases it.
func (c *Committer) drain(p int) {
	if _, ok := c.shard.Owns(p); !ok || c.drains[p] != 0 { // one that is to be adopted by a later order stays held
		return
	}
	if c.s.cfg.DrainMax < 0 {
		c.drop(p)
		return
	}
	c.in.closeGate(p)
	c.feeds[p].stopReading()
	c.shard.StartNoMore(p)
	c.drains[p] = c.s.cfg.Now().Add(c.s.cfg.DrainMax - c.s.cfg.DrainMax/drainEnd)
}

// endDrains gives up the partitions whose drain is over.
func (c *Committer) endDrains(work context.Context) {
	if len(c.drains) == 0 {
		return
	}
	now := c.s.cfg.Now()
	var over, kept []int
	var failed error
	for p, until := range c.drains {
		if now >= until || work.Err() != nil || !c.shard.busy(p) {
			over = append(over, p)
		}
	}
	slices.Sort(over)
	for _, p := range over {
		if epoch, ok := c.shard.Owns(p); ok {
			if err := c.s.store.Release(work, p, epoch); err != nil {
				kept, failed = append(kept, p), errors.Join(failed, err)
			}
		}
		c.drop(p)
	}
	if failed != nil { // they are their successors' after a while
		c.s.log.Warn("partitions cannot be released, and their successors wait", "partitions", listed(kept), "error", failed)
	}
}

// Stop makes the committer let everything go. Step and Due go on until Stopped.
func (c *Committer) Stop() {
	if c.stopping {
		return
	}
	c.stopping = true
	for _, p := range slices.Sorted(maps.Keys(c.feeds)) {
		c.drain(p)
	}
}

// Stopped reports whether the committer has let everything go.
func (c *Committer) Stopped() bool { return c.stopping && len(c.feeds) == 0 }

// run drives the committer until ctx ends, then drains. What is under way may go on for DrainMax after that, and is cut
// off then, whatever it waits for; with a negative DrainMax it is cut off at once, as by a crash.
func (c *Committer) run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	stopCut := context.AfterFunc(ctx, func() {
		if c.s.cfg.DrainMax < 0 {
			cut()
			return
		}
		late := time.AfterFunc(c.s.cfg.DrainMax, cut)
		context.AfterFunc(work, func() { late.Stop() })
	})
	defer stopCut()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
			c.Stop()
		}
		if err := c.Step(ctx, work); err != nil {
			return err
		}
		if c.Stopped() {
			return nil
		}
		c.wait(ctx, work, timer)
	}
}

// wait returns when Step has something to do.
func (c *Committer) wait(ctx, work context.Context, timer *time.Timer) {
	now, wait := c.s.cfg.Now(), time.Hour
	if due := c.Due(); due != 0 {
		wait = due.Sub(now)
	}
	mail := c.in.signal
	if idle := c.idleUntil.Sub(now); idle > 0 && len(c.drains) == 0 {
		wait, mail = min(wait, idle), nil // each reply would wake it up in vain
	}
	if wait <= 0 {
		return
	}
	timer.Reset(wait)
	done := ctx.Done()
	if c.stopping {
		done = work.Done()
	}
	select {
	case <-done:
	case <-c.asked:
	case <-mail:
	case <-timer.C:
	}
}
