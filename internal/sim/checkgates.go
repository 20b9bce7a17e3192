package sim

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Progress. In calm weather what can go on goes on. The referee derives from the state of the gates (pauses, breakers,
// limits, rates, keys, windows) whether a parked task could go on, and from what its owner has in mind what wakes it.

const (
	calmAfter = 5 * time.Second        // the last fault weather is calm
	patience  = 5 * time.Second        // within which what can go on does
	lookEvery = 250 * time.Millisecond // at what waits
	mailWaits = 20 * time.Millisecond  // at most, after a commit of several tasks
)

// waiting is a parked task that nothing holds, as far as the referee knows.
type waiting struct {
	agent string
	seq   int64
	since core.Instant
}

// calm reports whether weather has been calm for long enough: no fault is drawn, and none lasts.
func (w *World) calm() bool {
	if w.storm || w.load != nil {
		return false
	}
	from := w.calmFrom
	for _, s := range []span{w.ails.away, w.ails.full, w.ails.broken, w.ails.failing, w.refusing, w.others, w.full} {
		from = max(from, s.until)
	}
	from = max(from, w.down, w.eventsDown)
	for _, n := range w.nodes {
		from = max(from, n.thaw)
	}
	return w.now >= from.Add(calmAfter)
}

// watchParked looks at what is parked again and again.
func (w *World) watchParked() {
	w.every(lookEvery, func() {
		if w.calm() {
			w.checkProgress()
		} else {
			clear(w.gates.parked)
		}
	})
}

// checkProgress holds parked tasks to what keeps them: nothing of it for long.
func (w *World) checkProgress() {
	still := map[rowKey]waiting{}
	for p := range w.cfg.Partitions {
		for _, r := range w.Store.byNumber[p] {
			if r.task.State != core.StatePending || r.task.WaitsFor == "" || !w.open(r) {
				continue
			}
			if w.cfg.Both && w.ratePatience(r.task.WaitsFor) > 0 {
				continue // what left by commits that are lost counts for the rate, and is not known here
			}
			key := rowKey{p, r.task.Number}
			is := waiting{r.task.WaitsFor, r.task.Seq, w.now}
			if was, ok := w.gates.parked[key]; ok && was.agent == is.agent && was.seq == is.seq {
				is.since = was.since
			}
			still[key] = is
			if since := max(is.since, w.lastMove(&r.task, is.agent)); w.now.Sub(since) > patience+w.ratePatience(is.agent) {
				w.wrong(p, r.task.ID, "it has been parked at %s since %s: no pause, breaker or limit holds it, and nothing goes on there", is.agent, w.stamp(since))
			}
		}
	}
	w.gates.parked = still
}

// open reports whether no pause and no breaker holds a parked task, its owner may have more in flight, and it does not wait
// for tasks of its plan that have begun.
func (w *World) open(r *row) bool {
	if b, ok := w.Store.breakers[r.task.WaitsFor]; ok {
		if state, _ := b.At(w.now); state != core.BreakerClosed {
			return false
		}
	}
	plan, step, t := w.parkedStep(r)
	if step < 0 || t.Deadline <= w.now {
		return false
	}
	for _, p := range w.pauses {
		if !p.Over(w.now) && p.Holds(plan, step, t) {
			return false
		}
	}
	if w.pausedPlace(t, r.task.WaitsFor) || w.staleGrant(t, r.task.WaitsFor) {
		return false
	}
	owner := w.ownerOf(t.Partition)
	if owner == nil || owner.shardOf(t.Partition).Load(t.Partition) >= owner.inFlight {
		return false
	}
	return hasBegun(t) || !w.begunWait(plan, t)
}

// pausedPlace reports whether a place that a task may wait for is that of a command which waits for the agent, and which a pause
// holds back meanwhile.
func (w *World) pausedPlace(t *core.Task, agent string) bool {
	if len(w.boundsOf(t, agent)) == 0 {
		return false
	}
	for p := range w.cfg.Partitions {
		for _, r := range w.Store.byNumber[p] {
			if r.task.State != core.StateProcessing {
				continue
			}
			plan, o, err := w.Store.replay(r)
			if err != nil || plan == nil {
				continue
			}
			for i := range o.Steps {
				if plan.Steps[i].Agent == agent && slices.ContainsFunc(w.pauses, func(p core.Pause) bool { return !p.Over(w.now) && p.Holds(plan, i, o) }) {
					return true
				}
			}
		}
	}
	return false
}

// staleGrant reports whether a grant that came back with the database is in the way: its holder had given it up, so nobody
// renews it, and it lasts until its end.
func (w *World) staleGrant(t *core.Task, agent string) bool {
	if w.backs == 0 {
		return false
	}
	const renewed = 24 * time.Second // before its end: a grant of a key lasts for half a minute, and is renewed each two seconds
	for _, b := range w.boundsOf(t, agent) {
		if b.of.keyed && slices.ContainsFunc(w.Store.grants[b.of], func(g core.Grant) bool { return !g.Idle() && g.Until > w.now && g.Until < w.now.Add(renewed) }) {
			return true
		}
	}
	return false
}

// parkedStep is the step for which a task is parked, by its journal; -1: none is known.
func (w *World) parkedStep(r *row) (*core.Plan, int, *core.Task) {
	plan, t, err := w.Store.replay(r)
	if err != nil || plan == nil {
		return nil, -1, nil
	}
	return plan, t.Parked(plan), t
}

// hasBegun reports whether a step of a task has begun.
func hasBegun(t *core.Task) bool {
	return slices.ContainsFunc(t.Steps, func(s core.StepState) bool {
		return s.Status != core.StepWaiting || s.Attempt > 0 || s.Effect.Possible()
	})
}

// begunWait reports whether tasks that have begun wait for another agent of a task's plan: new ones may have to wait for them.
func (w *World) begunWait(plan *core.Plan, t *core.Task) bool {
	return slices.ContainsFunc(w.Store.byNumber[t.Partition], func(r *row) bool {
		if r.task.State != core.StatePending || r.task.WaitsFor == "" || r.task.WaitsFor == t.WaitsFor {
			return false
		}
		_, step, o := w.parkedStep(r)
		return step >= 0 && hasBegun(o) && slices.ContainsFunc(plan.Steps, func(s core.Step) bool { return s.Agent == r.task.WaitsFor })
	})
}

// ownerOf is the node that owns a partition and knows it; nil: none does.
func (w *World) ownerOf(p int) *node {
	st := w.Store.partition(p)
	for _, n := range w.nodes {
		if epoch, owns := n.shardOf(p).Owns(p); owns && epoch == st.Epoch && n.shardOf(p).LastCommit(p) == st.LastCommit {
			return n
		}
	}
	return nil
}

// lastMove is when something last went on that a parked task may have waited for: at its agent in its partition, and,
// where that has a limit, anywhere, or a change of that.
func (w *World) lastMove(t *core.Task, agent string) core.Instant {
	last := max(w.gates.moved[placeOf(t.Partition, agent)], w.gates.changed[agent])
	for _, b := range w.boundsOf(t, agent) {
		last = max(last, w.gates.moved[b.of], w.gates.owed[b.of])
	}
	return last
}

// placeOf is what moves at an agent in a partition are kept by.
func placeOf(partition int, agent string) grantsOf {
	return grantsOf{agent: agent, keyed: true, key: "partition " + string(rune('0'+partition))}
}

// ratePatience is how much longer a rate may keep a call back, which all committers share.
func (w *World) ratePatience(agent string) time.Duration {
	l := w.Store.limits[agent]
	wait := time.Duration(0)
	for _, rate := range []int64{l.RateMilli, l.KeyRateMilli} {
		if rate > 0 {
			wait = max(wait, time.Duration(2*len(w.nodes))*1000*time.Second/time.Duration(rate))
		}
	}
	return wait
}

// owe notes that a do has left again without asking its rate, which keeps others back for as long, whichever holder has how
// much.
func (w *World) owe(t *core.Task, agent string) {
	for _, b := range w.boundsOf(t, agent) {
		if b.limit.RateMilli > 0 {
			w.gates.owed[b.of] = max(w.gates.owed[b.of], w.now).Add(time.Duration(2*len(w.nodes)) * 1000 * time.Second / time.Duration(b.limit.RateMilli))
		}
	}
}

// noteMove notes that something goes on at the agents that a row is about, and holds the end of a parked task to what kept it.
func (w *World) noteMove(t *core.Task, j *core.Record) {
	key := rowKey{t.Partition, t.Number}
	if is, ok := w.gates.parked[key]; ok && j.Kind == core.KindExpired {
		if since := max(is.since, w.lastMove(t, is.agent)); w.now.Sub(since) > patience+w.ratePatience(is.agent) {
			w.wrong(t.Partition, t.ID, "row %d ends it for want of time, and nothing has held it at %s since %s", j.Seq, is.agent, w.stamp(since))
		}
	}
	plan := planBook{w}.Plan(t.Type, t.PlanVersion)
	for _, step := range []int{j.Step, j.Next} {
		if plan == nil || step < 0 || step >= len(plan.Steps) || plan.Steps[step].Kind != core.CallStep {
			continue
		}
		agent := plan.Steps[step].Agent
		w.gates.moved[placeOf(t.Partition, agent)] = w.now
		for _, b := range w.boundsOf(t, agent) {
			w.gates.moved[b.of] = w.now
		}
	}
}

// checkTried holds an attempt that is over for want of an answer to its command: it has left. In calm weather nothing keeps it.
func (w *World) checkTried(r *row, j *core.Record) {
	if j.Kind != core.KindOverdue || j.Step < 0 || w.backs > 0 || !w.calm() {
		return
	}
	for i := int(j.Seq) - 2; i >= 0; i-- {
		is := &r.journal[i]
		if is.Next != j.Step || is.Undo {
			continue
		}
		heard := is.Kind == core.KindStarted && is.Step == is.Next // of a retry that has left before
		short := is.Due.Sub(is.At) < slow                          // its time may be over when it is committed
		if is.At > w.calmFrom && !heard && !short && kindIn(w.Store.planOf(r), j.Step) == core.CallStep && w.sends[commandRef{r.task.Partition, r.task.Number, is.Seq, r.commits[i]}] == 0 {
			w.wrong(r.task.Partition, r.task.ID, "row %d counts a try whose command, of row %d, has never left", j.Seq, is.Seq)
		}
		return
	}
}

// checkWakers holds the owner of parked tasks, between two steps of its loop and with no mail, to the gates: whatever holds a
// task, something wakes it.
func (n *node) checkWakers(l *loop) {
	w := n.w
	if due := l.c.Due(); due != 0 && due <= n.now().Add(mailWaits) || n.twin {
		return
	}
	for p := range w.cfg.Partitions {
		if n.loopOf(p) != l || w.ownerOf(p) != n {
			continue
		}
		for _, r := range w.Store.byNumber[p] {
			if r.task.State != core.StatePending || r.task.WaitsFor == "" {
				continue
			}
			is, ok := n.shardOf(p).Wakers(p, r.task.WaitsFor, r.task.Number)
			if !ok || is.Round || is.Key {
				continue
			}
			plan, step, t := w.parkedStep(r)
			paused := step >= 0 && slices.ContainsFunc(n.heard, func(p core.Pause) bool { return p.Holds(plan, step, t) })
			if step >= 0 && !(paused && is.Pause) {
				w.wrong(p, t.ID, "it is parked at %s, and nothing makes %s look at it again: paused %v, wakers %+v", t.WaitsFor, n.name, paused, is)
			}
		}
	}
}
