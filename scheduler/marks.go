package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// What tasks in flight have at their agents' gates: places and calls of limits, and parts of trials.

// working are the steps that have places, see core.Task.Occupies, and those that wait for their agents.
func (e *entry) working() (out, waits uint64) {
	for i, a := range e.plan.agents {
		if a == nil || i >= len(e.task.Steps) {
			continue
		}
		if e.task.Occupies(e.plan.plan, i) {
			out |= 1 << uint(i)
		}
		if e.task.Steps[i].Awaits != 0 {
			waits |= 1 << uint(i)
		}
	}
	return out, waits
}

// takePlaces counts the commands of a task that are out, at their agents and for its keys. What is over keeps its place until
// that is committed.
func (b *agentBook) takePlaces(e *entry) {
	b.keysOf(e)
	working, waits := e.working()
	e.noPlace = waits & (e.noPlace | ^working)
	fresh := working &^ (e.places | e.noPlace)
	each(fresh, func(i int) { e.place(i) })
	e.places, e.round.places = e.places|fresh, e.round.places|fresh
}

// keysOf finds the keys of a task at its agents, unless they are known.
func (b *agentBook) keysOf(e *entry) {
	if e.keys != nil || !b.keyed || e.plan == nil {
		return
	}
	e.keys = noKeys
	for i, a := range e.plan.agents {
		if a == nil || a.keys == nil {
			continue
		}
		if len(e.keys) == 0 {
			e.keys = make([]string, len(e.plan.agents))
		}
		if first := slices.Index(e.plan.agents, a); first < i {
			e.keys[i] = e.keys[first]
		} else if b.keyOf != nil {
			if key, err := b.keyOf(b.limited[a.name].Key, e.task); err == nil { // else it is the empty one
				e.keys[i] = key
			}
		}
	}
}

// noKeys are those of a task none of whose agents has any.
var noKeys = []string{}

// keyAt is the key that counts for a step's commands; nil: none does.
func (e *entry) keyAt(step int) *keyCalls {
	if name, a := e.keyName(step); a != nil {
		return a.key(name)
	}
	return nil
}

// keyName is the same by its name, at its agent; nil: none counts.
func (e *entry) keyName(step int) (string, *agentCalls) {
	if len(e.keys) == 0 {
		return "", nil
	}
	if a := e.plan.agents[step]; a != nil && a.keys != nil {
		return e.keys[step], a
	}
	return "", nil
}

func (e *entry) place(i int) {
	e.plan.agents[i].out++
	if k := e.keyAt(i); k != nil {
		k.out++
		k.report()
	}
}

// giveBack gives up places of a task.
func (e *entry) giveBack(places uint64) {
	each(places, func(i int) {
		e.plan.agents[i].out--
		if k := e.keyAt(i); k != nil {
			k.end()
		}
	})
	e.places &^= places
}

// settle gives back what a task does not use any more: its rows are committed. It reports whether places are free now.
func (e *entry) settle() (free bool) {
	if e.places|e.trial == 0 {
		return false
	}
	working, _ := e.working()
	over, trial := e.places&^working, e.trial
	e.giveBack(over)
	e.leaveTrial(working)
	return over != 0 || e.trial != trial
}

// spend takes a do command off the rates of its agent.
func (e *entry) spend(step int, now core.Instant) {
	if a := e.plan.agents[step]; a != nil {
		a.spend(now)
	}
	if k := e.keyAt(step); k != nil {
		k.spend(now)
	}
}

// unspend takes that back: it does not leave.
func (e *entry) unspend(step int) {
	if a := e.plan.agents[step]; a != nil {
		a.unspend()
	}
	if k := e.keyAt(step); k != nil {
		k.unspend()
		k.report()
	}
}

// leaveTrial forgets that steps of a task are tried, but for some.
func (e *entry) leaveTrial(but uint64) {
	each(e.trial&^but, func(i int) { e.plan.agents[i].trialOut-- })
	e.trial &= but
}

// letGo forgets what a task of a partition has at its agents: it is let go, and leaves behind what it has out.
func (e *entry) letGo(p *partition) {
	e.leaveTrial(0)
	each(e.places, func(i int) { e.plan.agents[i].leave(p.id, p.epoch, e.keyAt(i)) })
	e.places, e.noPlace = 0, 0
}

// replan has the task go on by a plan, at whose agents it is counted again. It returns what it had at those of the one before.
func (e *entry) replan(to *planRef) (was planMarks) {
	was = planMarks{e.plan, e.marks, e.round.spent}
	e.leaveTrial(0)
	e.uncount()
	e.noPlace, e.pausedRetries, e.round.spent = 0, 0, 0
	e.plan = to
	return was
}

// planMarks are what a task has by a plan.
type planMarks struct {
	plan *planRef
	marks
	spent uint64 // calls of rates in this round
}

// planBack takes replan back.
func (e *entry) planBack(was planMarks) {
	e.plan, e.marks, e.round.spent = was.plan, was.marks, was.spent
	each(was.places, func(i int) { e.place(i) })
	each(was.trial, func(i int) { e.plan.agents[i].trialOut++ })
}

// uncount forgets what it has out, and its keys.
func (e *entry) uncount() {
	e.giveBack(e.places)
	e.keys = nil
}

// uncount forgets what its tasks have out, and their keys.
func (p *partition) uncount() {
	for _, e := range p.tasks {
		if e.plan != nil {
			e.uncount()
		}
	}
}

// listen takes note of answers that may have been lost: what is silent may have been answered.
func (b *agentBook) listen(all []*partition) {
	heard := int64(1)
	if b.hears != nil {
		heard = b.hears()
	}
	if heard == b.heard {
		return
	}
	b.heard = heard
	for _, p := range all {
		for _, e := range p.tasks {
			e.heardAll = 0
		}
	}
}
