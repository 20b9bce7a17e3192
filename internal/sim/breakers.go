package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Breakers. Each node takes its turns; what one has stored the others read late.

// breakerPolicy has small bounds, so that breakers open in most worlds.
var breakerPolicy = core.BreakerPolicy{SharePct: 50, CallsMin: 4, Window: time.Second, OpenFor: 200 * time.Millisecond, OpenMax: 5 * time.Second}

// reported is what a node has counted of an agent.
type reported struct {
	revision int64
	at       core.Instant
	calls    core.Calls
}

// Breakers returns the breakers that there are, the newest first.
func (m *MemStore) Breakers(context.Context) ([]core.Breaker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []core.Breaker
	for _, b := range m.breakers {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b core.Breaker) int {
		return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(a.Agent, b.Agent))
	})
	return all, nil
}

// PutBreaker stores a breaker that follows the stored one.
func (m *MemStore) PutBreaker(_ context.Context, b core.Breaker) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.breakers[b.Agent].Revision != b.Revision-1 {
		return false, nil
	}
	if m.breakers == nil {
		m.breakers = map[string]core.Breaker{}
	}
	m.breakers[b.Agent] = b
	return true, nil
}

// ReportCalls stores what a node has counted, and sums up what all have.
func (m *MemStore) ReportCalls(_ context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (core.Calls, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reports == nil {
		m.reports = map[[2]string]reported{}
	}
	m.reports[[2]string{agent, node}] = reported{revision, at, calls}
	var sum core.Calls
	for key, r := range m.reports {
		if key[0] == agent && r.revision == revision && r.at >= since {
			sum.Add(r.calls)
		}
	}
	return sum, nil
}

// Breakers may not be to be read.
func (s nodeStore) Breakers(ctx context.Context) ([]core.Breaker, error) {
	return read(s, func() ([]core.Breaker, error) { return s.MemStore.Breakers(ctx) })
}

// PutBreaker may have happened though the caller hears of a failure.
func (s nodeStore) PutBreaker(ctx context.Context, b core.Breaker) (bool, error) {
	done, err := read(s, func() (bool, error) { return s.MemStore.PutBreaker(ctx, b) })
	if done {
		s.n.w.tell("", -1, "the breaker of %s is %s until %d: %s", b.Agent, b.State, b.Until, b.Reason)
		if b.State == core.BreakerOpen {
			s.n.w.note(BreakerOpened)
		}
	}
	if err == nil && s.n.w.fault(CommitAnswerLost) {
		err = errFault
	}
	return done, err
}

// ReportCalls may fail.
func (s nodeStore) ReportCalls(ctx context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (core.Calls, error) {
	return read(s, func() (core.Calls, error) {
		return s.MemStore.ReportCalls(ctx, agent, node, revision, at, calls, since)
	})
}

// watchBreakers lets the node look after breakers in this life.
func (n *node) watchBreakers() {
	wait := func() time.Duration {
		return min(n.sched.BreakerPause(), 200*time.Millisecond) + n.w.upTo(50*time.Millisecond)
	}
	n.takeTurns(&n.judge, scheduler.TroubleBreakers, n.sched.BreakerTurn, wait(), wait)
}

// takeTurns lets the node take a turn again and again, after a first wait, as the goroutines of a scheduler do.
func (n *node) takeTurns(a *activity, what scheduler.Trouble, turn func(context.Context) error, first time.Duration, wait func() time.Duration) {
	n.after(first, func() {
		if n.frozen() > 0 || a.busy {
			n.takeTurns(a, what, turn, 20*time.Millisecond, wait)
			return
		}
		a.run(func() { n.report(what, turn(context.Background())) }, func() {
			for _, l := range n.loops {
				l.wake()
			}
			n.takeTurns(a, what, turn, wait(), wait)
		})
	})
}

// checkShut holds a row that issues a do to the breakers that its committer knew when its step began: none of its agent was
// open.
func (w *World) checkShut(t *core.Task, j *core.Record) {
	heardRetry := j.Kind == core.KindStarted && j.Step == j.Next // of a retry that left before
	if j.Next < 0 || j.Undo || heardRetry || slices.ContainsFunc(w.nodes, func(n *node) bool { return n.twin }) {
		return
	}
	plan := planBook{w}.Plan(t.Type, t.PlanVersion)
	owner := w.Store.partition(t.Partition).Owner
	for _, n := range w.nodes {
		if n.name != owner || plan == nil {
			continue
		}
		now := n.now().Add(2 * skewMax) // its clock may have been set back
		for _, b := range n.loopOf(t.Partition).shut {
			if plan.Steps[j.Next].Kind == core.CallStep && b.Agent == plan.Steps[j.Next].Agent && b.Limit(now) == 0 && slices.Contains(n.sched.Breakers(), b) {
				w.wrong(t.Partition, t.ID, "row %d starts step %s, and %s knows that the breaker of its agent is open", j.Seq, plan.Steps[j.Next].Name, n.name)
			}
		}
	}
}
