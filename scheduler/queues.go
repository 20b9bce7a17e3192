package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// What is parked at the agents of a shard's partitions. A task enters the order of its agent when the row that parks it is
// committed. If it is paused or its key has no place it stands aside, and comes back when that changes.

// queues moves tasks between the order, those that stand aside, and the round.
type queues struct {
	gate *gate
	in   *owned
	cfg  *Config
	// slots is memory for parkedSlots.
	slots []parkedSlot
	// served are tasks whose agent was away and has answered again: they retry in this round.
	served []*entry
}

// parkedSlot is an agent in a partition at which tasks are parked.
type parkedSlot struct {
	p    *partition
	slot *agentSlot
}

// parkedSlots returns the agents at which tasks are parked, partition by partition, without partitions that
// are being let go. Partitions that share an agent's limit take turns: the one after the partition that
// claimed last comes first.
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
		rotated := make([]parkedSlot, len(of))
		for n := range of {
			rotated[n] = all[of[(first+n)%len(of)]]
		}
		for n, i := range of {
			all[i] = rotated[n]
		}
	}
	return all
}

// queueParked enters the tasks that the committed round has parked into their orders. It reports whether
// another round should look at them at once, because there is room and nothing else may cause a round.
func (q *queues) queueParked(c *cycle) (room bool) {
	c.parked = slices.DeleteFunc(c.parked, func(x parked) bool {
		return x.p.lost || x.p.tasks[x.e.task.Number] != x.e || x.e.task.WaitsFor != x.slot.name
	})
	q.leaveOrder(c)
	for _, x := range c.parked {
		q.keepOrder(x.slot, x.e)
		room = room || x.slot.room(x.p.window) > 0
	}
	return room
}

// leaveOrder removes from the orders the tasks that the round has taken up or parked anew: those are entered
// again at a place that depends on the new row. It goes over each order once, however many tasks leave it.
func (q *queues) leaveOrder(c *cycle) {
	out, slots := map[*agentSlot]map[int64]bool{}, []*agentSlot(nil)
	for _, all := range [][]parked{c.unparked, c.parked} {
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
		q.gate.nextRound.wake(q.gate.now) // others may have had to wait for these
		slot.order.drop(func(one parkedTask) bool {
			if numbers[one.number] {
				slot.order.forget(one)
				if one.keyed && slot.calls.keys != nil {
					slot.calls.key(one.key).reopen()
				}
			}
			return numbers[one.number]
		})
	}
}

// keepOrder enters a task that is parked at an agent, or leaves it to the store if there is no room in
// memory.
func (q *queues) keepOrder(slot *agentSlot, e *entry) {
	at := slot.queue()
	if e.plan == nil { // its plan cannot be read here; a later pass over the store finds it
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

// hasBegun reports whether any step of the task was ever sent.
func hasBegun(t *core.Task) bool {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Status != core.StepWaiting || s.Attempt > 0 || s.Effect.Possible() {
			return true
		}
	}
	return false
}

// queue returns the agent's order. A new one is unread: the store may have tasks that belong in it.
func (slot *agentSlot) queue() *parkedAt {
	if slot.order == nil {
		slot.order = &parkedAt{known: map[int64]bool{}, unread: true}
		slot.order.startPass()
	}
	return slot.order
}

// flowOf returns the flow that the task belongs to.
func (q *queues) flowOf(t *core.Task) flowKey {
	return flowKey{class: core.ClassOf(t.Labels), tenant: core.TenantOf(t.Labels, q.cfg.TenantLabel), kind: t.Type}
}

// enter puts a task in its order, or lets it stand aside if it is paused or its key has no place; in is false
// then.
func (q *queues) enter(slot *agentSlot, at *parkedAt, one asideTask) (in bool) {
	if one.keyed || len(q.gate.pauses.all) > 0 {
		if v := q.gate.mayLeave(one.ask(slot)); v.n == 0 && (v.by == byPause || v.by == byKey) {
			why := reason{paused: v.by == byPause}
			if !why.paused {
				why.key = one.key
			}
			at.standAside(why, one)
			return false
		}
	}
	many := q.manyBegun(at)
	at.insert(one, &q.cfg.Weights)
	if !many && q.manyBegun(at) && q.gate.agents.keyed {
		q.makeWay(slot)
	}
	return true
}

// requeue enters a task again that was chosen from the order and could not be claimed.
func (q *queues) requeue(p *partition, slot *agentSlot, e *entry) {
	if e.task.WaitsFor != "" && p.slot(e.task.WaitsFor) == slot {
		q.keepOrder(slot, e)
	}
}

// sift sorts everything parked at an agent anew, because the pauses have changed.
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
	slot.recheckKeys()
}

// applyPauses takes new pauses from the mail, or drops those that are over, and sifts what is parked if there
// is a change.
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

