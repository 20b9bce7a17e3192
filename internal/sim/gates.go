package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Gates. In a world of gates operators change limits, pauses and versions of plans while tasks of all classes and tenants
// run, in the storm and after it. What they do is drawn from a source of its own, so that other worlds stay as they are.

// gates are what operators do, and since when it is so.
type gates struct {
	rand    *rand.Rand
	changed map[string]core.Instant // when the limit of an agent has changed last
	moved   map[grantsOf]core.Instant
	owed    map[grantsOf]core.Instant // until when a rate makes up for retries
	parked  map[rowKey]waiting
	wrote   map[rowKey]core.Instant // when a row was last committed
}

// gatesMove is how long after the storm operators still change gates.
const gatesMove = 6 * time.Second

func (g *gates) upTo(d time.Duration) time.Duration { return time.Duration(g.rand.Int64N(int64(d))) }

// drawGates sets limits in a world of gates, and makes the store fail often: what waits for a place has to find it
// whatever becomes of a commit.
func (w *World) drawGates() {
	w.gates = gates{changed: map[string]core.Instant{}, moved: map[grantsOf]core.Instant{}, owed: map[grantsOf]core.Instant{}, parked: map[rowKey]waiting{}, wrote: map[rowKey]core.Instant{}}
	if !w.cfg.Gates {
		return
	}
	w.gates.rand = rand.New(rand.NewPCG(w.cfg.Seed, 6))
	w.odds[ReadFails], w.odds[CommitFails] = 0.12, 0.15
	l := w.drawLimit()
	w.Store.limits = map[string]core.Limit{l.Agent: l, steady: {Agent: steady, Concurrent: 1, Revision: 1}}
}

// steady is the agent whose limit nobody changes: its places are counted all the time.
const steady = "agent.reserve"

// drawLimit draws a limit of any other agent.
func (w *World) drawLimit() core.Limit {
	r := w.gates.rand
	others := []string{"agent.credit", "agent.charge", "agent.ship", "agent.mail"}
	l := core.Limit{Agent: others[r.IntN(len(others))], Revision: 1}
	kind := r.IntN(8)
	if kind < 5 {
		l.Concurrent = 1 + r.IntN(3)
	}
	if kind == 4 || kind == 5 {
		l.RateMilli = 4000 + r.Int64N(20_000)
	}
	if kind > 5 || r.IntN(2) == 0 {
		l.Key, l.KeyConcurrent = keyExpressions[r.IntN(len(keyExpressions))], 1+r.IntN(2)
	}
	return l
}

// moveGates lets operators change gates.
func (w *World) moveGates() {
	if !w.cfg.Gates {
		return
	}
	r := w.gates.rand
	for range 5 + r.IntN(10) {
		at := w.gates.upTo(w.cfg.Storm + gatesMove)
		switch r.IntN(8) {
		case 0, 1, 2:
			l, gone := w.drawLimit(), r.IntN(4) == 0
			w.after(at, func() { w.setLimit(l, gone) })
		case 3, 4, 5, 6:
			p, until := w.drawGatePause(), w.gates.upTo(8*time.Second)
			w.after(at, func() {
				p.Until = w.now.Add(until + time.Minute) // no two are the same
				w.setPauses(append(slices.Clone(w.pauses), p))
				w.after(until+1, func() {
					w.setPauses(slices.DeleteFunc(slices.Clone(w.pauses), func(o core.Pause) bool { return o == p }))
				})
			})
		case 7:
			plan, step, within := r.IntN(len(w.roots)), r.Uint32(), 200*time.Millisecond+w.gates.upTo(200*time.Millisecond)
			w.after(at, func() { w.putVersion(w.roots[plan], step, within) })
		}
	}
}

// drawGatePause draws a pause of any kind, by class and tenant too.
func (w *World) drawGatePause() (p core.Pause) {
	r := w.gates.rand
	plan := w.plans[r.IntN(len(w.plans))]
	step := plan.Steps[r.IntN(len(plan.Steps))]
	switch r.IntN(8) {
	case 0:
	case 1:
		p.Type = plan.Name
	case 2:
		p.Type, p.Step = plan.Name, step.Name
	case 3, 4:
		p.Agent = step.Agent
	case 5:
		p.Label = core.Label{Key: core.PriorityLabel, Value: core.Class(r.IntN(core.Classes)).String()}
	case 6:
		p.Label = core.Label{Key: "tenant", Value: string(rune('a' + r.IntN(3)))}
	case 7:
		p.Type, p.Agent, p.Label = plan.Name, step.Agent, core.Label{Key: "tier", Value: "gold"}
	}
	return p
}

// otherAgent is where the next version of a plan has a step of an agent.
var otherAgent = map[string]string{
	"agent.credit": "agent.mail", "agent.mail": "agent.credit",
	"agent.reserve": "agent.charge", "agent.charge": "agent.ship", "agent.ship": "agent.reserve",
}

// setLimit is an operator who sets or removes the limit of an agent.
func (w *World) setLimit(l core.Limit, gone bool) {
	m := w.Store
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.limits)
	was := m.limits[l.Agent]
	was.Agent, l.Revision = l.Agent, was.Revision+1
	if all[l.Agent] = l; gone {
		delete(all, l.Agent)
	}
	m.dropGrants(&was, all)
	m.limits = all
	w.gates.changed[l.Agent] = w.now
	w.tell("", -1, "the limit of %s is %+v, removed: %v", l.Agent, l, gone)
}

// putVersion stores the next version of a plan, in which a step has another agent and another time.
func (w *World) putVersion(was *core.Plan, step uint32, within time.Duration) {
	for _, p := range w.plans {
		if p.Name == was.Name && p.Version > was.Version {
			was = p
		}
	}
	next := *was
	next.Version++
	next.Steps = slices.Clone(was.Steps)
	s := &next.Steps[int(step)%len(next.Steps)]
	s.Agent, s.CompleteBy = otherAgent[s.Agent], within.Truncate(time.Millisecond)
	w.addPlan(next)
	for _, a := range w.agents {
		a.serveStep(*s)
	}
	w.tell("", -1, "%s has version %d: %s is at %s", next.Name, next.Version, s.Name, s.Agent)
	for _, n := range w.nodes {
		n.after(w.delay(), func() {
			for _, l := range n.loops {
				l.c.Inbox().PlansChanged()
				l.wake()
			}
		})
	}
}
