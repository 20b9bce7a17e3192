package scheduler

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Pauses. A step that an operator has paused is one whose agent has no room: its task parks, and is claimed again when the
// pause is lifted or over. Tasks that are parked for room at the same agent go on, so a look for them passes over those
// that are held: each is loaded once after a change of the pauses.

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

// holds reports whether everything at an agent is held.
func (b *pauseBook) holds(agent string) bool { return b.agents[agent] || b.agents[""] }

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

// paused has a bit for every step of a task that a pause holds.
func (s *Shard) paused(e *entry) uint64 {
	if len(s.pauses.all) == 0 || e.plan == nil {
		return 0
	}
	if e.plan.pauses.version != s.pauses.version {
		e.plan.pauses = s.pauses.of(e.plan.plan)
	}
	steps := e.plan.pauses.always
	if len(e.plan.pauses.labels) > 0 {
		for _, l := range e.task.Labels {
			steps |= e.plan.pauses.labels[l]
		}
	}
	return steps
}

// held reports whether a pause holds a task that is parked.
func (s *Shard) held(e *entry) bool {
	if len(s.pauses.all) == 0 || e.plan == nil {
		return false
	}
	i := e.task.Parked(e.plan.plan)
	return i >= 0 && s.paused(e)&(1<<uint(i)) != 0
}

// applyPauses takes the pauses of the mail, lets go of those that are over, and makes the round look at all that is
// parked when there is a change.
func (s *Shard) applyPauses() {
	c := &s.cycle
	switch {
	case c.mail.Pauses != nil:
		s.pauses.set(*c.mail.Pauses, c.now)
		c.mail.Pauses = nil
	case s.pauses.until != 0 && c.now >= s.pauses.until:
		s.pauses.set(s.pauses.all, c.now)
	default:
		return
	}
	for _, p := range s.partitions {
		for _, slot := range p.agents {
			slot.park, slot.passed, slot.behind = true, 0, nil
			if slot.order != nil { // some of it was not noted
				slot.order.unread = true
				slot.order.again()
			}
		}
		s.reblock(p)
	}
}

const (
	// behindMax bounds the tasks of an agent that are remembered one by one: beyond it all that is parked is looked at again.
	behindMax = 4096
	// So many parked tasks of an agent are loaded at a time while something is paused: four for each that has room, because
	// some may be held, within these bounds.
	heldLookLeast, heldLookMost = 32, 256
)

// parkedForRoom notes that a task waits for room at an agent. Where the look for such tasks has passed its number, over
// tasks that are held, it is remembered by itself.
func (p *partition) parkedForRoom(slot *agentSlot, number int64) {
	slot.park, slot.fresh = true, true
	p.putBehind(slot, number)
}

func (p *partition) putBehind(slot *agentSlot, number int64) {
	switch {
	case number > slot.passed || slices.Contains(slot.behind, number):
	case len(slot.behind) >= behindMax:
		slot.passed, slot.behind = 0, nil
	default:
		slot.behind = append(slot.behind, number)
	}
}

// pass notes that all parked tasks of an agent up to a number have been looked at, less those from the first on that were
// kept for later.
func (p *partition) pass(slot *agentSlot, to int64, kept []int64) {
	for _, number := range kept {
		if number > slot.passed {
			to = min(to, number-1)
		}
	}
	slot.passed = max(slot.passed, to)
}

// takeBehind takes up to limit of the tasks that were passed and wait for room.
func (p *partition) takeBehind(slot *agentSlot, limit int) []int64 {
	n := min(limit, len(slot.behind))
	numbers := slices.Clone(slot.behind[:n])
	slot.behind = slices.Delete(slot.behind, 0, n)
	return numbers
}

// PausesEvery is how often a scheduler reads the pauses, when it is not told that they have changed.
const PausesEvery = 5 * time.Second

// PausesChanged makes the scheduler read the pauses again soon. It is safe for concurrent use.
func (s *Scheduler) PausesChanged() {
	s.pausesTold.set()
}

// SetPauses replaces the pauses that all shards know of. It is safe for concurrent use.
func (s *Scheduler) SetPauses(pauses []core.Pause) {
	for _, c := range s.committers {
		c.in.Pauses(pauses)
	}
}

// pausesTurns read the pauses.
func (s *Scheduler) pausesTurns() turns {
	var known *[]core.Pause
	return turns{what: TroublePauses, told: s.pausesTold, every: func() time.Duration { return PausesEvery }, turn: func(ctx context.Context) error {
		pauses, err := s.cfg.Pauses(ctx)
		if err == nil && (known == nil || !slices.Equal(pauses, *known)) {
			known = &pauses
			s.SetPauses(pauses)
		}
		return err
	}}
}
