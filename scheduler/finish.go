package scheduler

import (
	"container/heap"
	"context"
	"fmt"
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

const (
	// parkedMax bounds the tasks at an agent whose order is kept: 96 bytes each, and their labels.
	parkedMax = 8192
	// parkedPage is how many the store is asked for at a time. Each is loaded once.
	parkedPage = 256
)

// queues are what is parked at the agents of a shard's partitions, and what waits for an agent that is there again.
type queues struct {
	gate   *gate
	in     *owned
	cfg    *Config
	slots  []parkedSlot // memory of the last
	served []*entry     // that have waited for an agent which is there again
}

// parkedTask is a task that waits for room, as of when it was parked.
type parkedTask struct {
	number   int64
	deadline core.Instant
	latest   core.Instant // it must go on by then to make its deadline
	plan     *planRef
	steps    uint64 // that it waits for at the agent
	labels   []core.Label
	keyed    bool
	key      string // of the agent's limit, if keyed
}

// ask is its do.
func (t *parkedTask) ask(slot *agentSlot) ask {
	return ask{agent: slot.calls, load: slot.load, plan: t.plan, steps: t.steps, labels: t.labels, keyed: t.keyed, key: t.key}
}

// byDeadline is a heap of parked tasks.
type byDeadline []parkedTask

func (h byDeadline) Len() int           { return len(h) }
func (h byDeadline) Less(i, j int) bool { return h[i].before(&h[j]) }
func (h byDeadline) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byDeadline) Push(x any) { *h = append(*h, x.(parkedTask)) }

// Pop implements heap.Interface.
func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = parkedTask{}
	*h = (*h)[:last]
	return x
}

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
	held        bool           // something that has not begun waits for others that have
}

