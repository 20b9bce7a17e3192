package scheduler

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
)

// How what waits for room continues: blocked branches of tasks in flight, and parked tasks in the order of finish.go.

// applyWaiting lets blocked branches and parked tasks begin where there is room, and plans when to look at
// the rest.
func (s *Shard) applyWaiting(ctx context.Context) (full bool, err error) {
	s.gate.nextRound.lookAt = 0
	for _, p := range s.inOrder() {
		for _, slot := range p.agents {
			if len(slot.blocked) > 0 && s.unblock(p, slot) {
				return true, nil
			}
		}
	}
	return s.applyParked(ctx)
}

// unblock begins branches that wait for room at an agent, while there is some. full: the batch is.
func (s *Shard) unblock(p *partition, slot *agentSlot) (full bool) {
	for n := len(slot.blocked); min(n, len(slot.blocked)) > 0 && s.gate.mayLeave(slot.ask()).n != 0; n-- { // the list may be shed meanwhile
		if !s.cycle.roomy() {
			return true
		}
		e := slot.blocked[0]
		slot.blocked = slices.Delete(slot.blocked, 0, 1)
		if e.plan == nil { // the database refuses its rows
			continue
		}
		here := e.plan.at(slot)
		waits := e.blocked(s.cycle.now).And(here)
		if p.tasks[e.task.Number] == e && !waits.Empty() && !s.gate.anyMay(e, waits) {
			slot.blocked = append(slot.blocked, e)
			continue
		}
		e.unblock(here)
		if p.tasks[e.task.Number] != e || waits.Empty() {
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

// applyParked claims parked tasks where their agent has room. Room in the window must be a quarter of it at
// least, or of its part for those that wait for an agent that is away, so that the store is not read for one task at a time.
func (s *Shard) applyParked(ctx context.Context) (full bool, err error) {
	s.cycle.noRoom = false
	s.queues.bringBack()
	for _, at := range s.queues.parkedSlots() {
		p, slot := at.p, at.slot
		if unread, err := s.plans.awaits(ctx, p, slot); unread || err != nil {
			if err != nil {
				return false, err
			}
			continue
		}
		if full, err := s.giveUpParked(ctx, p, slot); full || err != nil {
			return full, err
		}
		if !slot.order.waits() {
			continue
		}
		v := s.gate.mayLeave(slot.ask())
		least := max(1, slot.bound(s.cfg.AgentWindow)/4)
		if v.by != byWindow { // the window is each partition's own; all other room is shared
			least = 1
		}
		if v.n < least {
			continue
		}
		if !s.cycle.roomy() {
			return true, nil // ask for another round: nothing else may cause one
		}
		batch := s.cycle.writesLeft()
		room := s.cfg.Memory.fits(min(v.n, batch, s.cfg.InFlight-len(p.tasks)))
		if room <= 0 && slot.load == 0 { // those that fill the partition, or the memory, may wait for what is parked here
			room = s.cfg.Memory.fitsAwaited(min(v.n, batch, p.waiting()))
		}
		if room <= 0 {
			continue
		}
		claimed, err := s.claim(ctx, p, slot, room)
		if err != nil {
			return false, err
		}
		if v.by != byWindow {
			slot.calls.last = p.id
		}
		if slot.order.waits() {
			v = s.gate.mayLeave(slot.ask()) // plans the round in which the gate lets the next one through
			full = full || claimed == batch
			if claimed > 0 && v.n >= least && len(slot.waiting) > 0 {
				s.gate.nextRound.wake(s.cycle.now) // the agent may be there again, and answer none of these for long
			}
		}
	}
	return full, nil
}

// claim loads up to room tasks that are parked at an agent and lets them go on. claimed is how many did.
func (s *Shard) claim(ctx context.Context, p *partition, slot *agentSlot, room int) (claimed int, err error) {
	at := slot.queue()
	if err := s.readParked(ctx, p, slot, at, room); err != nil {
		return 0, err
	}
	if window := s.cfg.Admission.TakesUp(); window < room { // the node's window does not stop tasks that have begun
		if slot.load == 0 { // nor what those in it may wait for
			window = max(window, p.waiting())
		}
		if room = min(room, len(at.begun)+window); room < len(at.known) {
			s.cycle.noRoom = true
		}
		if room == 0 {
			return 0, nil
		}
	}
	many := s.queues.manyBegun(at)
	keys := s.gate.keyTakesAt(slot)
	behind := func(ref *planRef) bool { return s.queues.begunFirst(slot, ref) }
	chosen := at.take(s.cycle.now, room, behind, keys)
	numbers := make([]int64, len(chosen))
	for i := range chosen {
		numbers[i] = chosen[i].number
	}
	if _, err := s.loadNumbers(ctx, p, numbers); err != nil {
		return 0, err
	}
	requeued := false
	for _, number := range numbers { // in the order in which they were chosen
		e := p.tasks[number]
		if e == nil {
			continue
		}
		if e.round.write != 0 { // another event of this round has changed it
			s.queues.requeue(p, slot, e)
			requeued = true
			continue
		}
		switch err := s.claimTask(p, e); {
		case err == nil:
			claimed++
		case e.plan != nil && e.task.Parked(e.plan.plan) >= 0: // it is still parked: there was no room after all
			s.queues.requeue(p, slot, e)
		}
	}
	// What is left may need another round that nothing else causes: none of the chosen could be claimed, or the last begun
	// tasks, for which fresh ones had to wait, are gone from here.
	if keys.reopenUnused() && claimed < len(chosen) || len(chosen) > 0 && claimed == 0 || requeued || at.beyond && at.reads() || many && !s.queues.manyBegun(at) && p.anyBehindBegun() {
		s.gate.nextRound.wake(s.cycle.now)
	}
	return claimed, nil
}

// claimTask lets a parked task go on. A task that waited for its plan is checked as a submission is: an input
// that the plan does not take ends it.
func (s *Shard) claimTask(p *partition, e *entry) error {
	ev := core.Event{Kind: core.EventClaim, At: s.cycle.now, Actor: s.cfg.Node}
	if e.plan != nil && e.task.PlanVersion == 0 {
		if _, why := s.plans.unfit(e.plan, e.task.ID, e.task.Input); why != "" {
			ev.Kind, ev.Reason, ev.ByParent = core.EventCancel, why, true
		}
	}
	return s.event(p, e, &ev)
}

// take removes up to n tasks from the order to be claimed. Those whose key has no place stand aside.
func (at *parkedAt) take(now core.Instant, n int, behind func(*planRef) bool, keys *keyTakes) (all []parkedTask) {
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
	all = at.takeFresh(now, n, all, behind, keys)
	for len(at.late) > 0 && len(all) < n && !at.behindBegun {
		one := heap.Pop(&at.late).(parkedTask)
		keys.take(&one)
		all = append(all, one)
	}
	for _, one := range all {
		at.forget(one)
	}
	return all
}

// skippedTask is a fresh task that has to wait for begun ones.
type skippedTask struct {
	in  *flow
	one parkedTask
}

// takeFresh takes tasks that have not begun until there are n. behind reports whether a task must wait for
// begun ones; a flow with more than its share of those is passed over for the rest of this claim.
func (at *parkedAt) takeFresh(now core.Instant, n int, all []parkedTask, behind func(*planRef) bool, keys *keyTakes) []parkedTask {
	var skipped []skippedTask
	most := n / max(1, at.fresh.busy)
	for len(all) < n {
		in := at.fresh.next()
		if in == nil {
			break
		}
		switch one := at.fresh.pop(in); {
		case one.latest < now:
			heap.Push(&at.late, one)
		case behind(one.plan):
			skipped = append(skipped, skippedTask{in, one})
			in.skipped++
		default:
			if why, full := keys.full(&one); full {
				at.standAside(why, asideTask{parkedTask: one, of: in.key})
				break
			}
			all = append(all, one)
			at.fresh.served(in)
		}
		if len(in.tasks) == 0 || in.skipped > most {
			at.fresh.leave(in)
		}
	}
	at.behindBegun = len(skipped) > 0
	for i := range skipped {
		skipped[i].in.skipped = 0
		at.fresh.push(skipped[i].in, skipped[i].one)
	}
	return all
}

// anyBehindBegun reports whether the last claim at some agent skipped fresh tasks.
func (p *partition) anyBehindBegun() bool {
	for _, slot := range p.agents {
		if slot.order != nil && slot.order.behindBegun {
			return true
		}
	}
	return false
}

// keyTakes counts the tasks of each key that one claim takes, so that it does not load more than may leave.
type keyTakes struct {
	gate  *gate
	slot  *agentSlot // nil: its agent has no keys
	takes map[string]int
}

// full reports whether a task has to stand aside, and why; otherwise it counts the task as taken.
func (k *keyTakes) full(one *parkedTask) (why reason, full bool) {
	if k.slot == nil || !one.keyed {
		return reason{}, false
	}
	switch v := k.gate.mayLeave(one.ask(k.slot)); {
	case v.n == 0 && v.by == byPause:
		return reason{paused: true}, true
	case v.n == 0 && v.by == byKey:
		return reason{key: one.key}, true
	case v.n > 0 && k.takes[one.key] >= v.n:
		k.slot.calls.key(one.key).report()
		return reason{key: one.key}, true
	}
	k.take(one)
	return reason{}, false
}

// take counts a task as taken.
func (k *keyTakes) take(one *parkedTask) {
	if k.slot != nil && one.keyed {
		k.takes[one.key]++
	}
}

// reopenUnused reopens the keys that still have room after the claim: tasks that were taken may not have
// needed their places. It reports whether there are any.
func (k *keyTakes) reopenUnused() (some bool) {
	for _, name := range slices.Sorted(maps.Keys(k.takes)) {
		if is := k.slot.calls.key(name); k.gate.judge(is.ask()).n != 0 {
			is.reopen()
			some = true
		}
	}
	return some
}

// keyTakesAt returns a counter for a claim at an agent; it counts nothing if the agent has no keys.
func (g *gate) keyTakesAt(slot *agentSlot) *keyTakes {
	if slot.calls.keys == nil {
		return &keyTakes{}
	}
	return &keyTakes{gate: g, slot: slot, takes: map[string]int{}}
}

// giveUpParked claims the tasks parked at an agent that cannot wait until its breaker is in trial, so that
// the core undoes them now. It does so once for each revision of the breaker. full: the batch is.
func (s *Shard) giveUpParked(ctx context.Context, p *partition, slot *agentSlot) (full bool, err error) {
	breaker := &slot.calls.breaker
	if slot.gaveUp == breaker.Revision {
		return false, nil
	}
	a := slot.ask()
	a.only = byBreaker + 1
	back := s.gate.judge(a).back
	if back == 0 {
		return false, nil
	}
	at := slot.queue()
	if err := s.readParked(ctx, p, slot, at, 0); err != nil {
		return false, err
	}
	most := s.cfg.Memory.fits(min(s.cycle.writesLeft(), max(1, s.cfg.InFlight-len(p.tasks))))
	if most <= 0 {
		return !s.cycle.roomy(), nil
	}
	numbers := at.hopeless(back, most)
	slot.recheckKeys()
	entries, err := s.loadNumbers(ctx, p, numbers)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.round.write != 0 || s.claimTask(p, e) != nil {
			s.queues.requeue(p, slot, e)
		}
	}
	if len(numbers) == most || at.beyond && len(at.known) <= parkedMax/2 {
		s.gate.nextRound.wake(s.cycle.now)
	} else {
		slot.gaveUp = breaker.Revision
	}
	return false, nil
}

// readParked reads the next page of what is parked at an agent, if memory should have more. There is room for so many at least.
func (s *Shard) readParked(ctx context.Context, p *partition, slot *agentSlot, at *parkedAt, least int) error {
	if !at.reads() {
		return nil
	}
	page := s.cfg.Memory.fits(parkedPage)
	if page < 1 {
		page = min(least, parkedPage)
	}
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
		s.queues.requeue(p, slot, e)
	}
	at.read(numbers, page)
	return nil
}
