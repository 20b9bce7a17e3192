package scheduler

import "duly.dev/duly/internal/core"

// The gate decides whether a do finds room to leave. It is a list of stages, each one reason to hold a do back; the stage that
// lets least through counts. What is parked keeps the facts that stages judge by, so that it need not be loaded to be judged.
// Besides, queues.othersFirst and queues.begunFirst hold new tasks back for those that wait already, and the core holds back
// what is not due.
//
// A new reason is a type with room, a constant, and a line in newGate. Look also at open and agentBook.gated, which skip the
// gate; at mayLeave, mayRetry, queues.enter, keyTakes.full and claim.go, which treat some stages by name; at leaveFor, if it counts what has left;
// at what wakes the queue when it opens; at internal/node/forecasthold.go, which tells for how long; and at the sentence
// why.room in internal/core/sentence.go.

// ask describes a do that would leave: that of a task in flight or parked, or any do of an agent or of one
// key there.
type ask struct {
	agent *agentCalls
	// slot is what the partition knows of the agent; nil for a key in all partitions.
	slot *agentSlot
	// only is 1 + the one stage to ask; 0: all are asked.
	only int
	// plan is nil for any do of the agent.
	plan *planRef
	// step is 1 + the one that would leave; 0: it is one of steps.
	step  int
	steps core.StepSet
	// labels are the task's.
	labels []core.Label
	// keyed is whether the agent's limit has keys; key is the task's.
	keyed bool
	key   string
	// there is whether the task counts in the agent's window already.
	there bool
	// inTrial is whether the step takes part in the breaker's trial already.
	inTrial bool
	// placed is whether the step has its places of the limit already.
	placed bool
	// retry is whether this is a retry of a command that no agent took. Nothing was charged for it yet, so
	// the rate counts it.
	retry bool
}

// verdict is the answer of the gate, or of one stage.
type verdict struct {
	// n is how many dos may leave now; -1: any number.
	n int
	// few is whether n bounds the steps of one task together, so that the core must not begin more of them in
	// one event.
	few bool
	// by is the stage that lets least through.
	by int
	// until is when a gate that lets none through opens by itself; 0: an event opens it.
	until core.Instant
	// back is when the agent is expected back; 0: it is not away. A task that cannot wait that long is
	// undone.
	back core.Instant
}

// anyNumber is the verdict of a stage that has no objection.
var anyNumber = verdict{n: -1}

// stage holds dos back for one reason. room may be called any number of times without effect on other answers.
type stage interface {
	room(a *ask, now core.Instant) verdict
}

// The stages in the order in which they are asked. Of two that let equally little through the earlier is named.
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
	stages [stages]stage
	pauses pauseBook
	agents agentBook
	// nextRound is when a round is wanted because something at a gate may have opened.
	nextRound waker
	// now is the commit cycle's.
	now core.Instant
	// asked is memory for the ask at hand, so that it need not be allocated.
	asked ask
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

// room asks the stages and combines their verdicts. The gate opens by itself only if every closed stage does.
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

// windowStage bounds how many tasks of a partition are in flight at an agent, and how many of those wait for one that is away. A
// task that counts already may begin more steps.
type windowStage int

func (w windowStage) room(a *ask, _ core.Instant) verdict {
	if a.there {
		return anyNumber
	}
	return verdict{n: a.slot.room(int(w))}
}

// room is the pauses' stage: only a change of the pauses opens it.
func (b *pauseBook) room(a *ask, _ core.Instant) verdict {
	switch {
	case len(b.all) == 0:
	case a.plan == nil && b.pausesAll(a.agent.name), a.plan != nil && a.within(b.steps(a.plan.plan, &a.plan.pauses, a.labels)):
		return verdict{}
	}
	return anyNumber
}

// within reports whether only steps of a set would leave.
func (a *ask) within(set core.StepSet) bool {
	if a.step > 0 {
		return set.Has(a.step - 1)
	}
	return !a.steps.Empty() && a.steps.AndNot(set).Empty()
}

// breakerStage holds back what would begin at an agent whose breaker is not closed. In a trial it lets a few
// through.
type breakerStage struct{}

func (breakerStage) room(a *ask, now core.Instant) verdict {
	is := a.agent
	limit := is.breaker.Limit(now)
	if limit < 0 || a.inTrial && (limit > 0 || a.retry) { // the trial that it was in may be over, and the breaker open again
		return anyNumber
	}
	back := is.breaker.Back(now)
	return verdict{n: max(0, limit-is.trialOut), few: true, until: back, back: back}
}

// limitStage holds back what would exceed the shard's grant of the agent's limit, in places or in rate.
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

// roomFor returns how many such dos the limit lets leave now; -1: any number. A do that has its place needs
// only a call of the rate, and only if it is a retry.
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

// keyStage is limitStage for the key of the task. A key that is not known yet has no grant, so nothing
// leaves.
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

// judge asks whether a do may leave, and changes nothing.
func (g *gate) judge(a ask) verdict {
	g.asked = a
	return g.room(&g.asked, g.now)
}

// mayLeave asks for a do that is about to leave. If it may not, it also arranges that the question is asked
// again: a place is claimed for its key, or a round is planned for when the gate opens by itself.
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

// anyMay reports whether one of these steps of a task may leave.
func (g *gate) anyMay(e *entry, steps core.StepSet) (may bool) {
	g.agents.keysOf(e)
	steps.Each(func(i int) { may = may || g.mayLeave(e.ask(i)).n != 0 })
	return may
}

