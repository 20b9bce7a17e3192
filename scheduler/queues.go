package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// What is parked at the agents of a shard's partitions: a task comes into the order when the row that parks it is committed,
// stands aside for a pause or its key, and comes back when that lets it.

// queues are what is parked at the agents of a shard's partitions, and what waits for an agent that is there again.
type queues struct {
	gate   *gate
	in     *owned
	cfg    *Config
	slots  []parkedSlot // memory of the last
	served []*entry     // that have waited for an agent which is there again
}

// parkedSlot is where tasks may be parked: at an agent, in a partition.
type parkedSlot struct {
	p    *partition
	slot *agentSlot
}

// parkedSlots are all of them, but for those of partitions that start nothing more. Partitions that share the room at an agent
// have turns: the one after that which has claimed last is first.
func (q *queues) parkedSlots() []parkedSlot {
	all := q.slots[:0]
	for _, p := range q.in.inOrder() {
		if p.noMore {
			continue
		}
		for _, slot := range p.agents {
			if slot.order != nil {
				all = append(all, parkedSlot{p, slot})
			}
		}
	}
	q.slots = all
	if !q.gate.agents.gated() {
		return all
	}
	places := map[string][]int{}
	for i, at := range all {
		places[at.slot.name] = append(places[at.slot.name], i)
	}
	for _, of := range places {
		last := all[of[0]].slot.calls.last
		first := slices.IndexFunc(of, func(i int) bool { return all[i].p.id > last })
		if first <= 0 {
			continue
		}
		turned := make([]parkedSlot, len(of))
		for n := range of {
			turned[n] = all[of[(first+n)%len(of)]]
		}
		for n, i := range of {
			all[i] = turned[n]
		}
	}
	return all
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

// hasBegun reports whether any step of a task has.
func hasBegun(t *core.Task) bool {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Status != core.StepWaiting || s.Attempt > 0 || s.Effect.Possible() {
			return true
		}
	}
	return false
}

// queue is the order of what is parked at the agent.
func (slot *agentSlot) queue() *parkedAt {
	if slot.order == nil {
		slot.order = &parkedAt{known: map[int64]bool{}, unread: true}
		slot.order.again()
	}
	return slot.order
}

// flowOf is the flow of a task.
func (q *queues) flowOf(t *core.Task) flowKey {
	return flowKey{class: core.ClassOf(t.Labels), tenant: core.TenantOf(t.Labels, q.cfg.TenantLabel), kind: t.Type}
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

// queueAgain puts a task back that could not be claimed.
func (q *queues) queueAgain(p *partition, slot *agentSlot, e *entry) {
	if e.task.WaitsFor != "" && p.slot(e.task.WaitsFor) == slot {
		q.keepOrder(slot, e)
	}
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

// applyPauses takes the pauses of the mail, lets go of those that are over, and sorts what is parked by them when there is a
// change.
func (q *queues) applyPauses(mail *Mail) {
	book, now := &q.gate.pauses, q.gate.now
	switch {
	case mail.Pauses != nil:
		book.set(*mail.Pauses, now)
		mail.Pauses = nil
	case book.until != 0 && now >= book.until:
		book.set(book.all, now)
	default:
		return
	}
	for _, p := range q.in.inOrder() {
		for _, slot := range p.agents {
			if slot.order != nil {
				q.sift(slot)
			}
		}
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

// begunFirst reports whether a task of a plan has to wait for others that have begun.
func (q *queues) begunFirst(ref *planRef) bool {
	for _, slot := range ref.slots {
		if slot != nil && slot.order != nil && q.manyBegun(slot.order) {
			return true
		}
	}
	return false
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
		e.waitsNoMore(here)
		q.served = append(q.served, e)
	}
	clear(slot.waiting[len(kept):])
	slot.waiting = kept
}

// lookKeys lets all that stands aside for keys come back if these have room: what was to go on first may not any more.
func (q *queues) lookKeys() {
	if !q.gate.agents.keyed {
		return
	}
	q.gate.looks.wake(q.gate.now)
	for _, p := range q.in.inOrder() {
		for _, slot := range p.agents {
			if slot.order != nil {
				slot.lookKeys()
			}
		}
	}
}

func (slot *agentSlot) lookKeys() {
	if slot.calls.keys == nil {
		return
	}
	for _, of := range slot.order.aside.reasons() {
		if !of.paused {
			slot.calls.key(of.key).opened()
		}
	}
}

// goesOn reports whether a task of the key is in the order of its partition.
func (q *queues) goesOn(k *keyCalls) bool {
	return slices.ContainsFunc(q.in.inOrder(), func(p *partition) bool {
		slot := p.slots[k.agent.name]
		return slot != nil && slot.order != nil && !p.noMore && slot.order.ofKey[k.key] > slot.order.aside.at(reason{key: k.key})
	})
}

// bringBack lets tasks that stand aside go on where their keys have room: the earliest deadline first.
func (q *queues) bringBack() {
	ready := q.gate.agents.ready
	q.gate.agents.ready = nil
	for _, k := range ready {
		k.looks = waker{}
		if k.agent.keys[k.key] != k {
			continue
		}
		of := reason{key: k.key}
		for room := q.gate.judge(k.ask()).n; ; {
			var first *agentSlot
			for _, p := range q.in.inOrder() {
				slot := p.slots[k.agent.name]
				if slot == nil || slot.order == nil || p.noMore {
					continue
				}
				at := slot.order
				if at.aside.left(of) { // the rest is in the store alone
					at.miss()
				}
				if at.aside.at(of) == 0 {
					continue
				}
				if first == nil || at.aside.before(&first.order.aside, of) {
					first = slot
				}
			}
			if first == nil {
				break
			}
			if room == 0 {
				k.lookNext(q.gate.now)
				break
			}
			if q.enter(first, first.order, first.order.aside.pop(of)) {
				room--
			}
		}
	}
}
