package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// The loop of a committer: when something is due, and a commit cycle with what is around it.

// now reads the clock. If that was set back since the last cycle, what was planned by it is shifted: the next cycle would not
// begin until the clock had caught up.
func (c *Committer) now() core.Instant {
	now := c.s.cfg.Now()
	by := now - c.cycledAt
	if by >= 0 {
		return now
	}
	for p := range c.drains {
		c.drains[p] += by
	}
	for _, at := range []*core.Instant{&c.cycledAt, &c.idleUntil, &c.flushAt} {
		if *at != 0 {
			*at += by
		}
	}
	return now
}

// Due returns when Step has something to do; 0: only when mail or an order comes.
func (c *Committer) Due() core.Instant {
	now := c.now()
	if c.hasOrders() {
		return now
	}
	due := c.cycleDue(now)
	for _, until := range c.drains {
		due = earlier(due, until)
	}
	return due
}

// cycleDue returns when the next commit cycle should begin; 0: only when mail comes.
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

// Step carries out one order, if there is one, and runs a commit cycle, if one is due. ctx ends takeovers and
// reading; work ends what is under way. An error is a bug; anything else is retried and reported.
func (c *Committer) Step(ctx, work context.Context) error {
	if o, ok := c.nextOrder(); ok {
		c.carryOut(ctx, o)
	}
	now := c.now()
	if due := c.cycleDue(now); due != 0 && due <= now {
		if err := c.cycle(work); err != nil {
			return err
		}
	}
	c.endDrains(work)
	return nil
}

// cycle runs a commit cycle, drops the partitions that it lost, and plans the next. An error is a bug.
func (c *Committer) cycle(ctx context.Context) error {
	mail := c.in.take()
	loads := len(mail.Controls) > 0 // only controls load tasks that have ended
	if loads && !c.lockPurge(ctx) {
		// ctx has ended: the next owner reads again what is not handled.
		c.in.giveBack(mail)
		return nil
	}
	began, wrote := c.s.cfg.Now(), c.shard.Stats.Writes
	flush := len(c.drains) > 0 || c.flushAt != 0 && began >= c.flushAt
	lost, err := c.shard.RunCycle(ctx, began, mail, flush)
	if loads {
		c.unlockPurge()
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
		c.s.limits.collect(c.shard.gate, c.shard.inOrder(), c.index)
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

// outcome reports how a cycle went. It returns the error only if that is a bug.
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

// run drives the committer until ctx ends, then drains. What is under way then may go on for DrainMax and is
// cut off after that, whatever it waits for. With a negative DrainMax it is cut off at once, as by a crash.
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

// wait blocks until Step has something to do.
func (c *Committer) wait(ctx, work context.Context, timer *time.Timer) {
	now, wait := c.now(), time.Hour
	if due := c.Due(); due != 0 {
		wait = due.Sub(now)
	}
	mail := c.in.signal
	if idle := c.idleUntil.Sub(now); idle > 0 && len(c.drains) == 0 {
		wait, mail = min(wait, idle), nil // no cycle may begin before, so mail need not wake it
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
