package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// Several steps of one task may be out at once, each at its own agent. So whatever is counted by agent (places in windows,
// commands without an agent, branches without room) is kept as a set of steps in each entry.

// present returns three sets of steps: those that count in their agents' windows, because they are out or
// between two attempts and not paused; those whose agent is not there; and those that their agent says it
// does not serve.
func (e *entry) present() (at, awaits, unable core.StepSet) {
	if e.plan == nil || !e.task.Active() {
		return at, awaits, unable
	}
	var isAt, isAway, isUnable core.StepBuilder
	processing := e.task.State == core.StateProcessing
	for i := range e.task.Steps {
		s := &e.task.Steps[i]
		if s.Status != core.StepWaiting && s.Out == 0 && s.Awaits == 0 || e.plan.slots[i] == nil {
			continue
		}
		paused := s.Awaits != 0 && e.pausedRetries.Has(i) && s.Status != core.StepUndoing
		if !paused && (s.Out != 0 || processing && (e.task.Occupies(e.plan.plan, i) || s.Attempt > 0 && s.Due != 0)) {
			isAt.Add(i)
		}
		if s.Awaits != 0 && s.Out == 0 && s.Said == 0 {
			isAway.Add(i)
		}
		if s.Awaits != 0 && s.Said == core.CodeUnable {
			isUnable.Add(i)
		}
	}
	return isAt.Set(), isAway.Set(), isUnable.Set()
}

// occupy makes the task count in exactly these steps' windows.
func (p *partition) occupy(e *entry, at core.StepSet) {
	var isAway core.StepBuilder
	at.Each(func(i int) {
		if s := &e.task.Steps[i]; s.Awaits != 0 && s.Said == 0 && s.Status != core.StepUndoing {
			isAway.Add(i)
		}
	})
	away := isAway.Set()
	p.count(e, e.at, at, p.window, func(slot *agentSlot) *int { return &slot.load })
	p.count(e, e.away, away, mayAwait(p.window), func(slot *agentSlot) *int { return &slot.away })
	e.at, e.away = at, away
}

// count keeps a count of the slots in step with the steps that the task has there. At most there may be so many.
func (p *partition) count(e *entry, was, is core.StepSet, most int, of func(*agentSlot) *int) {
	was.AndNot(is).Each(func(i int) {
		n := of(e.plan.slots[i])
		if *n == most {
			p.full--
		}
		*n--
	})
	is.AndNot(was).Each(func(i int) {
		n := of(e.plan.slots[i])
		*n++
		if *n == most {
			p.full++
		}
	})
}

// room is how many more tasks of the partition may be in flight at the agent. Those that find it away stay in memory and retry
// until it answers. More than bounds says must not, or a few agents that are away would fill the partition.
func (slot *agentSlot) room(window int) int {
	return max(0, min(window-slot.load, slot.bound(window)-slot.away))
}

// bound is how many tasks may wait in memory for the agent: all of its window, unless one found it away and it has not answered
// since. So it is also when all of them have ended: the next ones may find it away as well.
func (slot *agentSlot) bound(window int) int {
	if len(slot.waiting) == 0 {
		return window
	}
	return mayAwait(window)
}

// mayAwait is how many tasks of a partition may wait in memory for an agent that is away.
func mayAwait(window int) int { return max(1, window/awayPart) }

// awayPart: see mayAwait.
const awayPart = 8

// wait lists the task at the agents that are not there, so that it retries when one answers.
func (p *partition) wait(e *entry, awaits core.StepSet) {
	awaits.AndNot(e.waits).Each(func(i int) {
		slot := e.plan.slots[i]
		if !e.waits.Meets(e.plan.here[i]) {
			slot.waiting = append(p.shed(slot.waiting, func(e *entry) bool {
				over := e.missing(slot, 0) < 0
				if over {
					e.waitsNoMore(e.plan.at(slot))
				}
				return over
			}), e)
		}
		e.waits.Add(i)
	})
}

// shed removes tasks from a list of those that wait at an agent, before the list grows: those that have left memory, and those
// for which over returns true, which unmarks them. While an agent takes nothing, nothing else removes them. The room left for as
// many again makes that cheap.
func (p *partition) shed(list []*entry, over func(*entry) bool) []*entry {
	if len(list) < cap(list) {
		return list
	}
	list = slices.DeleteFunc(list, func(e *entry) bool { return p.tasks[e.task.Number] != e || e.plan == nil || over(e) })
	return slices.Grow(list, len(list)+1)
}

// waitsNoMore unmarks steps; the caller removes the task from the slot's list.
func (e *entry) waitsNoMore(steps core.StepSet) { e.waits = e.waits.AndNot(steps) }

// lack lists the task at agents that do not serve its step, for the report of what is missing (Away).
func (p *partition) lack(e *entry, unable core.StepSet) {
	unable.AndNot(e.lacks).Each(func(i int) {
		slot := e.plan.slots[i]
		if !e.lacks.Meets(e.plan.here[i]) {
			slot.unable = append(p.shed(slot.unable, func(e *entry) bool {
				over := e.missing(slot, core.CodeUnable) < 0
				if over {
					e.lacks = e.lacks.AndNot(e.plan.at(slot))
				}
				return over
			}), e)
		}
		e.lacks.Add(i)
	})
}

// missing returns a step of the task that waits because no agent of the slot takes its command. said is 0 for
// agents that are not there, or the code by which one said that it does not serve the step. -1: there is
// none.
func (e *entry) missing(slot *agentSlot, said int16) int {
	for i := range e.task.Steps {
		s := &e.task.Steps[i]
		if s.Awaits != 0 && s.Said == said && (s.Out == 0 || s.Out == s.Awaits) && e.plan != nil && e.plan.slots[i] == slot {
			return i
		}
	}
	return -1
}

// blocked returns the steps that are ready and cannot begin because their agents have no room or they are
// paused.
func (e *entry) blocked(now core.Instant) core.StepSet {
	// In a chain none can, unless the database went back: then an earlier step is done again while a later one is out.
	if e.plan == nil || !e.plan.branch && e.task.WentBackAt == 0 {
		return core.StepSet{}
	}
	return e.task.Blocked(e.plan.plan, now)
}
