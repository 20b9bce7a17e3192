package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
)

// desk is where changes are written down.
func (n *Node) desk() *operate.Desk { return operate.NewDesk(n.store, n.now, n.log) }

// now is the node's clock.
func (n *Node) now() time.Time { return n.clock.instant().Time() }

func (n *Node) instances(ctx context.Context, agents []string) ([]operate.Instance, bool, error) {
	found, more, err := n.conn.Instances(ctx, agents)
	all := make([]operate.Instance, len(found))
	for i, is := range found {
		all[i] = operate.Instance{Agent: is.Agent, Started: is.Started, Calls: is.Calls, Errors: is.Errors, Busy: is.Busy, Messages: is.Messages}
	}
	return all, more, err
}

// absent is what the live nodes have in flight that waits for agents which are not there.
func (n *Node) absent(ctx context.Context) (all []operate.Absence, more bool, err error) {
	live, known := n.members.get()
	reports, more, err := n.conn.Away(ctx, live)
	for i := range reports {
		more = more || reports[i].More
		for _, a := range reports[i].Agents {
			is := operate.Absence{Agent: a.Agent, Since: a.Since, Tasks: a.Tasks, First: a.First, More: len(a.Steps) == wire.AwayStepsMax}
			for _, s := range a.Steps {
				is.Steps = append(is.Steps, operate.WaitingStep{Type: s.Type, Step: s.Step, Tasks: s.Tasks, NotServed: s.Unable})
			}
			all = append(all, is)
		}
	}
	return all, more || !known, err
}

// awayReport is what this node says of agents that are away.
func (n *Node) awayReport(s *scheduler.Scheduler) wire.AwayReport {
	r := wire.AwayReport{Node: n.cfg.NodeName, Agents: []wire.AwayAgent{}}
	for _, a := range s.Snapshot().Away {
		is := wire.AwayAgent{Agent: a.Agent, Since: a.Since.Time(), Tasks: int64(a.Tasks), First: a.First.Time()}
		slices.SortFunc(a.Steps, func(a, b scheduler.AwayStep) int { return cmp.Compare(b.Tasks, a.Tasks) })
		for _, step := range a.Steps {
			is.Steps = append(is.Steps, wire.AwayStep{Type: step.Type, Step: step.Step, Tasks: int64(step.Tasks), Unable: step.Unable})
		}
		r.Agents = append(r.Agents, is)
	}
	return r
}

// obey has a scheduler hold what operators pause, and place partitions as they want.
func (n *Node) obey(cfg *scheduler.RunConfig) {
	cfg.Pauses = func(ctx context.Context) ([]core.Pause, error) { return readPauses(ctx, n.store) }
	cfg.Breakers = scheduler.BreakerConfig{Store: boundedBreakers{n.store}, Policy: n.cfg.Breakers(), Announce: func() {
		_ = n.conn.AnnouncePauses() // they are read from time to time
	}}
	cfg.Limits = scheduler.LimitConfig{Store: boundedLimits{n.store}, Life: strings.ToLower(rand.Text()[:8])}
	cfg.KeyOf = new(limitKeys).of
	cfg.Wishes = n.watchWishes
}

// timely calls something that has readTimeout for it.
func timely[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return call(ctx)
}

// boundedLimits is scheduler.LimitStore whose calls end in time.
type boundedLimits struct{ store operate.LimitStore }

// Limits implements scheduler.LimitStore.
func (b boundedLimits) Limits(ctx context.Context) ([]core.Limit, error) {
	return timely(ctx, b.store.Limits)
}

// ClaimGrants implements scheduler.LimitStore.
func (b boundedLimits) ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error) {
	return timely(ctx, func(ctx context.Context) ([]core.ClaimedGrant, error) {
		return b.store.ClaimGrants(ctx, agent, now, mine)
	})
}

// CountPlaces implements scheduler.LimitStore.
func (b boundedLimits) CountPlaces(ctx context.Context, holder string, all []core.Counting) error {
	_, err := timely(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, b.store.CountPlaces(ctx, holder, all) })
	return err
}

// Counted implements scheduler.LimitStore.
func (b boundedLimits) Counted(ctx context.Context) ([]core.Counting, error) {
	return timely(ctx, b.store.Counted)
}

// boundedBreakers is scheduler.BreakerStore whose calls end in time.
type boundedBreakers struct{ store operate.BreakerStore }

// Breakers implements scheduler.BreakerStore.
func (b boundedBreakers) Breakers(ctx context.Context) ([]core.Breaker, error) {
	return timely(ctx, b.store.Breakers)
}

// PutBreaker implements scheduler.BreakerStore.
func (b boundedBreakers) PutBreaker(ctx context.Context, is core.Breaker) (bool, error) {
	return timely(ctx, func(ctx context.Context) (bool, error) { return b.store.PutBreaker(ctx, is) })
}

// ReportCalls implements scheduler.BreakerStore.
func (b boundedBreakers) ReportCalls(ctx context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (core.Calls, error) {
	return timely(ctx, func(ctx context.Context) (core.Calls, error) {
		return b.store.ReportCalls(ctx, agent, node, revision, at, calls, since)
	})
}

// readPauses reads what is paused, for a scheduler. One that was stored and cannot be is an error: without its label, say, it
// would hold more.
func readPauses(ctx context.Context, store operate.PauseStore) ([]core.Pause, error) {
	stored, err := timely(ctx, store.Pauses)
	if err != nil {
		return nil, fmt.Errorf("pauses: %w", err)
	}
	all := make([]core.Pause, 0, min(len(stored), operate.PausesMax))
	for _, p := range stored {
		if p.Label != "" {
			if _, err := core.ParseLabel(p.Label); err != nil {
				return nil, fmt.Errorf("pause %s: %w", p.ID, err)
			}
		}
		all = append(all, operate.CorePause(p))
	}
	return all, nil
}

// watchWishes is scheduler.RunConfig.Wishes. A watch that breaks, or whose bucket may have been made again, is begun again.
func (n *Node) watchWishes(ctx context.Context, heard func([]core.Wish)) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, watchEvidenceFor)
		err := n.conn.WatchWishes(bounded, func(wishes []core.Wish) {
			n.report(condWishes, nil)
			heard(wishes)
		})
		over := bounded.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case over:
			continue
		}
		n.report(condWishes, err)
		if pause.For(ctx, time.Second) != nil {
			return nil
		}
	}
}

// hearPauses tells a scheduler when pauses, breakers or limits have changed, until the subscription is stopped.
func (n *Node) hearPauses(s *scheduler.Scheduler) (*natsbus.Subscription, error) {
	return n.conn.OnPausesChanged(func() {
		s.PausesChanged()
		s.BreakersChanged()
		s.LimitsChanged()
	})
}
