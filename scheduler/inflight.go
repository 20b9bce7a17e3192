package scheduler

import (
	"container/heap"
	"slices"

	"duly.dev/duly/internal/core"
)

// Tasks in flight come into memory and leave it here, together with the memory they are charged with, their wakes, and the
// parents that they keep in memory.

// add brings a task into memory.
func (p *partition) add(e *entry) {
	before := len(p.tasks)
	p.tasks[e.task.Number] = e
	p.admission.charge(len(p.tasks) - before)
	p.ids[e.task.ID] = e
	e.adoptedBy(p)
	p.weigh(e)
}

// drop removes a task from memory. The store keeps it.
func (p *partition) drop(e *entry) {
	p.occupy(e, core.StepSet{})
	e.leaveAgents(p)
	p.unwake(e)
	p.orphan(e)
	p.unload(e)
	before := len(p.tasks)
	delete(p.tasks, e.task.Number)
	p.admission.charge(len(p.tasks) - before)
	if p.ids[e.task.ID] == e {
		delete(p.ids, e.task.ID)
	}
}

// forget gives back what all tasks of the partition hold: the partition is let go. Further calls on it change
// nothing that is shared.
func (p *partition) forget() {
	p.memory.charge(-p.bytes)
	p.admission.charge(-len(p.tasks))
	for _, e := range p.tasks {
		e.leaveAgents(p)
		p.unwake(e)
	}
	p.memory, p.admission, p.wakes, p.bytes = nil, nil, nil, 0
}

// weigh charges Memory with the task's present size.
func (p *partition) weigh(e *entry) {
	bytes := taskBytes(e.task)
	if e.plan != nil && e.plan.branch {
		for i := range e.task.Steps {
			bytes += int64(len(e.task.Steps[i].Own().Given))
		}
	}
	p.bytes += bytes - e.bytes
	p.memory.charge(bytes - e.bytes)
	e.bytes = bytes
}

// unload gives back what the task was charged with.
func (p *partition) unload(e *entry) {
	p.bytes -= e.bytes
	p.memory.charge(-e.bytes)
	e.bytes = 0
}

// wake wakes a task at an instant, unless it is woken before that: what is due later is found then.
func (p *partition) wake(e *entry, at core.Instant) {
	switch {
	case p.wakes == nil || p.tasks[e.task.Number] != e: // it is forgotten
	case e.wakes == 0:
		e.wakes = at
		heap.Push(p.wakes, e)
	case at < e.wakes:
		e.wakes = at
		heap.Fix(p.wakes, e.wakeAt)
	}
}

// unwake cancels the task's wake.
func (p *partition) unwake(e *entry) {
	if e.wakes != 0 {
		heap.Remove(p.wakes, e.wakeAt)
		e.wakes = 0
	}
}

// adoptedBy links a child to its parent, which stays in memory as long as the child.
func (e *entry) adoptedBy(p *partition) {
	if e.task.Parent == 0 {
		return
	}
	if up := p.tasks[e.task.Parent]; up != nil {
		e.parent = up
		up.kids++
	}
}

// orphan unlinks a child from its parent. If it was the last one in flight the parent may be dropped at the
// end of the round.
func (p *partition) orphan(e *entry) {
	up := e.parent
	if up == nil {
		return
	}
	e.parent = nil
	if up.kids--; up.kids == 0 {
		p.idles(up)
	}
}

// idles has a task dropped at the end of the round, if nothing pins it then.
func (p *partition) idles(e *entry) { p.idle = append(p.idle, e) }

// pinned reports whether a task must stay in memory: it is active and does not rest, its parent has not heard of its end, or
// children of it are in memory or about to be.
func (e *entry) pinned() bool {
	return e.kids > 0 || e.ends > 0 || e.hasQueuedFan() || e.task.Active() && !e.rests()
}

// rests reports whether a task that is active waits for children alone. None of them is in memory, or they pin it.
func (e *entry) rests() bool { return len(e.fans) > 0 && e.kids == 0 && e.task.Rests(e.plan.known()) }

// lookLater lists a task to be looked at again for the children that it may have to bear.
func (p *partition) lookLater(number int64) {
	if !p.listed[number] {
		p.listed[number], p.later = true, append(p.later, number)
	}
}

// finds notes that all tasks on that list are those that a takeover found.
func (p *partition) finds() { p.found = len(p.later) }

// takeLater takes the first n tasks off that list.
func (p *partition) takeLater(n int) []int64 {
	numbers := p.later[:n:n]
	p.later, p.found = p.later[n:], max(0, p.found-n)
	for _, number := range numbers {
		delete(p.listed, number)
	}
	return numbers
}

// dropIdle drops the idle tasks that nothing pins, at the end of a round.
func (p *partition) dropIdle() {
	for len(p.idle) > 0 {
		e := p.idle[0]
		p.idle = p.idle[1:]
		p.leave(e)
	}
	p.idle = p.idle[:0]
	if len(p.kept) == 0 { // most rounds: the window's lock is the node's
		return
	}
	for most := p.keptMost(); len(p.kept) > most; {
		e := p.kept[0]
		p.kept, e.kept = p.kept[1:], false
		if p.tasks[e.task.Number] == e && !e.pinned() {
			p.drop(e)
		}
	}
}

// leave drops a task, if it is still there and nothing pins it. A few that rest are kept: where many wait for an agent that is
// full, each of their children would reload its parent.
func (p *partition) leave(e *entry) {
	switch {
	case p.tasks[e.task.Number] != e || e.pinned():
	case !e.task.Active():
		p.drop(e)
	case !e.kept:
		p.kept, e.kept = append(p.kept, e), true
	}
}

// keptPart is which part of the tasks in flight of a partition may be some that rest.
const keptPart = 64

// keptMost is how many tasks that rest are kept in memory, the oldest of which goes first: none where others need the room, or
// where nothing is to stay in flight.
func (p *partition) keptMost() int {
	if p.noMore || !p.memory.ample() || !p.admission.ample() {
		return 0
	}
	return p.most / keptPart
}

// waiting counts the tasks that have steps with children of which none is in memory.
func (f *inFlight) waiting() (n int) {
	for _, e := range f.tasks {
		if e.kids == 0 && slices.ContainsFunc(e.fans, (*fan).stands) {
			n++
		}
	}
	return n
}

// hasQueuedFan reports whether children of the task are about to be born, undone or counted.
func (e *entry) hasQueuedFan() bool {
	return slices.ContainsFunc(e.fans, func(f *fan) bool { return f.queued && f.stands() })
}
