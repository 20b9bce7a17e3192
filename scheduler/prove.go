package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// proveMax bounds how long the store may take to say whose the partitions are.
const proveMax = time.Second

// prove asks the store whose the partitions are, if a retry of a step that waits for its
// agent is about to leave. No commit comes before such a command, so without this an
// owner that has lost its partitions would go on calling agents. docs/decisions/008-attempts.md.
func (s *Shard) prove(ctx context.Context) {
	c := s.cycle
	now := s.cfg.Now() // the cycle may have begun long ago: commits can be slow
	wanted := false
	for i := range c.effects {
		x := &c.effects[i]
		wanted = wanted || x.effect.Again && !x.p.lost && now > x.p.ownedAt.Add(core.OwnedFor)
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

// withdrawRetry gives a retry back that may not leave, for want of proof or because its step is paused: it is tried again later.
// One that a row of this very batch has made a command like any other is out, as the journal says, until its complete-by:
// to give it back would be a row, and the batch is committed.
func (s *Shard) withdrawRetry(x *pending) {
	if step := &x.e.task.Steps[x.effect.Step]; step.Awaits != x.effect.Seq || step.Out != x.effect.Seq {
		return
	}
	_ = s.event(x.p, x.e, &core.Event{Kind: core.EventUnserved, At: s.cycle.now, Actor: s.cfg.Node, Seq: x.effect.Seq, Copy: x.effect.Copy})
}
