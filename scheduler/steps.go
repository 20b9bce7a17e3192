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
		held := e.held&(1<<uint(i)) != 0 && s.Awaits != 0 && s.Status != core.StepUndoing
		if !held && (s.Out != 0 || processing && (e.task.Occupies(e.plan.plan, i) || s.Attempt > 0 && s.Due != 0)) {
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

// serve lets the tasks that wait for an agent try again in this round: it has answered. Those that a pause holds go on
// waiting.
func (q *queues) serve(slot *agentSlot) {
	kept := slot.waiting[:0]
	for _, e := range slot.waiting {
		if e.plan == nil { // the database refuses its rows
			continue
		}
		here := e.plan.at(slot)
		_, awaits, _ := e.present()
		if awaits &= here; awaits != 0 && e.task.State == core.StateProcessing && !q.gate.anyMay(e, awaits) {
			kept = append(kept, e)
			continue
		}
		e.waits &^= here
		q.served = append(q.served, e)
	}
	clear(slot.waiting[len(kept):])
	slot.waiting = kept
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

// block keeps in mind which branches of a task wait for room.
func (g *gate) block(p *partition, e *entry) {
	if g.open(p) {
		return
	}
	each(e.blocked(g.now)&^e.blocks, func(i int) {
		slot := e.plan.slots[i]
		if e.blocks&e.plan.at(slot) == 0 {
			slot.blocked = append(slot.blocked, e)
		}
		e.blocks |= 1 << uint(i)
		if slot.load < p.window {
			g.looks.wake(g.now)
		}
	})
}

// unblock lets branches that wait for room at an agent begin, while there is some. full: the batch is.
func (s *Shard) unblock(p *partition, slot *agentSlot) (full bool) {
	for n := len(slot.blocked); n > 0 && s.gate.mayLeave(slot.ask()).n != 0; n-- {
		if !s.cycle.roomy() {
			return true
		}
		e := slot.blocked[0]
		slot.blocked = slices.Delete(slot.blocked, 0, 1)
		if e.plan == nil { // the database refuses its rows
			continue
		}
		here := e.plan.at(slot)
		waits := e.blocked(s.cycle.now) & here
		if p.tasks[e.task.Number] == e && waits != 0 && !s.gate.anyMay(e, waits) {
			slot.blocked = append(slot.blocked, e)
			continue
		}
		e.blocks &^= here
		if p.tasks[e.task.Number] != e || waits == 0 {
			continue
		}
		if s.cycle.makes(e) { // its row is in this very batch
			s.gate.block(p, e)
			return true
		}
		s.cycle.use(p, e)
		_ = s.claimTask(p, e)
	}
	return false
}
