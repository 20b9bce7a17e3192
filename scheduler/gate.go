package scheduler

import "duly.dev/duly/internal/core"

// The gate. Whether a do may leave is asked here and nowhere else. A stage is one reason to hold it back; they are one
// list, and the least that one of them lets through counts. What waits keeps what the stages judge it by, so that it is
// judged without being loaded.

// ask is a do that would leave, of a task in flight or parked, or any do of an agent.
type ask struct {
	slot   *agentSlot
	plan   *planRef     // nil: of any
	steps  uint64       // of the plan, of which one would leave
	labels []core.Label // of the task
	keyed  bool
	key    string // of the agent's limit, if keyed
	there  bool   // the task has a place in the agent's window
	tried  bool   // the step has its part of the breaker's trial
	placed bool   // it has its places of the limit
	again  bool   // and waits for the agent: no call has been taken, so the rate counts this one
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

// gate is the stages of a shard.
type gate [stages]stage

func (s *Shard) newGate() gate {
	return gate{
		byPause:   &s.pauses,
		byKey:     keyStage{}, // of the agent's limit
		byBreaker: breakerStage{},
		byLimit:   limitStage{}, // and its rate: they are granted together
		byWindow:  windowStage(s.cfg.AgentWindow),
	}
}

// room asks all stages.
func (g *gate) room(a *ask, now core.Instant) verdict {
	all, event := anyNumber, false
	for i, s := range g {
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
	return verdict{n: max(0, int(w)-a.slot.load)}
}

// mayLeave asks the gate. Where it opens by itself a round is wanted then.
func (s *Shard) mayLeave(a ask) verdict {
	s.asked = a
	v := s.gate.room(&s.asked, s.cycle.now)
	switch {
	case v.n == 0 && v.by == byKey:
		a.slot.calls.key(a.key).keepsBack(s.cycle.now)
	case v.n == 0 && v.until != 0:
		s.looks.wake(v.until)
	}
	return v
}

// open reports whether no stage holds back any do in a partition.
func (s *Shard) open(p *partition) bool {
	return p.full == 0 && len(s.pauses.all) == 0 && !s.agents.gated()
}

// askOf is the do of a step of a task.
func (s *Shard) askOf(e *entry, step int) ask {
	slot := e.plan.slots[step]
	a := ask{slot: slot, plan: e.plan, steps: 1 << uint(step), labels: e.task.Labels}
	a.there = e.at&e.plan.at(slot) != 0
	if e.trial&a.steps != 0 {
		working, _ := e.working()
		a.tried = working&a.steps != 0
	}
	a.placed = a.tried || e.out&a.steps != 0
	key, at := e.keyName(step)
	a.key, a.keyed = key, at != nil
	return a
}

// mayRetry asks for a retry of a step that waits for its agent, which has all but the word of the pauses, a call of the
// rate and, if it has given that up, its place. It takes them.
func (s *Shard) mayRetry(e *entry, step int) bool {
	s.keysOf(e)
	a := s.askOf(e, step)
	a.there, a.tried, a.placed, a.again = true, true, e.out&a.steps != 0, true
	if s.mayLeave(a).n == 0 {
		return false
	}
	if !a.placed && len(s.agents.limited) > 0 { // else places are not counted
		e.place(step)
		e.out, e.aside = e.out|a.steps, e.aside&^a.steps
	}
	s.spendCall(e, step)
	return true
}

// gateOf says in an event which steps may not begin now. Not all of them are about to: none is noted as kept back.
func (s *Shard) gateOf(p *partition, e *entry, ev *core.Event) {
	if e.plan == nil || s.open(p) {
		return
	}
	s.keysOf(e)
	for i, slot := range e.plan.slots {
		if slot == nil {
			continue
		}
		s.asked = s.askOf(e, i)
		v := s.gate.room(&s.asked, s.cycle.now)
		switch {
		case v.n == 0:
			ev.Full |= 1 << uint(i)
			if v.back != 0 {
				s.backs(e, ev)[i] = v.back
			}
		case v.few:
			ev.Few |= 1 << uint(i)
		}
	}
}

// backs is the memory of an event for when agents are back.
func (s *Shard) backs(e *entry, ev *core.Event) []core.Instant {
	if ev.Back == nil {
		s.agents.back = append(s.agents.back[:0], make([]core.Instant, len(e.plan.slots))...)
		ev.Back = s.agents.back
	}
	return ev.Back
}
