package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// What tasks in flight have taken at their agents' gates: places of limits, calls of rates, parts of trials.

// working returns the steps that need a place (see core.Task.Occupies), and those that wait for their agent.
func (e *entry) working() (out, waits core.StepSet) {
	var isOut, isWaiting core.StepBuilder
	for i, a := range e.plan.agents {
		if a == nil || i >= len(e.task.Steps) {
			continue
		}
		if e.task.Occupies(e.plan.plan, i) {
			isOut.Add(i)
		}
		if e.task.Steps[i].Awaits != 0 {
			isWaiting.Add(i)
		}
	}
	return isOut.Set(), isWaiting.Set()
}

// takePlaces gives the task a place for each command that is out and has none. Places are given up by settle,
// once it is committed that the command is over.
func (b *agentBook) takePlaces(e *entry) {
	b.keysOf(e)
	working, waits := e.working()
	e.noPlace = waits.And(e.noPlace).Or(waits.AndNot(working))
	fresh := working.AndNot(e.places.Or(e.noPlace))
	fresh.Each(e.place)
	e.places, e.round.places = e.places.Or(fresh), e.round.places.Or(fresh)
}

// keysOf computes the task's keys at its agents, once.
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
			if key, err := b.keyOf(b.limited[a.name].Key, e.task); err == nil { // if it fails the key is empty
				e.keys[i] = key
			}
		}
	}
}

// noKeys stands for a task none of whose agents has keys; nil stands for keys that are not computed yet.
var noKeys = []string{}

// keyAt returns the key that a step's commands count for; nil: none.
func (e *entry) keyAt(step int) *keyCalls {
	if name, a := e.keyName(step); a != nil {
		return a.key(name)
	}
	return nil
}

// keyName returns the name of the key that a step's commands count for, and its agent. Unlike keyAt it makes
// no entry for the key. nil: no key counts.
func (e *entry) keyName(step int) (string, *agentCalls) {
	if len(e.keys) == 0 {
		return "", nil
	}
	if a := e.plan.agents[step]; a != nil && a.keys != nil {
		return e.keys[step], a
	}
	return "", nil
}

// place takes a place of the limit of a step's agent, and of its key.
func (e *entry) place(i int) {
	e.plan.agents[i].out++
	if k := e.keyAt(i); k != nil {
		k.out++
		k.report()
	}
}

// giveBack gives up the places of these steps.
func (e *entry) giveBack(places core.StepSet) {
	places.Each(func(i int) {
		e.plan.agents[i].out--
		if k := e.keyAt(i); k != nil {
			k.end()
		}
	})
	e.places = e.places.AndNot(places)
}

// leftAt is when the command of a step left that is out, or, unless it is sure, until when at the latest; 0: that is not known.
// Rows of other steps may have come since, and retries have none.
func (e *entry) leftAt(step int) (at core.Instant, sure bool) {
	s := &e.task.Steps[step]
	switch {
	case e.heardAll.Has(step) && s.Status != core.StepUndoing: // a do, with all of the step's time
		return s.Due.Add(-e.plan.plan.Steps[step].CompleteBy), true
	case s.Awaits != 0:
		return 0, false
	}
	return e.task.UpdatedAt, !e.plan.branch
}

// settle gives up what the task no longer uses; its rows are committed. It reports whether that made room for
// others.
func (e *entry) settle() (free bool) {
	if e.places.Empty() && e.trial.Empty() {
		return false
	}
	working, _ := e.working()
	over, trial := e.places.AndNot(working), e.trial
	e.giveBack(over)
	e.leaveTrial(working)
	return !over.Empty() || !e.trial.Equal(trial)
}

// spend charges the rates of a step's agent and key with a do command.
func (e *entry) spend(step int, now core.Instant) {
	if a := e.plan.agents[step]; a != nil {
		a.spend(now)
	}
	if k := e.keyAt(step); k != nil {
		k.spend(now)
	}
}

// unspend takes spend back: the command does not leave.
func (e *entry) unspend(step int) {
	if a := e.plan.agents[step]; a != nil {
		a.unspend()
	}
	if k := e.keyAt(step); k != nil {
		k.unspend()
		k.report()
	}
}

// leaveTrial takes all steps but these out of their breakers' trials.
func (e *entry) leaveTrial(but core.StepSet) {
	e.trial.AndNot(but).Each(func(i int) { e.plan.agents[i].trialOut-- })
	e.trial = e.trial.And(but)
}

// leaveAgents releases what the task has at its agents. Commands that are out may still be at work, so the shard
// keeps their places as left behind (left.go).
func (e *entry) leaveAgents(p *partition) {
	e.leaveTrial(core.StepSet{})
	e.places.Each(func(i int) { e.plan.agents[i].leave(p.id, p.epoch, e.keyAt(i)) })
	e.places, e.noPlace = core.StepSet{}, core.StepSet{}
}

// replan makes the task go on by another plan, and gives up what it had at the agents of the one before. It
// returns that, for planBack. The caller has it counted again.
func (e *entry) replan(to *planRef) (was planMarks) {
	was = planMarks{e.plan, e.marks, e.round.spent}
	e.leaveTrial(core.StepSet{})
	e.uncount()
	e.noPlace, e.pausedRetries, e.round.spent = core.StepSet{}, core.StepSet{}, core.StepSet{}
	e.plan = to
	return was
}

// planMarks is what a task had at the agents of a plan.
type planMarks struct {
	plan *planRef
	marks
	spent core.StepSet // calls of rates in this round
}

// planBack takes replan back.
func (e *entry) planBack(was planMarks) {
	e.plan, e.marks, e.round.spent = was.plan, was.marks, was.spent
	was.places.Each(e.place)
	was.trial.Each(func(i int) { e.plan.agents[i].trialOut++ })
}

// uncount gives up the task's places and forgets its keys.
func (e *entry) uncount() {
	e.giveBack(e.places)
	e.keys = nil
}

// uncount gives up the places of all tasks of the partition, and their keys, because a limit has changed.
func (p *partition) uncount() {
	for _, e := range p.tasks {
		if e.plan != nil {
			e.uncount()
		}
	}
}

// listen clears heardAll of all tasks if replies may have been lost since the last call: a command that seems
// to be unanswered may have been answered.
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
			e.heardAll = core.StepSet{}
		}
	}
}
