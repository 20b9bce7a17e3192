package scheduler

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Breakers in a shard. An agent whose breaker is not closed is one that has no room, or little: a step that would begin
// there parks its task, whichever try it is, and a task that cannot wait so long is undone at once. What the shard's calls
// come to is counted here, for breakers.go to decide by.

// agentCalls is what a shard knows of one agent, over all its partitions.
type agentCalls struct {
	name    string
	calls   core.Calls // since they were collected
	trial   core.Calls // likewise, of those of a trial
	counted bool       // it is among those that are to be collected
	tried   int        // do commands of a trial that are out
	breaker core.Breaker
	inUse
	keys    map[string]*keyCalls // of its limit; nil: that has none
	book    *agentBook
	last    int           // partition that has claimed last of what all share
	longest time.Duration // that a do command may be at work
}

// room is how many do commands the agent may get now; -1: as many as come.
func (a *agentCalls) room(now core.Instant) int {
	room := -1
	if limit := a.breaker.Limit(now); limit >= 0 {
		room = max(0, limit-a.tried)
	}
	if room != 0 {
		room = fewer(room, a.inUse.room(now, a.longest))
	}
	return room
}

// fewer is the smaller of two numbers of commands; -1 is as many as come.
func fewer(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// agentBook is what a shard knows of agents: their breakers, their limits and what is out at them.
type agentBook struct {
	now     func() core.Instant
	all     map[string]*agentCalls
	counted []*agentCalls
	open    []core.Breaker // those that are not closed
	limited map[string]core.Limit
	keyed   bool           // one of them has keys
	ready   []*keyCalls    // for which tasks that stand aside may go on
	changed []*keyCalls    // whose use is to be told
	rateAt  core.Instant   // when a rate lets the next call through; 0: none keeps one back
	until   core.Instant   // when the first of them is in trial; 0: none will be
	back    []core.Instant // of the event at hand
}

// of is the agent of a name.
func (b *agentBook) of(name string) *agentCalls {
	a := b.all[name]
	if a == nil {
		if b.all == nil {
			b.all = map[string]*agentCalls{}
		}
		a = &agentCalls{name: name, book: b, last: -1}
		for _, is := range b.open {
			if is.Agent == name {
				a.breaker = is
			}
		}
		if l, ok := b.limited[name]; ok {
			if l.InAll() {
				a.limit = &shardLimit{limit: l}
			}
			if l.Key != "" {
				a.keys = map[string]*keyCalls{}
			}
		}
		b.all[name] = a
	}
	return a
}

// gated reports whether any agent may have less room than its window.
func (b *agentBook) gated() bool { return len(b.open)+len(b.limited) > 0 }

// set takes the breakers that are not closed, and calls changed with each agent whose breaker is another than before.
func (b *agentBook) set(known []core.Breaker, changed func(*agentCalls)) {
	b.open = known
	is := make(map[string]core.Breaker, len(known))
	for _, k := range known {
		is[k.Agent] = k
	}
	var others []*agentCalls
	for name, a := range b.all {
		if a.breaker != is[name] {
			a.breaker, a.trial = is[name], core.Calls{}
			others = append(others, a)
		}
	}
	slices.SortFunc(others, func(a, b *agentCalls) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	for _, a := range others {
		changed(a)
	}
}

// count notes calls of an agent. What a trial's calls come to after the breaker has opened again says nothing about the next
// trial.
func (b *agentBook) count(now core.Instant, a *agentCalls, calls core.Calls, trial bool) {
	a.calls.Add(calls)
	if state, _ := a.breaker.At(now); trial && state == core.BreakerTrial {
		a.trial.Add(calls)
	}
	if !a.counted {
		a.counted = true
		b.counted = append(b.counted, a)
	}
}

// shut has a bit for every step of a task whose agent's breaker keeps a do command back now, and says in ev when those
// agents are back.
func (s *Shard) shut(e *entry, ev *core.Event) (steps uint64) {
	if !s.agents.gated() || e.plan == nil {
		return 0
	}
	backs := false
	s.keysOf(e)
	for i, a := range e.plan.agents {
		if a == nil || a.limit == nil && a.keys == nil && a.breaker.State == "" || e.trial&(1<<uint(i)) != 0 {
			continue
		}
		room := a.room(s.cycle.now)
		if key, is := e.keyName(i); is != nil && room != 0 {
			room = fewer(room, is.keyRoom(key, s.cycle.now))
		}
		if room != 0 {
			if room > 0 && ev != nil {
				ev.Few |= 1 << uint(i)
			}
			continue
		}
		steps |= 1 << uint(i)
		if a.limit != nil {
			s.agents.rateAt = earlier(s.agents.rateAt, a.limit.next(s.cycle.now, a.out))
		}
		if at := a.breaker.Back(s.cycle.now); at != 0 && ev != nil {
			if !backs {
				backs = true
				s.agents.back = append(s.agents.back[:0], make([]core.Instant, len(e.plan.agents))...)
			}
			s.agents.back[i] = at
		}
	}
	if backs {
		ev.Back = s.agents.back
	}
	return steps
}

// tried counts what the records of an event say of calls, and the do commands that leave in a trial.
func (s *Shard) tried(e *entry, out *core.Outcome) {
	if e.plan == nil {
		return
	}
	for i := range out.Records {
		r := &out.Records[i]
		if r.Step < 0 || r.Step >= len(e.plan.agents) || e.plan.agents[r.Step] == nil {
			continue
		}
		a, trial := e.plan.agents[r.Step], e.trial&(1<<uint(r.Step)) != 0
		switch r.Kind {
		case core.KindDone, core.KindRefused:
			s.agents.count(s.cycle.now, a, core.Calls{Done: 1}, trial)
		case core.KindFailed, core.KindOverdue:
			s.agents.count(s.cycle.now, a, core.Calls{Failed: 1}, trial)
		}
	}
	e.leaveTrial(false)
	if !s.agents.gated() {
		return
	}
	if len(s.agents.limited) > 0 {
		s.countOut(e)
	}
	for i := range out.Effects {
		x := &out.Effects[i]
		if x.Kind != core.EffectDo || e.plan.agents[x.Step] == nil {
			continue
		}
		a := e.plan.agents[x.Step]
		a.spend(s.cycle.now)
		if k := e.keyAt(x.Step); k != nil {
			k.spend(s.cycle.now)
		}
		if a.breaker.Limit(s.cycle.now) >= 0 && e.trial&(1<<uint(x.Step)) == 0 {
			a.tried++
			e.trial |= 1 << uint(x.Step)
		}
	}
}

// countOut counts the commands of a task that are out, at their agents.
func (s *Shard) countOut(e *entry) {
	s.keysOf(e)
	e.countOut(false)
}

// countOut counts the commands of a task that are out, at their agents and for its keys, which are known; none: it is let go.
func (e *entry) countOut(none bool) {
	var out uint64
	if !none {
		for i, a := range e.plan.agents {
			if a == nil || i >= len(e.task.Steps) {
				continue
			}
			if s := &e.task.Steps[i]; s.Out != 0 || s.Awaits != 0 {
				out |= 1 << uint(i)
			}
		}
	}
	each(e.out&^out, func(i int) {
		a := e.plan.agents[i]
		// A command of a task that is let go may be at work: its place is no one else's yet.
		over := a.book.now().Add(a.longest)
		a.end(none, over)
		if k := e.keyAt(i); k != nil {
			k.end(none, over)
		}
	})
	each(out&^e.out, func(i int) {
		e.plan.agents[i].out++
		if k := e.keyAt(i); k != nil {
			k.out++
			k.change()
		}
	})
	e.out = out
}

// leaveTrial forgets that steps of a task are tried, when their commands are neither out nor wait for an agent any more, or
// the task is let go.
func (e *entry) leaveTrial(all bool) {
	each(e.trial, func(i int) {
		if all || e.task.Steps[i].Out == 0 && e.task.Steps[i].Awaits == 0 {
			e.trial &^= 1 << uint(i)
			e.plan.agents[i].tried--
		}
	})
}

// letGo forgets what a task has at its agents: it is let go.
func (e *entry) letGo() {
	e.leaveTrial(true)
	e.countOut(true)
}

// unmark forgets the same before the task goes on by another plan, and is counted again.
func (e *entry) unmark() {
	e.leaveTrial(true)
	e.uncount()
}

// uncount forgets what it has out, and its keys.
func (e *entry) uncount() {
	each(e.out, func(i int) {
		e.plan.agents[i].out--
		if k := e.keyAt(i); k != nil {
			k.end(false, 0)
		}
	})
	e.out, e.keys = 0, nil
}

// applyBreakers takes the breakers of the mail, and makes the round look at what is parked where one has changed. What is
// parked where a trial begins is looked at in any round.
func (s *Shard) applyBreakers() {
	c, b := &s.cycle, &s.agents
	look := func(a *agentCalls) {
		for _, p := range s.inOrder() {
			if slot := p.slots[a.name]; slot != nil {
				slot.park, slot.giveUp = true, a.breaker.Back(c.now) != 0
				s.reblock(p)
			}
		}
	}
	switch {
	case c.mail.Breakers != nil:
		b.set(*c.mail.Breakers, look)
		c.mail.Breakers = nil
	case b.until == 0 || c.now < b.until:
		return
	}
	b.until = 0
	for i := range b.open {
		b.until = earlier(b.until, b.open[i].Back(c.now))
	}
}

// giveUpParked takes up those of the tasks that are parked at an agent which cannot wait until its breaker is in trial, for
// the core to let them be undone. full: the batch is.
func (s *Shard) giveUpParked(ctx context.Context, p *partition, slot *agentSlot) (full bool, err error) {
	back := s.agents.of(slot.name).breaker.Back(s.cycle.now)
	if back == 0 || s.cfg.OldestFirst {
		slot.giveUp = false
		return false, nil
	}
	at := slot.queue()
	if err := s.readParked(ctx, p, slot, at); err != nil {
		return false, err
	}
	most := s.cfg.Memory.fits(min(s.cfg.BatchMax-len(s.cycle.batch.Writes), max(1, s.cfg.InFlight-len(p.tasks))))
	if most <= 0 {
		return !s.roomy(), nil
	}
	numbers := at.hopeless(back, most)
	entries, err := s.loadNumbers(ctx, p, numbers)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.created || e.write != 0 || s.event(p, e, &core.Event{Kind: core.EventClaim, At: s.cycle.now, Actor: s.cfg.Node}) != nil {
			s.queueAgain(p, slot, e)
		}
	}
	slot.giveUp = len(numbers) == most || at.beyond && len(at.known) <= parkedMax/2
	if slot.giveUp {
		s.lookAt = s.cycle.now
	}
	return false, nil
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
	for _, h := range []*byDeadline{&at.begun, &at.late} {
		*h = slices.DeleteFunc(*h, gone)
		heap.Init(h)
	}
	at.fresh.drop(gone)
	at.aside.drop(gone)
	slices.Sort(numbers)
	return numbers
}

// Calls gives out what the shard has counted since the last call, agent by agent.
func (s *Shard) Calls(yield func(agent string, revision int64, calls, trial core.Calls)) {
	for _, a := range s.agents.counted {
		yield(a.name, a.breaker.Revision, a.calls, a.trial)
		a.calls, a.trial, a.counted = core.Calls{}, core.Calls{}, false
	}
	s.agents.counted = s.agents.counted[:0]
}

// tryRoom is how many do commands an agent's breaker lets through now; -1: all.
func (s *Shard) tryRoom(agent string) int {
	if !s.agents.gated() {
		return -1
	}
	a := s.agents.of(agent)
	room := a.room(s.cycle.now)
	if room == 0 && a.limit != nil {
		s.agents.rateAt = earlier(s.agents.rateAt, a.limit.next(s.cycle.now, a.out))
	}
	return room
}
