package scheduler

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// The duty that looks after breakers: it reads them, changes those whose calls ask for it, and tells the shards.

// Breakers returns the breakers that the shards were told of: all that are not closed. It is safe for
// concurrent use.
func (s *Scheduler) Breakers() []core.Breaker {
	s.breakers.mu.Lock()
	defer s.breakers.mu.Unlock()
	return s.breakers.sent
}

// BreakersChanged makes the scheduler read the breakers soon. It is safe for concurrent use.
func (s *Scheduler) BreakersChanged() { s.breakers.kick.set() }

// breakerDuty runs BreakerTurn. A trial may ask for it often, so it has a short least pause.
func (s *Scheduler) breakerDuty() duty {
	return duty{trouble: TroubleBreakers, run: s.BreakerTurn, kick: s.breakers.kick, every: s.BreakerPause, least: breakerSoon}
}

// BreakerTurn reads the breakers, changes those whose calls ask for it, and tells the shards. It runs after
// BreakerPause, or sooner when BreakersChanged is called. It must not run concurrently with itself.
func (s *Scheduler) BreakerTurn(ctx context.Context) error {
	cfg := &s.cfg.Breakers
	stored, err := cfg.Store.Breakers(ctx)
	if err != nil {
		return fmt.Errorf("breakers: %w", err)
	}
	s.tellBreakers(stored, true)
	for _, d := range s.breakers.due(s.cfg.Now(), cfg.Policy.Window) {
		if err := s.judgeBreaker(ctx, d); err != nil {
			return fmt.Errorf("breaker of agent %s: %w", d.is.Agent, err)
		}
	}
	return nil
}

// tellBreakers tells the shards of breakers, if those that are not closed have changed. all: stored are all
// there are.
func (s *Scheduler) tellBreakers(stored []core.Breaker, all bool) {
	if open, changed := s.breakers.learn(stored, all); changed {
		for _, c := range s.committers {
			c.in.Breakers(open)
		}
	}
}

// judgeBreaker changes one breaker if the calls that all nodes have counted ask for it.
func (s *Scheduler) judgeBreaker(ctx context.Context, d dueBreaker) error {
	cfg, now := &s.cfg.Breakers, s.cfg.Now()
	state, _ := d.is.At(now)
	if state == core.BreakerClosed && cfg.Policy.SharePct > 0 {
		all, err := cfg.Store.ReportCalls(ctx, d.is.Agent, s.cfg.Node, d.is.Revision, now, d.calls, d.since)
		if err != nil {
			return err
		}
		d.calls = all
	}
	next, changed := d.is.Next(&cfg.Policy, now, d.calls, d.trial)
	if !changed {
		return nil
	}
	stored, err := cfg.Store.PutBreaker(ctx, next)
	if err != nil {
		return err
	}
	if !stored { // another node was first
		s.breakers.kick.set()
		return nil
	}
	s.tellBreakers([]core.Breaker{next}, false)
	if cfg.Announce != nil {
		cfg.Announce()
	}
	if next.State == core.BreakerOpen {
		s.breakers.openings.Add(1)
	}
	switch {
	case state == core.BreakerClosed:
		s.log.Warn("the breaker of an agent opens: what would begin there is parked", "agent", next.Agent, "why", next.Reason, "until", next.Until.Time())
	case next.State == core.BreakerClosed:
		s.log.Info("the breaker of an agent is closed again", "agent", next.Agent, "why", next.Reason)
	}
	return nil
}

// BreakerPause returns how long after a turn the next one is, if nothing asks for one sooner.
func (s *Scheduler) BreakerPause() time.Duration {
	window := s.cfg.Breakers.Policy.Window
	if s.breakers.failing(s.cfg.Now(), window) {
		return max(breakerLeast, window/windowParts)
	}
	return PausesEvery
}
