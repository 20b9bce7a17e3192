package scheduler

import (
	"context"
	"time"
)

// turns are what is read again and again for all shards: pauses, breakers, limits.
type turns struct {
	what  Trouble // that a turn which fails is
	turn  func(context.Context) error
	told  signal               // asks for a turn
	every func() time.Duration // how long after a turn the next one is, if none is asked for
	least time.Duration        // between two turns
}

// turns are those of what this node's configuration has.
func (s *Scheduler) turns() (all []turns) {
	if s.cfg.Pauses != nil {
		all = append(all, s.pausesTurns())
	}
	if s.cfg.Limits.Store != nil {
		all = append(all, s.limitTurns())
	}
	if s.cfg.Breakers.Enabled() {
		all = append(all, s.breakerTurns())
	}
	return all
}

// first takes turns until one succeeds, before anything is taken over: what operators hold back must not leave because a
// node has just started. It reports false when ctx ends before.
func (s *Scheduler) first(ctx context.Context, t turns) bool {
	for {
		err := t.turn(ctx)
		s.reportUnlessEnded(ctx, t.what, err)
		if err == nil {
			return true
		}
		if !waited(ctx, nil, retakeAfter) {
			return false
		}
	}
}

// keep takes turns until ctx ends. While they fail, what was read last counts.
func (s *Scheduler) keep(ctx context.Context, t turns) {
	for waited(ctx, t.told, t.every()) {
		s.reportUnlessEnded(ctx, t.what, t.turn(ctx))
		if !waited(ctx, nil, t.least) {
			return
		}
	}
}

// waited waits for a time, or for a signal before, and reports false when ctx has ended.
func waited(ctx context.Context, told signal, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-told:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
