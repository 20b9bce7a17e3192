package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Run owns and serves partitions until ctx ends. Then it drains: it takes up nothing new, waits up to
// DrainMax for the commands that are out, commits, and lets its partitions go. It returns early only on a bug
// (core.ErrForeignRow).
func (s *Scheduler) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, t := range s.duties() {
		if !s.runUntilOK(ctx, t) {
			wg.Wait()
			return nil
		}
		wg.Go(func() { s.runDuty(ctx, t) })
	}
	for _, c := range s.committers {
		wg.Go(func() {
			if err := c.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Go(func() {
		if err := s.members.Watch(ctx, s.SetLive); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("watch the live nodes: %w", err))
		}
	})
	wg.Go(func() {
		if err := s.wires.Evidence(ctx, s.Heard); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("watch the evidence of commits: %w", err))
		}
	})
	if s.cfg.Wishes != nil {
		first := make(chan struct{})
		told := sync.OnceFunc(func() { close(first) })
		wg.Go(func() {
			if err := s.cfg.Wishes(ctx, func(wishes []core.Wish) { s.SetWishes(wishes); told() }); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("watch where partitions are to be: %w", err))
			}
		})
		awaitFirst(ctx, first)
	}
	wg.Go(func() { s.purge(ctx) })
	s.keepPlaced(ctx)
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Cause(parent)) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("scheduler %s: %w", s.cfg.Node, err)
	}
	return nil
}

// duties returns the duties that this node's configuration asks for.
func (s *Scheduler) duties() (all []duty) {
	if s.cfg.Pauses != nil {
		all = append(all, s.pausesDuty())
	}
	if s.cfg.Limits.Store != nil {
		all = append(all, s.limitDuty())
	}
	if s.cfg.Breakers.Enabled() {
		all = append(all, s.breakerDuty())
	}
	return all
}

// runUntilOK runs a duty until it succeeds, before any partition is taken over: a node that has just started
// must not send what operators hold back. It reports false if ctx ends first.
func (s *Scheduler) runUntilOK(ctx context.Context, t duty) bool {
	for {
		err := t.run(ctx)
		s.cfg.reportUnlessEnded(ctx, t.trouble, err)
		if err == nil {
			return true
		}
		if !waited(ctx, nil, retakeAfter) {
			return false
		}
	}
}

// runDuty runs a duty periodically until ctx ends. While it fails, the shards go on with what was read last.
func (s *Scheduler) runDuty(ctx context.Context, t duty) {
	for waited(ctx, t.kick, t.every()) {
		s.cfg.reportUnlessEnded(ctx, t.trouble, t.run(ctx))
		if !waited(ctx, nil, t.least) {
			return
		}
	}
}

// wishesPatience is how long a starting scheduler waits for the operators' wishes. Without them it would take partitions over
// that are pinned elsewhere, only to let them go.
const wishesPatience = 2 * time.Second

// awaitFirst waits until the wishes were heard once, or for wishesPatience.
func awaitFirst(ctx context.Context, first <-chan struct{}) {
	timer := time.NewTimer(wishesPatience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-first:
	case <-timer.C:
	}
}
