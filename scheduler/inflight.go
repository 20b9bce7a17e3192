package scheduler

import (
	"container/heap"
	"slices"

	"duly.dev/duly/internal/core"
)

// Tasks in flight: they come into memory and leave it here, with what they hold of it, their wakes, and the parents that
// they keep in memory.

func (p *partition) add(e *entry) {
	before := len(p.tasks)
	p.tasks[e.task.Number] = e
	p.admission.charge(len(p.tasks) - before)
	p.ids[e.task.ID] = e
	e.adoptedBy(p)
	p.weigh(e)
}

// drop forgets a task in flight.
func (p *partition) drop(e *entry) {
	p.occupy(e, 0)
	e.letGo(p)
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

// forget gives back what all its tasks held: the partition is dropped, and what is still
// done to it counts no more.
func (p *partition) forget() {
	p.memory.charge(-p.bytes)
	p.admission.charge(-len(p.tasks))
	for _, e := range p.tasks {
		e.letGo(p)
		p.unwake(e)
	}
	p.memory, p.admission, p.wakes, p.bytes = nil, nil, nil, 0
}

// weigh takes note of what a task in flight holds now.
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

// unload gives back what a task held.
func (p *partition) unload(e *entry) {
	p.bytes -= e.bytes
	p.memory.charge(-e.bytes)
	e.bytes = 0
}

// wake wakes a task in flight at an instant, unless it is woken before: what is due later is found then.
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

// unwake forgets when a task is to be woken.
func (p *partition) unwake(e *entry) {
	if e.wakes != 0 {
		heap.Remove(p.wakes, e.wakeAt)
		e.wakes = 0
	}
}

// adoptedBy makes a child in flight one that holds its parent there.
func (e *entry) adoptedBy(p *partition) {
	if e.task.Parent == 0 {
		return
	}
	if up := p.tasks[e.task.Parent]; up != nil {
		e.parent = up
		up.kids++
	}
}

// orphan lets go of the parent of a child that is let go, at the end of the round, if nothing else holds it.
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

// idles has a task let go at the end of the round, if nothing holds it.
func (p *partition) idles(e *entry) { p.idle = append(p.idle, e) }

// pinned reports whether a task stays in memory: it is at work, or children of it are there or about to be.
func (e *entry) pinned() bool {
	return e.task.Active() || e.kids > 0 || e.ends > 0 || e.hasQueuedFan()
}

// letGo lets go of parents whose last child has been let go.
func (p *partition) letGo() {
	for len(p.idle) > 0 {
		e := p.idle[0]
		p.idle = p.idle[1:]
		if p.tasks[e.task.Number] == e && !e.pinned() {
			p.drop(e)
		}
	}
	p.idle = p.idle[:0]
}

// hasQueuedFan reports whether children of the task are about to be born, undone or counted.
func (e *entry) hasQueuedFan() bool {
	return slices.ContainsFunc(e.fans, func(f *fan) bool { return f.queued && f.stands() })
}