// miss notes that a task is left to the store.
func (at *parkedAt) miss() {
	if !at.beyond {
		at.again()
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

// again has the store read from the first number on.
func (at *parkedAt) again() { at.beyond, at.from, at.pass = true, 0, at.pass+1 }

// read notes how far the store has been read.
func (at *parkedAt) read(numbers []int64, page int) {
	if len(numbers) == page {
		at.from = numbers[page-1]
		return
	}
	at.beyond, at.unread, at.from = false, false, 0
	at.fresh.found(at.pass)
	if at.missed == at.pass {
		at.again()
	}
}

// queue is the order of what is parked at the agent.
func (slot *agentSlot) queue() *parkedAt {
	if slot.order == nil {
		slot.order = &parkedAt{known: map[int64]bool{}, unread: true}
		slot.order.again()
	}
	return slot.order
}

// hasBegun reports whether any step of a task has.
func hasBegun(t *core.Task) bool {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Status != core.StepWaiting || s.Attempt > 0 || s.MayHaveEffect {
			return true
		}
	}
	return false
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

// keepOrder notes a task that was parked for room at an agent.
func (q *queues) keepOrder(slot *agentSlot, e *entry) {
	at := slot.queue()
	if e.plan == nil { // its plan cannot be read here: the store is asked for it when it can
		at.miss()
		return
	}
	if at.has(e.task.Number) {
		return
	}
	one := asideTask{parkedTask: parkedTask{
		number: e.task.Number, deadline: e.task.Deadline, latest: e.task.Deadline, plan: e.plan, steps: e.task.Waits(e.plan.plan), labels: e.task.Labels,
	}, begun: hasBegun(e.task)}
	in := (*flow)(nil)
	if !one.begun {
		one.of = q.flowOf(e.task)
		in = at.fresh.of(one.of, &q.cfg.Weights)
	}
	if len(at.known) >= parkedMax && !at.makeRoom(in) {
		return
	}
	if q.cfg.Left != nil {
		one.latest = one.deadline.Add(-q.cfg.Left(e.plan.plan, e.task))
	}
	if slot.calls != nil && slot.calls.keys != nil {
		q.gate.agents.keysOf(e)
		if i := slices.Index(e.plan.slots, slot); i >= 0 {
			one.key, one.keyed = e.keys[i], true
		}
	}
	q.enter(slot, at, one)
}

// enter takes a task into the order, or lets it stand aside.
func (q *queues) enter(slot *agentSlot, at *parkedAt, one asideTask) (in bool) {
	if one.keyed || len(q.gate.pauses.all) > 0 {
		if v := q.gate.mayLeave(one.ask(slot)); v.n == 0 && v.by <= byKey {
			why := reason{paused: v.by == byPause}
			if !why.paused {
				why.key = one.key
			}
			at.standAside(why, one)
			return false
		}
	}
	at.back(one, &q.cfg.Weights)
	return true
}

// sift sorts what is parked at an agent again: the pauses have changed.
func (q *queues) sift(slot *agentSlot) {
	at := slot.order
	all, more := at.aside.all(reason{paused: true})
	if more {
		at.miss()
	}
	for _, one := range at.begun {
		all = append(all, asideTask{parkedTask: one, begun: true})
	}
	for _, one := range at.late {
		all = append(all, asideTask{parkedTask: one, late: true})
	}
	at.begun, at.late = nil, nil
	at.fresh.drop(func(in *flow, one parkedTask) bool {
		all = append(all, asideTask{parkedTask: one, of: in.key})
		return true
	})
	for _, one := range all {
		q.enter(slot, at, one)
	}
	slot.lookKeys()
}

// parked is a task that a row of the round parks in a slot, or takes up there.
type parked struct {
	p    *partition
	slot *agentSlot
	e    *entry
}

// queueParked takes the tasks into the queues whose rows are committed now. room: another round is to look at them, because
// nothing else may come to remind the shard of them.
func (q *queues) queueParked(c *cycle) (room bool) {
	c.parked = slices.DeleteFunc(c.parked, func(x parked) bool {
		return x.p.lost || x.p.tasks[x.e.task.Number] != x.e || x.e.task.WaitsFor != x.slot.name
	})
	q.leaveOrder(c)
	for _, x := range c.parked {
		q.keepOrder(x.slot, x.e)
		room = room || x.slot.load < x.p.window
	}
	return room
}

// leaveOrder takes out of the queues what rows of the round have taken up, and what they park again: its place depends on
// them. It goes over a queue once, however many these are.
func (q *queues) leaveOrder(c *cycle) {
	out, slots := map[*agentSlot]map[int64]bool{}, []*agentSlot(nil)
	for _, all := range [][]parked{c.takenUp, c.parked} {
		for _, x := range all {
			if at := x.slot.order; at == nil || !at.has(x.e.task.Number) {
				continue
			}
			if out[x.slot] == nil {
				out[x.slot], slots = map[int64]bool{}, append(slots, x.slot)
			}
			out[x.slot][x.e.task.Number] = true
		}
	}
	for _, slot := range slots {
		numbers := out[slot]
		q.gate.looks.wake(q.gate.now) // others may have waited for these
		slot.order.drop(func(one parkedTask) bool {
			if numbers[one.number] {
				slot.order.forget(one)
				if one.keyed && slot.calls.keys != nil {
					slot.calls.key(one.key).opened()
				}
			}
			return numbers[one.number]
		})
	}
}

// othersFirst has a bit for every step that a new task may not begin because others are parked there; all of them, while
// many that have begun wait for an agent of its plan.
func (q *queues) othersFirst(e *entry) (steps uint64) {
	if e.plan == nil {
		return 0
	}
	for i, slot := range e.plan.slots {
		if slot == nil || slot.order == nil {
			continue
		}
		switch at := slot.order; {
		case q.manyBegun(at):
			return ^uint64(0)
		case len(at.begun)+at.fresh.waiting > 0:
			steps |= 1 << uint(i)
		}
	}
	return steps
}

// manyBegun reports whether so many begun tasks wait for an agent that it is busy until new ones would come to it.
func (q *queues) manyBegun(at *parkedAt) bool { return begunPart*len(at.begun) > q.cfg.AgentWindow }

// begunPart is the part of an agent's window that may wait for it and have begun, before no new task of the plan begins.
const begunPart = 4

// take takes up to n tasks from the order. Those whose keys have no room stand aside.
func (at *parkedAt) take(now core.Instant, n int, held func(*planRef) bool, keys *keyTakes) (all []parkedTask) {
	for len(at.begun) > 0 && len(all) < n {
		switch one := heap.Pop(&at.begun).(parkedTask); {
		case one.latest < now:
			heap.Push(&at.late, one)
		default:
			if why, full := keys.full(&one); full {
				at.standAside(why, asideTask{parkedTask: one, begun: true})
			} else {
				all = append(all, one)
			}
		}
	}
	all = at.takeFresh(now, n, all, held, keys)
	for len(at.late) > 0 && len(all) < n && !at.held {
		one := heap.Pop(&at.late).(parkedTask)
		keys.take(&one)
		all = append(all, one)
	}
	for _, one := range all {
		at.forget(one)
	}
	return all
}

// heldTask is one that waits for others that have begun.
type heldTask struct {
	in  *flow
	one parkedTask
}

// takeFresh takes tasks that have not begun, until there are n. A flow of which too many are held gives its turn away.
func (at *parkedAt) takeFresh(now core.Instant, n int, all []parkedTask, held func(*planRef) bool, keys *keyTakes) []parkedTask {
	var again []heldTask
	most := n / max(1, at.fresh.busy)
	for len(all) < n {
		in := at.fresh.next()
		if in == nil {
			break
		}
		switch one := at.fresh.pop(in); {
		case one.latest < now:
			heap.Push(&at.late, one)
		case held(one.plan):
			again = append(again, heldTask{in, one})
			in.heldNow++
		default:
			if why, full := keys.full(&one); full {
				at.standAside(why, asideTask{parkedTask: one, of: in.key})
				break
			}
			all = append(all, one)
			at.fresh.served(in)
		}
		if len(in.tasks) == 0 || in.heldNow > most {
			at.fresh.leave(in)
		}
	}
	at.held = len(again) > 0
	for i := range again {
		again[i].in.heldNow = 0
		at.fresh.push(again[i].in, again[i].one)
	}
	return all
}

// begunFirst reports whether a task of a plan has to wait for others that have begun.
func (q *queues) begunFirst(ref *planRef) bool {
	for _, slot := range ref.slots {
		if slot != nil && slot.order != nil && q.manyBegun(slot.order) {
			return true
		}
	}
	return false
}

// claim takes up to room tasks up again that are parked at an agent.
func (s *Shard) claim(ctx context.Context, p *partition, slot *agentSlot, room int) (claimed int, err error) {
	at := slot.queue()
	if err := s.readParked(ctx, p, slot, at); err != nil {
		return 0, err
	}
	if window := s.cfg.Admission.TakesUp(); window < room { // what has begun goes on
		if room = min(room, len(at.begun)+window); room < len(at.known) {
			s.cycle.noRoom = true
		}
		if room == 0 {
			return 0, nil
		}
	}
	many := s.queues.manyBegun(at)
	keys := s.gate.keyTakesAt(slot)
	taken := at.take(s.cycle.now, room, s.queues.begunFirst, keys)
	numbers := make([]int64, len(taken))
	for i := range taken {
		numbers[i] = taken[i].number
	}
	if _, err := s.loadNumbers(ctx, p, numbers); err != nil {
		return 0, err
	}
	again := false
	for _, number := range numbers { // in the order in which they were taken
		e := p.tasks[number]
		if e == nil {
			continue
		}
		if e.round.write != 0 { // an event of this round is about it
			s.queues.queueAgain(p, slot, e)
			again = true
			continue
		}
		switch err := s.claimTask(p, e); {
		case err == nil:
			claimed++
		case e.plan != nil && e.task.Parked(e.plan.plan) >= 0: // it has no room
			s.queues.queueAgain(p, slot, e)
		}
	}
	// What is left may be reminded of by nothing: when none of those could be claimed, or when tasks that had not begun
	// waited for the last ones here that had.
	if keys.claimed() && claimed < len(taken) || len(taken) > 0 && claimed == 0 || again || at.beyond && at.reads() || many && !s.queues.manyBegun(at) && p.heldAny() {
		s.gate.looks.wake(s.cycle.now)
	}
	return claimed, nil
}

// queueAgain puts a task back that could not be claimed.
func (q *queues) queueAgain(p *partition, slot *agentSlot, e *entry) {
	if e.task.WaitsFor != "" && p.slot(e.task.WaitsFor) == slot {
		q.keepOrder(slot, e)
	}
}

func (p *partition) heldAny() bool {
	for _, slot := range p.agents {
		if slot.order != nil && slot.order.held {
			return true
		}
	}
	return false
}

// reads reports whether a further part of what is parked is to be read.
func (at *parkedAt) reads() bool {
	return at.beyond && (len(at.known) <= parkedMax/2 || at.unread || at.fresh.hungry())
}

// readParked reads a further part of what is parked, if it is to be read.
func (s *Shard) readParked(ctx context.Context, p *partition, slot *agentSlot, at *parkedAt) error {
	if !at.reads() {
		return nil
	}
	page := s.cfg.Memory.fits(parkedPage)
	if page < 1 {
		return nil
	}
	numbers, err := s.store.Waiting(ctx, p.asOf(), slot.name, at.from, page)
	if err != nil {
		return fmt.Errorf("parked tasks of partition %d: %w", p.id, err)
	}
	var unknown []int64
	for _, n := range numbers {
		if !at.has(n) {
			unknown = append(unknown, n)
		}
	}
	entries, err := s.loadNumbers(ctx, p, unknown)
	if err != nil {
		return err
	}
	for _, e := range entries {
		s.queues.queueAgain(p, slot, e)
	}
	at.read(numbers, page)
	return nil
}