// othersFirst returns the steps that a new submission may not begin because others are parked at their
// agents; all steps, while many begun tasks wait for some agent of its plan.
func (q *queues) othersFirst(e *entry) core.StepSet {
	var steps core.StepBuilder
	if e.plan == nil {
		return steps.Set()
	}
	for i, slot := range e.plan.slots {
		if slot == nil || slot.order == nil {
			continue
		}
		switch at := slot.order; {
		case q.manyBegun(at):
			return core.StepsBelow(len(e.plan.slots))
		case len(at.begun)+at.fresh.waiting > 0:
			steps.Add(i)
		}
	}
	return steps.Set()
}

// manyBegun reports whether more begun tasks wait for an agent than the part of its window that keeps it busy
// until new tasks would get there.
func (q *queues) manyBegun(at *parkedAt) bool { return begunPart*len(at.begun) > q.cfg.AgentWindow }

// begunPart: while more than AgentWindow/begunPart begun tasks wait for an agent, no new task of a plan with it begins.
const begunPart = 4

// begunFirst reports whether new tasks of a plan that are parked at an agent must wait because manyBegun holds for
// another agent of the plan. Those that have begun at the same agent are claimed before them anyway.
func (q *queues) begunFirst(at *agentSlot, ref *planRef) bool {
	for _, slot := range ref.slots {
		if slot != nil && slot != at && slot.order != nil && q.manyBegun(slot.order) {
			return true
		}
	}
	return false
}

// makeWay reopens the keys of which tasks in the order have to wait from now on, because manyBegun holds for an
// agent: others of the key, which stand aside for them, may use the room.
func (q *queues) makeWay(to *agentSlot) {
	for _, p := range q.in.inOrder() {
		if p.slots[to.name] != to {
			continue
		}
		for _, slot := range p.agents {
			if slot.order == nil {
				continue
			}
			slot.order.fresh.drop(func(_ *flow, one parkedTask) bool {
				if one.keyed && q.begunFirst(slot, one.plan) {
					slot.calls.key(one.key).reopen()
					q.gate.nextRound.wake(q.gate.now)
				}
				return false
			})
		}
	}
}

// serve lets the tasks that found the agent away retry in this round, because it has answered. Paused ones
// keep waiting.
func (q *queues) serve(slot *agentSlot) {
	kept := slot.waiting[:0]
	for _, e := range slot.waiting {
		if e.plan == nil { // the database refuses its rows
			continue
		}
		here := e.plan.at(slot)
		_, awaits, _ := e.present()
		if awaits = awaits.And(here); !awaits.Empty() && e.task.State == core.StateProcessing && !q.gate.anyMay(e, awaits) {
			kept = append(kept, e)
			continue
		}
		e.waitsNoMore(here)
		q.served = append(q.served, e)
	}
	clear(slot.waiting[len(kept):])
	slot.waiting = kept
}

// recheckKeys lets tasks that stand aside for any key come back if their keys have room. It is called when
// the task that was to go on first may not any more, for instance because its partition was let go.
func (q *queues) recheckKeys() {
	if !q.gate.agents.keyed {
		return
	}
	q.gate.nextRound.wake(q.gate.now)
	for _, p := range q.in.inOrder() {
		for _, slot := range p.agents {
			if slot.order != nil {
				slot.recheckKeys()
			}
		}
	}
}

// recheckKeys lets tasks that stand aside for keys at this agent come back if their keys have room.
func (slot *agentSlot) recheckKeys() {
	if slot.calls.keys == nil {
		return
	}
	for _, of := range slot.order.aside.reasons() {
		if !of.paused {
			slot.calls.key(of.key).reopen()
		}
	}
}

// goesOn reports whether some partition has a task of the key in its order, which the next rounds claim.
func (q *queues) goesOn(k *keyCalls) bool {
	return slices.ContainsFunc(q.in.inOrder(), func(p *partition) bool {
		slot := p.slots[k.agent.name]
		return slot != nil && slot.order != nil && !p.noMore && slot.order.ofKey[k.key] > slot.order.aside.at(reason{key: k.key})
	})
}

// bringBack lets tasks that stand aside for keys with room back into the order, over all partitions the
// earliest deadline first. Those that must wait there all the same use none of the room; see begunFirst.
func (q *queues) bringBack() {
	ready := q.gate.agents.ready
	q.gate.agents.ready = nil
	for _, k := range ready {
		k.nextRound = waker{}
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
				if at.aside.onlyStored(of) { // the rest is in the store alone; a new pass finds it
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
				k.wakeForRate(q.gate.now)
				break
			}
			one := first.order.aside.pop(of)
			if q.enter(first, first.order, one) && (one.begun || !q.begunFirst(first, one.plan)) {
				room--
			}
		}
	}
}
