package scheduler

import "duly.dev/duly/internal/core"

// The gate. Whether a do may leave is asked here and nowhere else. A stage is one reason to hold it back; they are one
// list, and the least that one of them lets through counts. What waits keeps what the stages judge it by, so that it is
// judged without being loaded.

// ask is a do that would leave, of a task in flight or parked, or any do of an agent or of a key there.
type ask struct {
	agent   *agentCalls
	load    int          // tasks of the partition at the agent
	only    int          // one more than the stage that is asked alone; 0: all are
	plan    *planRef     // nil: of any
	steps   uint64       // of the plan, of which one would leave
	labels  []core.Label // of the task
	keyed   bool
	key     string // of the agent's limit, if keyed
	there   bool   // the task has a place in the agent's window
	inTrial bool   // the step has its part of the breaker's trial
	placed  bool   // it has its places of the limit
	retry   bool   // and waits for the agent: no call has been taken, so the rate counts this one
}

// verdict is what the gate, or one of its stages, says.
type verdict struct {
	n     int          // dos that may leave now; -1: as many as come
	few   bool         // of the steps of one task, too, no more than these may
	by    int          // the stage that lets least through
	until core.Instant // if none may leave: it opens by itself then; 0: an event opens it
	back  core.Instant // when the agent is back; 0: it is not away. Who cannot wait so long is undone
}

// anyNumber is the verdict of a stage that holds nothing back.
var anyNumber = verdict{n: -1}

// stage holds dos back for one reason. room changes nothing that another answer depends on.
type stage interface {
	room(a *ask, now core.Instant) verdict
}

// The stages, by their place in the list.
const (
	byPause = iota
	byKey
	byBreaker
	byLimit
	byWindow
	stages
)

// gate is the stages of a shard with all that they know.
type gate struct {
	stages    [stages]stage
	pauses    pauseBook
	agents    agentBook
	nextRound waker        // a round is to look at all that waits
	now       core.Instant // of the commit cycle
	asked     ask          // last
}

func newGate(cfg *Config) *gate {
	g := &gate{}
	g.agents.now, g.agents.hears, g.agents.keyOf = cfg.Now, cfg.Hears, cfg.KeyOf
	g.stages = [stages]stage{
		byPause:   &g.pauses,
		byKey:     keyStage{}, // of the agent's limit
		byBreaker: breakerStage{},
		byLimit:   limitStage{}, // and its rate: they are granted together
		byWindow:  windowStage(cfg.AgentWindow),
	}
	return g
}

// room asks the stages.
func (g *gate) room(a *ask, now core.Instant) verdict {
	all, event := anyNumber, false
	for i, s := range g.stages {
		if a.only != 0 && a.only != i+1 {
			continue
		}
		v := s.room(a, now)
		if v.n < 0 {
			continue
		}
		all.few = all.few || v.few
		all.back = max(all.back, v.back)
		if v.n == 0 {
			event = event || v.until == 0
			all.until = max(all.until, v.until)
		}
		if all.n < 0 || v.n < all.n {
			all.n, all.by = v.n, i
		}
	}
	if event {
		all.until = 0
	}
	return all
}

// windowStage bounds the tasks of a partition at an agent. A task that is there has room for its other steps.
type windowStage int

func (w windowStage) room(a *ask, _ core.Instant) verdict {
	if a.there {
		return anyNumber
	}
	return verdict{n: max(0, int(w)-a.load)}
}

// room is the stage of the gate: a change of the pauses opens it.
func (b *pauseBook) room(a *ask, _ core.Instant) verdict {
	switch {
	case len(b.all) == 0:
	case a.plan == nil && b.pausesAll(a.agent.name), a.plan != nil && a.steps != 0 && a.steps&^b.steps(a.plan.plan, &a.plan.pauses, a.labels) == 0:
		return verdict{}
	}
	return anyNumber
}

// breakerStage holds back what would begin at an agent whose breaker is not closed.
type breakerStage struct{}

func (breakerStage) room(a *ask, now core.Instant) verdict {
	is := a.agent
	limit := is.breaker.Limit(now)
	if limit < 0 || a.inTrial {
		return anyNumber
	}
	back := is.breaker.Back(now)
	return verdict{n: max(0, limit-is.trialOut), few: true, until: back, back: back}
}

// limitStage holds back what an agent's limit has no place for, or its rate no call.
type limitStage struct{}

func (limitStage) room(a *ask, now core.Instant) verdict {
	is := a.agent
	if is.limit == nil {
		return anyNumber
	}
	n := is.roomFor(a, now)
	v := verdict{n: n, few: n >= 0}
	if n == 0 {
		v.until = is.next(now)
	}
	return v
}

// roomFor is how many do commands may leave now, each of which is over when the grant ends; -1: as many as come.
func (u *inUse) roomFor(a *ask, now core.Instant) int {
	switch {
	case a.retry && u.limit.outlasts(now, a.agent.longest):
		return 0
	case a.retry && a.placed:
		return u.limit.calls(now)
	case a.placed:
		return -1
	}
	return u.limit.room(now, u.out, a.agent.longest)
}

// keyStage holds back what has no place, or no call, of its key.
type keyStage struct{}

