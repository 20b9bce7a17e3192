package scheduler

import (
	"math/bits"
	"slices"

	"duly.dev/duly/internal/core"
)

// Several steps of a task may be out, each at an agent of its own: what a partition knows of agents' windows, of tasks
// that wait for an agent, and of branches that wait for room while others of their task are out is a set of steps for
// each task.

// each calls yield with the steps of a set.
func each(steps uint64, yield func(i int)) {
	for ; steps != 0; steps &= steps - 1 {
		yield(bits.TrailingZeros64(steps))
	}
}

// present are the steps of a task that count in their agents' windows, which are out or between two attempts and not held by a
// pause, those that wait for an agent which is not there, and those whose agent does not serve them.
func (e *entry) present() (at, awaits, unable uint64) {
	if e.plan == nil || !e.task.Active() {
		return 0, 0, 0
	}
	processing := e.task.State == core.StateProcessing
	for i := range e.task.Steps {
		s := &e.task.Steps[i]
		if s.Status != core.StepWaiting && s.Out == 0 && s.Awaits == 0 || e.plan.slots[i] == nil {
			continue
		}
		paused := e.pausedRetries&(1<<uint(i)) != 0 && s.Awaits != 0 && s.Status != core.StepUndoing
		if !paused && (s.Out != 0 || processing && (e.task.Occupies(e.plan.plan, i) || s.Attempt > 0 && s.Due != 0)) {
			at |= 1 << uint(i)
		}
		if s.Awaits != 0 && s.Out == 0 && s.Said == 0 {
			awaits |= 1 << uint(i)
		}
		if s.Awaits != 0 && s.Said == core.CodeUnable {
			unable |= 1 << uint(i)
		}
	}
	return at, awaits, unable
}

// occupy moves a task to those places in the agents' windows.
func (p *partition) occupy(e *entry, at uint64) {
	each(e.at&^at, func(i int) {
		slot := e.plan.slots[i]
		if slot.load == p.window {
			p.full--
		}
		slot.load--
	})
	each(at&^e.at, func(i int) {
		slot := e.plan.slots[i]
		slot.load++
		if slot.load == p.window {
			p.full++
		}
	})
	e.at = at
}

// wait keeps in mind that a task waits for agents that are not there.
func (p *partition) wait(e *entry, awaits uint64) {
	each(awaits&^e.waits, func(i int) {
		slot := e.plan.slots[i]
		if e.waits&e.plan.at(slot) == 0 {
			slot.waiting = append(slot.waiting, e)
		}
		e.waits |= 1 << uint(i)
	})
}

// waitsNoMore forgets steps that waited for an agent.
func (e *entry) waitsNoMore(steps uint64) { e.waits &^= steps }

// lack keeps in mind that a task waits for agents that do not serve its step.
func (p *partition) lack(e *entry, unable uint64) {
	each(unable&^e.lacks, func(i int) {
		slot := e.plan.slots[i]
		if len(slot.unable) == cap(slot.unable) { // those that wait no more make room
			slot.unable = slices.DeleteFunc(slot.unable, func(e *entry) bool {
				over := e.missing(slot, core.CodeUnable) < 0
				if over && e.plan != nil {
					e.lacks &^= e.plan.at(slot)
				}
				return over
			})
		}
		if e.lacks&e.plan.at(slot) == 0 {
			slot.unable = append(slot.unable, e)
		}
		e.lacks |= 1 << uint(i)
	})
}

// missing is a step of the task that waits for the agent of a slot because none takes its command: none is there, or one has
// said by its code that it does not serve the step. -1: none does.
func (e *entry) missing(slot *agentSlot, said int16) int {
	for i := range e.task.Steps {
		s := &e.task.Steps[i]
		if s.Awaits != 0 && s.Said == said && (s.Out == 0 || s.Out == s.Awaits) && e.plan != nil && e.plan.slots[i] == slot {
			return i
		}
	}
	return -1
}

// blocked are the steps of a task in flight that could begin if their agents had room, or no pause held them.
func (e *entry) blocked(now core.Instant) uint64 {
	// In a chain none can, unless the database went back: then an earlier step is done again while a later one is out.
	if e.plan == nil || !e.plan.branch && e.task.WentBackAt == 0 {
		return 0
	}
	return e.task.Blocked(e.plan.plan, now)
}
