package scheduler

import "duly.dev/duly/internal/core"

// Pauses. An operator pauses steps by agent, type, step or label. A paused step is treated as if its agent were full: its
// task parks, and is claimed when the pause is lifted or over. Other tasks parked at the same agent go on; the paused ones
// stand aside.

// pauseBook holds the pauses that a shard knows of.
type pauseBook struct {
	all []core.Pause
	// until is when the first pause ends by itself; 0: none does.
	until core.Instant
	// agents are those whose every step is paused for every task; "" stands for all agents.
	agents map[string]bool
	// version rises with each change, so that planPauses can tell when it is out of date.
	version int
}

// set replaces the pauses, leaving out those that are over.
func (b *pauseBook) set(pauses []core.Pause, now core.Instant) {
	b.all, b.until, b.agents = nil, 0, map[string]bool{}
	b.version++
	for _, p := range pauses {
		if p.Over(now) {
			continue
		}
		b.all = append(b.all, p)
		b.until = earlier(b.until, p.Until)
		if p.Type == "" && p.Step == "" && p.Label == (core.Label{}) {
			b.agents[p.Agent] = true
		}
	}
}

// pausesAll reports whether every step at an agent is paused, whatever the task.
func (b *pauseBook) pausesAll(agent string) bool { return b.agents[agent] || b.agents[""] }

// planPauses caches which steps of one plan are paused, for one version of the pauses.
type planPauses struct {
	version int
	// always are the steps paused for every task; labels are further ones, paused for tasks with that label.
	always core.StepSet
	labels map[core.Label]core.StepSet
}

// of computes planPauses for a plan.
func (b *pauseBook) of(plan *core.Plan) planPauses {
	is := planPauses{version: b.version}
	for k := range b.all {
		p := &b.all[k]
		var covers core.StepBuilder
		for i := range plan.Steps {
			if p.Covers(plan, i) {
				covers.Add(i)
			}
		}
		switch steps := covers.Set(); {
		case steps.Empty():
		case p.Label == (core.Label{}):
			is.always = is.always.Or(steps)
		default:
			if is.labels == nil {
				is.labels = map[core.Label]core.StepSet{}
			}
			is.labels[p.Label] = is.labels[p.Label].Or(steps)
		}
	}
	return is
}

// steps returns which steps of a plan are paused for a task with these labels. known is the cache; it is
// brought up to date if it is of an earlier version.
func (b *pauseBook) steps(plan *core.Plan, known *planPauses, labels []core.Label) core.StepSet {
	if len(b.all) == 0 {
		return core.StepSet{}
	}
	if known.version != b.version {
		*known = b.of(plan)
	}
	steps := known.always
	if len(known.labels) > 0 {
		for _, l := range labels {
			steps = steps.Or(known.labels[l])
		}
	}
	return steps
}
