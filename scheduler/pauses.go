package scheduler

import "duly.dev/duly/internal/core"

// Pauses. A step that an operator has paused is one whose agent has no room: its task parks, and is claimed again when the
// pause is lifted or over. Tasks that are parked for room at the same agent go on: those that are held stand aside.

// pauseBook is the pauses that a shard knows of.
type pauseBook struct {
	all     []core.Pause
	until   core.Instant    // when the first of them is over; 0: none is by itself
	agents  map[string]bool // agents all of whose steps are held, of any task; empty: of any agent
	version int             // rises with each change
}

// set takes the pauses that are not over.
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

// pausesAll reports whether everything at an agent is held.
func (b *pauseBook) pausesAll(agent string) bool { return b.agents[agent] || b.agents[""] }

// planPauses is what the pauses of a version come to for one plan.
type planPauses struct {
	version int
	always  uint64                // steps that are held of any task
	labels  map[core.Label]uint64 // further ones of tasks with a label
}

func (b *pauseBook) of(plan *core.Plan) planPauses {
	is := planPauses{version: b.version}
	for k := range b.all {
		p := &b.all[k]
		var steps uint64
		for i := range plan.Steps {
			if p.Covers(plan, i) {
				steps |= 1 << uint(i)
			}
		}
		switch {
		case steps == 0:
		case p.Label == (core.Label{}):
			is.always |= steps
		default:
			if is.labels == nil {
				is.labels = map[core.Label]uint64{}
			}
			is.labels[p.Label] |= steps
		}
	}
	return is
}

// steps are those of a plan that pauses hold of a task with labels. known is what they came to last.
func (b *pauseBook) steps(plan *core.Plan, known *planPauses, labels []core.Label) uint64 {
	if len(b.all) == 0 {
		return 0
	}
	if known.version != b.version {
		*known = b.of(plan)
	}
	steps := known.always
	if len(known.labels) > 0 {
		for _, l := range labels {
			steps |= known.labels[l]
		}
	}
	return steps
}
