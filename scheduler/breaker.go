package scheduler

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Breakers in a shard. An agent whose breaker is not closed is one that has no room, or little: a step that would begin
// there parks its task, whichever attempt it is, and a task that cannot wait so long is undone at once. What the shard's calls
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
	usual   time.Duration // in which it answers, when nothing is in the way
	usualAt core.Instant
}

// usualGrows is by what part of itself the time in which an agent usually answers grows in a second in which no answer is
// as quick.
const usualGrows = 0.01

// answered takes how long an answer took, and reports whether it was late.
func (a *agentCalls) answered(took time.Duration, now core.Instant) (late bool) {
	if a.usual == 0 || took < a.usual {
		a.usual = max(took, time.Millisecond)
	} else {
		a.usual += time.Duration(usualGrows * now.Sub(a.usualAt).Seconds() * float64(a.usual))
	}
	a.usualAt = now
	return took-a.usual > lateAfter
}

// breakerStage holds back what would begin at an agent whose breaker is not closed.
type breakerStage struct{}

func (breakerStage) room(a *ask, now core.Instant) verdict {
	is := a.agent
	limit := is.breaker.Limit(now)
	if limit < 0 || a.tried {
		return anyNumber
	}
	back := is.breaker.Back(now)
	return verdict{n: max(0, limit-is.tried), few: true, until: back, back: back}
}

