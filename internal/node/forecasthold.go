package node

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// holding is what holds steps back at present, whatever was learned before.
type holding struct {
	agents map[string]*operate.Agent
	pauses []core.Pause
	planOf func(taskType string, version int64) *core.Plan
	now    core.Instant
}

// hold is what holds one step back. Its zero value is nothing.
type hold struct {
	why   string
	until core.Instant // 0: without an end
	open  bool         // whether it goes on then, or before, is not known
}

// holding reads what holds steps back.
func (n *Node) holding(ctx context.Context, now core.Instant) (*holding, error) {
	agents, err := n.agents.Agents(ctx)
	if err != nil {
		return nil, err
	}
	h := &holding{agents: map[string]*operate.Agent{}, planOf: n.plans.Plan, now: now}
	for i := range agents {
		h.agents[agents[i].Name] = &agents[i]
	}
	h.pauses, err = readPauses(ctx, n.store)
	return h, err
}

// over reports whether a hold is worse than another: without an end before one that may end, and that before one that will.
func (w hold) over(other hold) bool {
	rank := func(x hold) int {
		switch {
		case x.why == "":
			return 0
		case x.open:
			return 2
		case x.until == 0:
			return 3
		}
		return 1
	}
	return rank(w) > rank(other) || rank(w) == 1 && rank(other) == 1 && w.until > other.until
}

// childDepth is how many plans of children of children are looked at.
const childDepth = 3

// of is the worst that holds a step of tasks with labels; running: it has a command out, which no pause and no breaker holds.
func (h *holding) of(plan *core.Plan, i int, labels []core.Label, running bool, depth int) (worst hold) {
	step := &plan.Steps[i]
	take := func(w hold) {
		if w.over(worst) {
			worst = w
		}
	}
	if step.Kind.Parent() && depth < childDepth {
		if child := h.planOf(step.Child, 0); child != nil {
			for j := range child.Steps {
				w := h.of(child, j, nil, false, depth+1)
				w.open = w.open || w.why != "" && (running || step.Kind == core.EachStep || child.Steps[j].When != "")
				take(w)
			}
		}
	}
	if agent := h.agents[step.Agent]; agent != nil && step.Kind == core.CallStep {
		if agent.Gone {
			take(hold{why: say.Of("held.agent", "step", step.Name, "agent", step.Agent)})
		}
		if slices.ContainsFunc(agent.Steps, func(s operate.WaitingStep) bool { return s.NotServed && s.Type == plan.Name && s.Step == step.Name }) {
			take(hold{why: say.Of("held.not-served", "step", step.Name, "agent", step.Agent)})
		}
		if !running {
			take(h.breaker(step, &agent.Breaker))
		}
	}
	if running {
		return worst
	}
	for k := range h.pauses {
		p := &h.pauses[k]
		if !p.Over(h.now) && p.Covers(plan, i) && (p.Label == (core.Label{}) || slices.Contains(labels, p.Label)) {
			take(hold{why: say.Of("held.pause", "step", step.Name, "until", untilWord(p.Until)), until: p.Until})
		}
	}
	return worst
}

// breaker is how the breaker of its agent holds a step.
func (h *holding) breaker(step *core.Step, b *operate.Breaker) hold {
	until := core.Instant(0)
	if !b.Until.IsZero() {
		until = core.InstantOf(b.Until)
	}
	switch {
	case b.State == core.BreakerOpen && b.Forced:
		return hold{why: say.Of("held.forced", "step", step.Name, "agent", step.Agent, "by", b.By, "until", untilWord(until)), until: until}
	case b.State != core.BreakerClosed:
		return hold{why: say.Of("held.breaker", "step", step.Name, "agent", step.Agent, "state", b.State), until: until, open: true}
	}
	return hold{}
}

func untilWord(until core.Instant) string {
	if until == 0 {
		return ""
	}
	return say.Of("held.until", "at", until.Time().UTC().Format(time.RFC3339))
}

// outlook is what is told of one task.
type outlook struct {
	at     int     // its first step that is not over; -1: it is undone already, or its plan cannot be read
	chance float64 // to make its deadline
	known  bool
	held   string // what holds it
}

// outlookOf is what is told of a task of the sample.
func (f *forecasts) outlookOf(plan *core.Plan, t *operate.OpenTask, h *holding) outlook {
	left := t.Deadline.Sub(h.now)
	switch {
	case t.State == core.StateUndoing:
		return outlook{at: -1, known: true}
	case plan == nil:
		return outlook{at: -1, known: left <= 0}
	}
	progress, running, first := progressOf(plan, t, h.now)
	o := outlook{at: first, known: true}
	ends := false // without its deadline being made
	for i := range progress {
		if progress[i].Over {
			continue
		}
		w := h.of(plan, i, t.Labels, running.Has(i), 0)
		if w.why == "" {
			continue
		}
		// A step that may be skipped is not known to be held, unless it has begun or its task is parked at it.
		sure := plan.Steps[i].When == "" || progress[i].Begun || t.State == core.StatePending && i == first
		never := !w.open && w.until == 0 || w.until > t.Deadline
		switch {
		case sure && never:
			if !ends {
				o.held = w.why
			}
			ends = true
		case sure && !w.open:
			progress[i].NotBefore = w.until.Sub(h.now)
		default:
			o.known = false
		}
		if o.held == "" {
			o.held = w.why
		}
	}
	switch {
	case ends || left <= 0:
		o.known = true
	case o.known:
		o.chance, o.known = f.book.Chance(plan, progress, left, h.now)
	}
	return o
}
