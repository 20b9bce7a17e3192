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
// The order is kept in memory, up to parkedMax tasks for each agent of a partition. Where more wait, a task that comes has the
// place of one of (3), or else, if it has begun or its flow has less than its part of that room, of one of the flow that has
// most. The others, and after a takeover all, are read from the store in parts: when half of the room is free, while they have
// not been read once, and while a flow has tasks there alone. So every flow goes on, whatever comes by others. Bench:
// full-agents, at 130 % of what the agents can do.

// parkedAt holds what is parked at one agent in one partition, in the order in which it is claimed.
type parkedAt struct {
	// begun have a step behind them; late would miss their deadline anyway.
	begun, late byDeadline
	// fresh have not begun. aside wait for a pause or a key, outside the order.
	fresh flows
	aside aside
	// known holds the number of each task kept here; the value is whether it could use a place of its key.
	known map[int64]bool
	// ofKey counts, for each key, the tasks in known that could use a place of it.
	ofKey map[string]int
	// beyond is whether the store may have tasks that are not in known.
	beyond bool
	// unread is whether no pass over the store was completed yet. Until then a flow missing here may exist in
	// the store.
	unread bool
	// from is the number after which the present pass continues.
	from int64
	// pass counts the passes over the store that were begun.
	pass int64
	// missed is the pass in which a task was last left out for want of room.
	missed int64
	// behindBegun is whether the last claim skipped fresh tasks because too many begun ones wait for an agent
	// of their plan.
	behindBegun bool
}

// miss takes note that a parked task was left out of memory: a later pass over the store has to find it.
func (at *parkedAt) miss() {
	if !at.beyond {
		at.startPass()
	}
	at.missed = at.pass
}

// makeRoom makes room for a task of a flow although parkedMax tasks are kept, by evicting one that would
// miss its deadline anyway, or else one of a flow that has more; the evicted one stays in the store. It reports
// false if none has to give way. in is nil for a task that has begun, for which any flow has to.
func (at *parkedAt) makeRoom(in *flow) bool {
	at.miss()
	if len(at.late) > 0 {
		at.forget(at.late.Pop().(parkedTask)) // the last of the heap is one of the later deadlines
		return true
	}
	last, ok := at.fresh.evict(in, at.pass)
	if !ok && in != nil {
		in.missed = at.pass
	}
	if ok {
		at.forget(last)
	}
	return ok
}

// startPass begins a new pass over what the store has parked at the agent.
func (at *parkedAt) startPass() { at.beyond, at.from, at.pass = true, 0, at.pass+1 }

// read takes note of a page that was read. A short page ends the pass; if a task was left out during it,
// another begins.
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

// waits reports whether a round may find something to claim.
func (at *parkedAt) waits() bool { return len(at.known) > at.aside.waiting || at.beyond }

// has reports whether a task is kept here.
func (at *parkedAt) has(number int64) bool {
	_, known := at.known[number]
	return known
}

// drop removes the tasks for which gone returns true. It leaves known to the caller: see forget.
func (at *parkedAt) drop(gone func(parkedTask) bool) {
	for _, h := range []*byDeadline{&at.begun, &at.late} {
		*h = slices.DeleteFunc(*h, gone)
		heap.Init(h)
	}
	at.fresh.drop(func(_ *flow, one parkedTask) bool { return gone(one) })
	at.aside.drop(gone)
}

// reads reports whether the next page is worth reading: half of the room is free, no pass was completed yet,
// or a flow has tasks in the store alone.
func (at *parkedAt) reads() bool {
	return at.beyond && (len(at.known) <= parkedMax/2 || at.unread || at.fresh.hungry())
}

// insert puts a task in its place in the order.
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

// standAside takes a task out of the order until its key has room or the pauses change.
func (at *parkedAt) standAside(of reason, one asideTask) {
	at.note(one.parkedTask, !of.paused)
	if left, full := at.aside.put(of, one); full {
		at.forget(left)
	}
}

// note adds a task to known, or changes its mark. wants: it could use a place of its key.
func (at *parkedAt) note(one parkedTask, wants bool) {
	at.count(one, wants && one.keyed)
	at.known[one.number] = wants && one.keyed
}

// forget removes a task from known.
func (at *parkedAt) forget(one parkedTask) {
	at.count(one, false)
	delete(at.known, one.number)
}

// count keeps ofKey in step with a change of a task's mark in known.
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

// hopeless removes up to most tasks that cannot be done if the agent is back only at that instant, and
// returns their numbers.
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