// agentBook is what a shard knows of agents: their breakers, their limits and what is out at them.
type agentBook struct {
	now     func() core.Instant
	hears   func() int64 // as in Config
	heard   int64        // as it said last
	keyOf   func(expression string, t *core.Task) (string, error)
	all     map[string]*agentCalls
	counted []*agentCalls
	open    []core.Breaker // those that are not closed
	limited map[string]core.Limit
	keyed   bool                // one of them has keys
	ready   []*keyCalls         // for which tasks that stand aside may go on
	changed []*keyCalls         // whose use is to be told
	rates   waker               // a round is to look at what stands aside for the rates of keys
	behind  map[int]*leftBehind // by partition
	term    int64               // how many partitions the shard has taken over: grants from before the newest are not used
	back    []core.Instant      // of the event at hand
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

// set takes the breakers that are not closed.
func (b *agentBook) set(known []core.Breaker) {
	b.open = known
	is := make(map[string]core.Breaker, len(known))
	for _, k := range known {
		is[k.Agent] = k
	}
	for name, a := range b.all {
		if a.breaker != is[name] {
			a.breaker, a.trial = is[name], core.Calls{}
		}
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

// call is one that a record ends. It is counted when the record is committed.
type call struct {
	p     *partition
	e     *entry
	agent *agentCalls
	calls core.Calls
	trial bool

	refused int // as inRound.refused was
}

// noteCalls notes what the records of an event say of calls. Only what the agent did counts: a refusal before the step has
// begun is an expression's; and of a command that another owner sent, or whose answer may have been lost on the way, it is
// not known that the agent was silent.
func (c *cycle) noteCalls(p *partition, e *entry) {
	for i := range c.out.Records {
		r := &c.out.Records[i]
		if r.Step < 0 || r.Step >= len(e.plan.agents) || e.plan.agents[r.Step] == nil {
			continue
		}
		bit := uint64(1) << uint(r.Step)
		one := call{p: p, e: e, agent: e.plan.agents[r.Step], trial: e.trial&bit != 0, refused: e.round.refused}
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
		c.calls = append(c.calls, one)
	}
}

// leaveFor takes the places, and what else there is to take, of the do commands that an event lets leave. resumed: they are
// out already, as another owner left them.
func (g *gate) leaveFor(e *entry, out *core.Outcome, resumed bool) {
	for i := range out.Effects {
		x := &out.Effects[i]
		if x.Kind != core.EffectDo {
			continue
		}
		// One that the task's deadline cuts short may have had too little time for whatever agent.
		if e.ours &^= 1 << uint(x.Step); !resumed && g.agents.heard != 0 && x.At < e.task.Deadline.Add(-e.plan.plan.UndoReserve) {
			e.ours |= 1 << uint(x.Step)
		}
	}
	if !g.agents.gated() {
		return
	}
	if len(g.agents.limited) > 0 {
		g.agents.takePlaces(e)
	}
	for i := range out.Effects {
		x := &out.Effects[i]
		if x.Kind != core.EffectDo || e.plan.agents[x.Step] == nil {
			continue
		}
		a := e.plan.agents[x.Step]
		if !x.Again { // see mayRetry
			e.spend(x.Step, g.now)
			e.round.spent |= 1 << uint(x.Step)
		}
		if state, _ := a.breaker.At(g.now); state != core.BreakerClosed && e.trial&(1<<uint(x.Step)) == 0 {
			a.tried++
			e.trial |= 1 << uint(x.Step)
		}
	}
}

// spend takes a do command off the rates of its agent.
func (e *entry) spend(step int, now core.Instant) {
	if a := e.plan.agents[step]; a != nil {
		a.spend(now)
	}
	if k := e.keyAt(step); k != nil {
		k.spend(now)
	}
}

// unspend takes that back: it does not leave.
func (e *entry) unspend(step int) {
	if a := e.plan.agents[step]; a != nil {
		a.unspend()
	}
	if k := e.keyAt(step); k != nil {
		k.unspend()
		k.change()
	}
}

// takePlaces counts the commands of a task that are out, at their agents and for its keys. What is over keeps its place until
// that is committed.
func (b *agentBook) takePlaces(e *entry) {
	b.keysOf(e)
	working, waits := e.working()
	e.aside = waits & (e.aside | ^working)
	took := working &^ (e.out | e.aside)
	each(took, func(i int) { e.place(i) })
	e.out, e.round.took = e.out|took, e.round.took|took
}

// working are the steps that have places, see core.Task.Occupies, and those that wait for their agents.
func (e *entry) working() (out, waits uint64) {
	for i, a := range e.plan.agents {
		if a == nil || i >= len(e.task.Steps) {
			continue
		}
		if e.task.Occupies(e.plan.plan, i) {
			out |= 1 << uint(i)
		}
		if e.task.Steps[i].Awaits != 0 {
			waits |= 1 << uint(i)
		}
	}
	return out, waits
}

func (e *entry) place(i int) {
	e.plan.agents[i].out++
	if k := e.keyAt(i); k != nil {
		k.out++
		k.change()
	}
}

// giveBack gives up places of a task.
func (e *entry) giveBack(places uint64) {
	each(places, func(i int) {
		e.plan.agents[i].out--
		if k := e.keyAt(i); k != nil {
			k.end()
		}
	})
	e.out &^= places
}

// settle gives back what a task does not use any more: its rows are committed. It reports whether places are free now.
func (e *entry) settle() (free bool) {
	if e.out|e.trial == 0 {
		return false
	}
	working, _ := e.working()
	over, tried := e.out&^working, e.trial
	e.giveBack(over)
	e.leaveTrial(working)
	return over != 0 || e.trial != tried
}

// leaveTrial forgets that steps of a task are tried, but for some.
func (e *entry) leaveTrial(but uint64) {
	each(e.trial&^but, func(i int) { e.plan.agents[i].tried-- })
	e.trial &= but
}

// letGo forgets what a task of a partition has at its agents: it is let go, and leaves behind what it has out.
func (e *entry) letGo(p *partition) {
	e.leaveTrial(0)
	each(e.out, func(i int) { e.plan.agents[i].leave(p, e.keyAt(i)) })
	e.out, e.aside = 0, 0
}

// unmark forgets the same before the task goes on by another plan, and is counted again. It returns what there was.
func (e *entry) unmark() (was marks) {
	was = e.marks
	e.leaveTrial(0)
	e.uncount()
	e.aside, e.held, e.round.spent = 0, 0, 0
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
	e.giveBack(e.out)
	e.keys = nil
}

// uncount forgets what its tasks have out, and their keys.
func (p *partition) uncount() {
	for _, e := range p.tasks {
		if e.plan != nil {
			e.uncount()
		}
	}
}

// listen takes note of answers that may have been lost: what is silent may have been answered.
func (b *agentBook) listen(all []*partition) {
	heard := int64(1)
	if b.hears != nil {
		heard = b.hears()
	}
	if heard == b.heard {
		return
	}
	b.heard = heard
	for _, p := range all {
		for _, e := range p.tasks {
			e.ours = 0
		}
	}
}

// countCalls counts the calls of the round that is committed, but for those of rows that were left out.
func (b *agentBook) countCalls(now core.Instant, calls []call) {
	for _, c := range calls {
		if c.refused == c.e.round.refused && !c.p.lost {
			b.count(now, c.agent, c.calls, c.trial)
		}
	}
}

// giveUpParked takes up those of the tasks that are parked at an agent which cannot wait until its breaker is in trial, for
// the core to let them be undone: once for each revision of the breaker. full: the batch is.
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
	if err := s.readParked(ctx, p, slot, at); err != nil {
		return false, err
	}
	most := s.cfg.Memory.fits(min(s.cycle.left(), max(1, s.cfg.InFlight-len(p.tasks))))
	if most <= 0 {
		return !s.cycle.roomy(), nil
	}
	numbers := at.hopeless(back, most)
	slot.lookKeys()
	entries, err := s.loadNumbers(ctx, p, numbers)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.round.write != 0 || s.claimTask(p, e) != nil {
			s.queues.queueAgain(p, slot, e)
		}
	}
	if len(numbers) == most || at.beyond && len(at.known) <= parkedMax/2 {
		s.gate.looks.wake(s.cycle.now)
	} else {
		slot.gaveUp = breaker.Revision
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
	at.drop(gone)
	slices.Sort(numbers)
	return numbers
}

// collect gives out what the shard has counted since the last call, agent by agent.
func (b *agentBook) collect(yield func(agent string, revision int64, calls, trial core.Calls)) {
	for _, a := range b.counted {
		yield(a.name, a.breaker.Revision, a.calls, a.trial)
		a.calls, a.trial, a.counted = core.Calls{}, core.Calls{}, false
	}
	b.counted = b.counted[:0]
}