// open reports whether no stage holds anything back in a partition, so that the gate need not be asked.
func (g *gate) open(p *partition) bool {
	return p.full == 0 && len(g.pauses.all) == 0 && !g.agents.gated()
}

// ask describes any do of the agent.
func (slot *agentSlot) ask() ask { return ask{agent: slot.calls, slot: slot} }

// ask describes any do of the key, and asks only the key's own stage.
func (k *keyCalls) ask() ask { return ask{agent: k.agent, keyed: true, key: k.key, only: byKey + 1} }

// ask describes the do for which the task is parked.
func (t *parkedTask) ask(slot *agentSlot) ask {
	return ask{agent: slot.calls, slot: slot, plan: t.plan, steps: t.steps, labels: t.labels, keyed: t.keyed, key: t.key}
}

// ask describes the do of one step of a task in flight.
func (e *entry) ask(step int) ask {
	slot := e.plan.slots[step]
	a := slot.ask()
	a.plan, a.step, a.labels = e.plan, step+1, e.task.Labels
	a.there = e.at.Meets(e.plan.here[step])
	a.inTrial = e.trial.Has(step) && e.task.Occupies(e.plan.plan, step)
	a.placed = a.inTrial || e.places.Has(step)
	key, at := e.keyName(step)
	a.key, a.keyed = key, at != nil
	return a
}

// mayRetry asks for a retry of a command that no agent took, and charges for it. The task counts in the
// window and in the trial already; what it needs is that no pause is on, a call of the rate and, if it gave
// that up, its place. A retry that a pause stops gives its place in the window to others, and takes it again
// when it leaves, even beyond the window.
func (g *gate) mayRetry(x *pending) bool {
	e, step := x.e, x.effect.Step
	g.agents.keysOf(e)
	a := e.ask(step)
	a.there, a.inTrial, a.placed, a.retry = true, true, e.places.Has(step), true
	if v := g.mayLeave(a); v.n == 0 {
		if v.by == byPause && !e.pausedRetries.Has(step) {
			e.pausedRetries.Add(step)
			g.nextRound.wake(g.now) // others may use its place in the window
		}
		return false
	}
	if e.pausedRetries.Has(step) {
		e.pausedRetries.Remove(step)
		at, _, _ := e.present()
		x.p.occupy(e, at)
	}
	if !a.placed && len(g.agents.limited) > 0 { // without limits no places are counted
		e.place(step)
		e.places.Add(step)
		e.noPlace.Remove(step)
	}
	e.spend(step, g.now)
	return true
}

// markBlocked tells the core, in an event, which steps may not begin now. Most of these are not about to
// begin, so no key is asked to claim a place for them.
func (g *gate) markBlocked(p *partition, e *entry, ev *core.Event) {
	if e.plan == nil || g.open(p) {
		return
	}
	g.agents.keysOf(e)
	var full, few core.StepBuilder
	full.AddAll(ev.Full)
	few.AddAll(ev.Few)
	for i, slot := range e.plan.slots {
		if slot == nil {
			continue
		}
		v := g.judge(e.ask(i))
		switch {
		case v.n == 0:
			full.Add(i)
			if v.back == 0 {
				break
			}
			if ev.Back == nil {
				g.agents.backTimes = append(g.agents.backTimes[:0], make([]core.Instant, len(e.plan.slots))...)
				ev.Back = g.agents.backTimes
			}
			ev.Back[i] = v.back
		case v.few:
			few.Add(i)
		}
	}
	ev.Full, ev.Few = full.Set(), few.Set()
}

// leaveFor charges for the do commands that an event lets leave: places, calls of rates, parts of trials.
// resumed: a takeover found them out already.
func (g *gate) leaveFor(e *entry, out *core.Outcome, resumed bool) {
	for i := range out.Effects {
		x := &out.Effects[i]
		if x.Kind != core.EffectDo {
			continue
		}
		// If the task's deadline cut the command's time short, its silence does not count against the agent.
		if e.heardAll.Remove(x.Step); !resumed && g.agents.heard != 0 && x.At < e.task.Deadline.Add(-e.plan.plan.UndoReserve) {
			e.heardAll.Add(x.Step)
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
		if !x.Again { // mayRetry has charged for a retry
			e.spend(x.Step, g.now)
			e.round.spent.Add(x.Step)
		}
		if state, _ := a.breaker.At(g.now); state != core.BreakerClosed && !e.trial.Has(x.Step) {
			a.trialOut++
			e.trial.Add(x.Step)
		}
	}
}

// unblock unmarks steps; the caller removes the task from the slot's list.
func (e *entry) unblock(steps core.StepSet) { e.blocks = e.blocks.AndNot(steps) }

// block lists the task at the agents for which a branch of it waits.
func (g *gate) block(p *partition, e *entry) {
	if g.open(p) {
		return
	}
	e.blocked(g.now).AndNot(e.blocks).Each(func(i int) {
		slot := e.plan.slots[i]
		if !e.blocks.Meets(e.plan.here[i]) {
			slot.blocked = append(p.shed(slot.blocked, func(e *entry) bool {
				here := e.plan.at(slot)
				over := !e.blocked(g.now).Meets(here)
				if over {
					e.unblock(here)
				}
				return over
			}), e)
		}
		e.blocks.Add(i)
		if slot.room(p.window) > 0 {
			g.nextRound.wake(g.now)
		}
	})
}