func (keyStage) room(a *ask, now core.Instant) verdict {
	is := a.agent
	if !a.keyed || is.keys == nil {
		return anyNumber
	}
	k := is.keys[a.key]
	if k == nil {
		return verdict{}
	}
	n := k.roomFor(a, now)
	return verdict{n: n, few: n >= 0}
}

// judge is where it is asked whether a do may leave.
func (g *gate) judge(a ask) verdict {
	g.asked = a
	return g.room(&g.asked, g.now)
}

// mayLeave asks for a do that is about to leave. Where the gate opens by itself a round is wanted then.
func (g *gate) mayLeave(a ask) verdict {
	v := g.judge(a)
	switch {
	case v.n == 0 && v.by == byKey:
		a.agent.key(a.key).noteBlocked(g.now)
	case v.n == 0 && v.until != 0:
		g.nextRound.wake(v.until)
	}
	return v
}

// anyMay reports whether one of the steps of a task may leave.
func (g *gate) anyMay(e *entry, steps uint64) (may bool) {
	g.agents.keysOf(e)
	each(steps, func(i int) { may = may || g.mayLeave(e.ask(i)).n != 0 })
	return may
}

// open reports whether no stage holds back any do in a partition.
func (g *gate) open(p *partition) bool {
	return p.full == 0 && len(g.pauses.all) == 0 && !g.agents.gated()
}

// ask is any do of the agent.
func (slot *agentSlot) ask() ask { return ask{agent: slot.calls, load: slot.load} }

// ask is any do of the key: whether the key itself lets it leave.
func (k *keyCalls) ask() ask { return ask{agent: k.agent, keyed: true, key: k.key, only: byKey + 1} }

// ask is its do.
func (t *parkedTask) ask(slot *agentSlot) ask {
	return ask{agent: slot.calls, load: slot.load, plan: t.plan, steps: t.steps, labels: t.labels, keyed: t.keyed, key: t.key}
}

// ask is the do of a step of a task.
func (e *entry) ask(step int) ask {
	slot := e.plan.slots[step]
	a := slot.ask()
	a.plan, a.steps, a.labels = e.plan, 1<<uint(step), e.task.Labels
	a.there = e.at&e.plan.at(slot) != 0
	if e.trial&a.steps != 0 {
		working, _ := e.working()
		a.inTrial = working&a.steps != 0
	}
	a.placed = a.inTrial || e.places&a.steps != 0
	key, at := e.keyName(step)
	a.key, a.keyed = key, at != nil
	return a
}

// mayRetry asks for a retry of a step that waits for its agent, which has all but the word of the pauses, a call of the
// rate and, if it has given that up, its place. It takes them. One that a pause holds leaves its place in the window to
// others, and has it again, even beyond the window, when it leaves.
func (g *gate) mayRetry(x *pending) bool {
	e, step := x.e, x.effect.Step
	g.agents.keysOf(e)
	a := e.ask(step)
	a.there, a.inTrial, a.placed, a.retry = true, true, e.places&a.steps != 0, true
	if v := g.mayLeave(a); v.n == 0 {
		if v.by == byPause && e.pausedRetries&a.steps == 0 {
			e.pausedRetries |= a.steps
			g.nextRound.wake(g.now) // others may have its place in the window
		}
		return false
	}
	if e.pausedRetries&a.steps != 0 {
		e.pausedRetries &^= a.steps
		at, _, _ := e.present()
		x.p.occupy(e, at)
	}
	if !a.placed && len(g.agents.limited) > 0 { // else places are not counted
		e.place(step)
		e.places, e.noPlace = e.places|a.steps, e.noPlace&^a.steps
	}
	e.spend(step, g.now)
	return true
}

// markBlocked marks in an event which steps may not begin now. Not all of them are about to: none is noted as kept back.
func (g *gate) markBlocked(p *partition, e *entry, ev *core.Event) {
	if e.plan == nil || g.open(p) {
		return
	}
	g.agents.keysOf(e)
	for i, slot := range e.plan.slots {
		if slot == nil {
			continue
		}
		v := g.judge(e.ask(i))
		switch {
		case v.n == 0:
			ev.Full |= 1 << uint(i)
			if v.back == 0 {
				break
			}
			if ev.Back == nil {
				g.agents.backTimes = append(g.agents.backTimes[:0], make([]core.Instant, len(e.plan.slots))...)
				ev.Back = g.agents.backTimes
			}
			ev.Back[i] = v.back
		case v.few:
			ev.Few |= 1 << uint(i)
		}
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
		if e.heardAll &^= 1 << uint(x.Step); !resumed && g.agents.heard != 0 && x.At < e.task.Deadline.Add(-e.plan.plan.UndoReserve) {
			e.heardAll |= 1 << uint(x.Step)
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
			a.trialOut++
			e.trial |= 1 << uint(x.Step)
		}
	}
}

// unblock forgets branches that waited for room.
func (e *entry) unblock(steps uint64) { e.blocks &^= steps }

// block keeps in mind which branches of a task wait for room.
func (g *gate) block(p *partition, e *entry) {
	if g.open(p) {
		return
	}
	each(e.blocked(g.now)&^e.blocks, func(i int) {
		slot := e.plan.slots[i]
		if e.blocks&e.plan.at(slot) == 0 {
			slot.blocked = append(slot.blocked, e)
		}
		e.blocks |= 1 << uint(i)
		if slot.load < p.window {
			g.nextRound.wake(g.now)
		}
	})
}
