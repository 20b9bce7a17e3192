package scheduler

import (
	"container/heap"
	"slices"

	"duly.dev/duly/internal/core"
)

// Finish first. Under overload someone waits, and whom a free place is given to decides how many tasks are processed in
// time: a task that has begun and is not finished was work for nothing. So parked tasks are claimed in this order:
//
//  1. those that have begun, by deadline;
//  2. those that have not, flow by flow (flows.go) and by deadline within one: not while more begun tasks wait for an
//     agent of their plan than a quarter of its window, which keeps it busy until the next ones come;
//  3. those that would not make their deadline any more, as far as is known. They are undone when it has passed.
//
// A new submission does not overtake what is parked at its agents. What a pause holds, or the key of a limit, stands aside
// (aside.go). A task joins the order when the row that parked it is committed.
//
// The order is kept in memory, up to parkedMax tasks for each agent of a partition. Where more wait, a flow that has less
// than its part of that room takes it from the one that has most. The others, and after a takeover all, are read from the
// store in parts: when half of the room is free, while they have not been read once, and while a flow has tasks there
// alone. So every flow goes on, whatever comes by others. Bench: full-agents, at 130 % of what the agents can do.

// parkedAt is the order of what is parked at one agent.
type parkedAt struct {
	begun, late byDeadline
	fresh       flows
	aside       aside
	known       map[int64]bool // all of their numbers; true: it could use a place of its key
	ofKey       map[string]int // how many there are of each key
	beyond      bool           // the store may have more
	unread      bool           // it has not been read once: what it has is of any flow
	from        int64          // up to this number it has been asked
	pass        int64          // how often it has been read from the first number on, this time included
	missed      int64          // the pass in which a task was last not noted
	behindBegun bool           // something that has not begun waits for others that have
}

// miss notes that a task is left to the store.
func (at *parkedAt) miss() {
	if !at.beyond {
		at.startPass()
	}
	at.missed = at.pass
}

// makeRoom reports whether a task of a flow may be noted although parkedMax are: another one is left to the store instead.
// in is nil for a task that has begun.
func (at *parkedAt) makeRoom(in *flow) bool {
	at.miss()
	if in == nil {
		return false
	}
	last, ok := at.fresh.evict(in, at.pass)
	if !ok {
		in.missed = at.pass
		return false
	}
	at.forget(last)
	return true
}

// startPass has the store read from the first number on.
func (at *parkedAt) startPass() { at.beyond, at.from, at.pass = true, 0, at.pass+1 }

// read notes how far the store has been read.
func (at *parkedAt) read(numbers []int64, page int) {
	if len(numbers) == page {
		at.from = numbers[page-1]
		return
	}
	at.beyond, at.unread, at.from = false, false, 0
	at.fresh.endPass(at.pass)
	if at.missed == at.pass {
		at.startPass()
	}
}

// waits reports whether there may be tasks that a round is to look at.
func (at *parkedAt) waits() bool { return len(at.known) > at.aside.waiting || at.beyond }

// has reports whether a task is known to be parked.
func (at *parkedAt) has(number int64) bool {
	_, known := at.known[number]
	return known
}

// drop takes the tasks out that gone says.
func (at *parkedAt) drop(gone func(parkedTask) bool) {
	for _, h := range []*byDeadline{&at.begun, &at.late} {
		*h = slices.DeleteFunc(*h, gone)
		heap.Init(h)
	}
	at.fresh.drop(func(_ *flow, one parkedTask) bool { return gone(one) })
	at.aside.drop(gone)
}

// reads reports whether a further part of what is parked is to be read.
func (at *parkedAt) reads() bool {
	return at.beyond && (len(at.known) <= parkedMax/2 || at.unread || at.fresh.hungry())
}

// insert takes a task into the order.
func (at *parkedAt) insert(one asideTask, w *Weights) {
	at.note(one.parkedTask, true)
	switch {
	case one.late:
		heap.Push(&at.late, one.parkedTask)
	case one.begun:
		heap.Push(&at.begun, one.parkedTask)
	default:
		at.fresh.push(at.fresh.of(one.of, w), one.parkedTask)
	}
}

// standAside lets a task wait for its key, or for the pauses.
func (at *parkedAt) standAside(of reason, one asideTask) {
	at.note(one.parkedTask, !of.paused)
	if left, full := at.aside.put(of, one); full {
		at.forget(left)
	}
}

// note counts a task among those that are known to be parked. wants: it could use a place of its key.
func (at *parkedAt) note(one parkedTask, wants bool) {
	at.count(one, wants && one.keyed)
	at.known[one.number] = wants && one.keyed
}

// forget takes a task out of those.
func (at *parkedAt) forget(one parkedTask) {
	at.count(one, false)
	delete(at.known, one.number)
}

// count keeps how many tasks could use a place of a key.
func (at *parkedAt) count(one parkedTask, wants bool) {
	was := at.known[one.number]
	switch {
	case wants && !was:
		if at.ofKey == nil {
			at.ofKey = map[string]int{}
		}
		at.ofKey[one.key]++
	case was && !wants:
		if at.ofKey[one.key]--; at.ofKey[one.key] == 0 {
			delete(at.ofKey, one.key)
		}
	}
}

// hopeless takes up to most tasks from the order whose time for work ends before an instant.
func (at *parkedAt) hopeless(back core.Instant, most int) (numbers []int64) {
	gone := func(one parkedTask) bool {
		if len(numbers) >= most || one.deadline.Add(-one.plan.plan.UndoReserve) > back {
			return false
		}
		numbers = append(numbers, one.number)
		at.forget(one)
		return true
	}
	at.drop(gone)
	slices.Sort(numbers)
	return numbers
}
