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
		s.agents.rateAt = earlier(s.agents.rateAt, a.next(s.cycle.now))
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

// call is one that a record ends. It is counted when the record is committed.
type call struct {
	p     *partition
	e     *entry
	agent *agentCalls
	calls core.Calls
	trial bool
}

// noteCalls notes what the records of an event say of calls. Only what the agent did counts: a refusal before the step has
// begun is an expression's; and of a command that another owner sent, or whose answer may have been lost on the way, it is
// not known that the agent was silent.
func (s *Shard) noteCalls(p *partition, e *entry, out *core.Outcome) {
	for i := range out.Records {
		r := &out.Records[i]
		if r.Step < 0 || r.Step >= len(e.plan.agents) || e.plan.agents[r.Step] == nil {
			continue
		}
		bit := uint64(1) << uint(r.Step)
		one := call{p: p, e: e, agent: e.plan.agents[r.Step], trial: e.trial&bit != 0}
		switch r.Kind {
		case core.KindDone, core.KindRefused:
			if e.at&bit == 0 {
				continue
			}
			one.calls.Done = 1
		case core.KindFailed:
			one.calls.Failed = 1
		case core.KindOverdue:
			if e.ours&bit == 0 {
				continue
			}
			one.calls.Failed = 1
		default:
			continue
		}
		s.cycle.calls = append(s.cycle.calls, one)
	}
}

// leaveFor takes the places, and what else there is to take, of the do commands that an event lets leave.
func (s *Shard) leaveFor(e *entry, out *core.Outcome) {
	for i := range out.Effects {
		if x := &out.Effects[i]; x.Kind == core.EffectDo && s.cycle.resumed == nil && s.hears != 0 {
			e.ours |= 1 << uint(x.Step)
		}
	}
	if !s.agents.gated() {
		return
	}
	if len(s.agents.limited) > 0 {
		s.takePlaces(e)
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

// marks are what a task has at its agents' gates, by step.
type marks struct {
	out   uint64   // places
	took  uint64   // those of them that are taken in this round: it is not committed yet
	trial uint64   // commands that are out as a trial
	ours  uint64   // the newest do was sent by this owner, which has heard all answers since
	keys  []string // of limits; nil: they are not known
}

// takePlaces counts the commands of a task that are out, at their agents and for its keys. What is over keeps its place until
// that is committed.
func (s *Shard) takePlaces(e *entry) {
	s.keysOf(e)
	took := e.working() &^ e.out
	each(took, func(i int) { e.place(i) })
	e.out, e.took = e.out|took, e.took|took
}

// working are the steps whose commands are out, or wait for their agents.
func (e *entry) working() (out uint64) {
	for i, a := range e.plan.agents {
		if a == nil || i >= len(e.task.Steps) {
			continue
		}
		if s := &e.task.Steps[i]; s.Out != 0 || s.Awaits != 0 {
			out |= 1 << uint(i)
		}
	}
	return out
}

func (e *entry) place(i int) {
	e.plan.agents[i].out++
	if k := e.keyAt(i); k != nil {
		k.out++
		k.change()
	}
}

// giveBack gives up places of a task. gone: a command may be at work, so its place is no one else's until it is over.
func (e *entry) giveBack(places uint64, gone bool) {
	each(places, func(i int) {
		a := e.plan.agents[i]
		over := a.book.now().Add(a.longest)
		a.end(gone, over)
		if k := e.keyAt(i); k != nil {
			k.end(gone, over)
		}
	})
	e.out, e.took = e.out&^places, e.took&^places
}

// settle gives back what a task does not use any more: its rows are committed. It reports whether places are free now.
func (e *entry) settle() (free bool) {
	if e.out|e.trial == 0 {
		return false
	}
	over, tried := e.out&^e.working(), e.trial
	e.giveBack(over, false)
	e.took = 0
	e.leaveTrial(false)
	return over != 0 || e.trial != tried
}

// refused gives back what a task took in this round: its row is refused, so that nothing of it leaves.
func (e *entry) refused() {
	e.giveBack(e.took, false)
	e.uncommitted = true
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
	e.giveBack(e.out, true)
}

// unmark forgets the same before the task goes on by another plan, and is counted again. It returns what there was.
func (e *entry) unmark() (was marks) {
	was = e.marks
	e.leaveTrial(true)
	e.uncount()
	return was
}

// remark takes unmark back.
func (e *entry) remark(was marks) {
	e.marks = was
	each(was.out, func(i int) { e.place(i) })
	each(was.trial, func(i int) { e.plan.agents[i].tried++ })
}

// uncount forgets what it has out, and its keys.
func (e *entry) uncount() {
	e.giveBack(e.out, false)
	e.keys = nil
}

// listen takes note of answers that may have been lost: what is silent may have been answered.
func (s *Shard) listen() {
	hears := int64(1)
	if s.cfg.Hears != nil {
		hears = s.cfg.Hears()
	}
	if hears == s.hears {
		return
	}
	s.hears = hears
	for _, p := range s.partitions {
		for _, e := range p.tasks {
			e.ours = 0
		}
	}
}

// countCalls counts the calls of the round that is committed, but for those of rows that were left out.
func (s *Shard) countCalls() {
	for _, c := range s.cycle.calls {
		if !c.e.uncommitted && !c.p.lost {
			s.agents.count(s.cycle.now, c.agent, c.calls, c.trial)
		}
	}
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
	if room == 0 {
		s.agents.rateAt = earlier(s.agents.rateAt, a.next(s.cycle.now))
	}
	return room
}
