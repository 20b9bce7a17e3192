package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// proveMax bounds how long prove waits for the store.
const proveMax = time.Second

// prove asks the store whose the partitions are, if a retry of a command that no agent took is about to
// leave. Such a retry writes no row, so no commit shows that the partition is still ours; without prove an
// owner that has lost its partitions would go on calling agents. See docs/decisions/008-attempts.md.
func (s *Shard) prove(ctx context.Context) {
	c := s.cycle
	now := s.cfg.Now() // not the cycle's: its commit may have been slow
	wanted := false
	for i := range c.effects {
		x := &c.effects[i]
		wanted = wanted || x.effect.Again && !x.p.lost && x.p.unproven(now)
	}
	if !wanted {
		return
	}
	// A store that does not answer must not keep this cycle from its end: a commit waits for it.
	ctx, cancel := context.WithTimeout(ctx, proveMax)
	defer cancel()
	states, err := s.store.CursorsOf(ctx, slices.Collect(maps.Keys(s.partitions)), "")
	if err != nil {
		if !s.unproven {
			s.log.Warn("the store does not say whose the partitions are: steps that wait for an agent are not tried again meanwhile", "error", err)
		}
		s.unproven = true
		return
	}
	if s.unproven {
		s.log.Info("the store says again whose the partitions are")
	}
	s.unproven = false
	for i := range states {
		switch p := s.partitions[states[i].Partition]; {
		case p == nil:
		case p.asOf().Check(states[i].Epoch, states[i].LastCommit) == nil:
			p.ownedAt = now
		default:
			s.lose(p)
		}
	}
}

// withdrawRetry takes back a retry that may not leave, because nothing proves that the partition is ours or
// because its step is paused; it is tried again later. A retry that a row of this batch has turned into an
// ordinary command counts as out until its complete-by, as the journal says: to take it back would need
// another row, and the batch is committed.
func (s *Shard) withdrawRetry(x *pending) {
	if step := &x.e.task.Steps[x.effect.Step]; step.Awaits != x.effect.Seq || step.Out != x.effect.Seq {
		return
	}
	_ = s.event(x.p, x.e, &core.Event{Kind: core.EventUnserved, At: s.cycle.now, Actor: s.cfg.Node, Seq: x.effect.Seq, Copy: x.effect.Copy})
}
