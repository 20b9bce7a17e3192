package scheduler

import "slices"

// Wakers is what makes a shard look again at a task that is parked at an agent of one of its partitions.
type Wakers struct {
	Round bool // each round does, where the agent has room
	Pause bool // it stands aside until the pauses change
	Key   bool // it stands aside until its key has room, or another of it that has not goes on
}

// Wakers returns what wakes a parked task. ok is false where the shard leaves it to another owner. Only the driver may call
// it; the simulator does, which holds it to the state of the gates.
func (s *Shard) Wakers(partition int, agent string, number int64) (is Wakers, ok bool) {
	p := s.partitions[partition]
	if p == nil || p.noMore {
		return Wakers{}, false
	}
	slot := p.slots[agent]
	if slot == nil || slot.order == nil {
		return Wakers{}, true
	}
	at := slot.order
	for of, q := range at.aside.keys {
		here := slices.ContainsFunc(q.tasks, func(one asideTask) bool { return one.number == number })
		switch {
		case !here && (!q.more || at.has(number)):
		case of.paused:
			is.Pause = len(s.gate.pauses.all) > 0
		default:
			k := slot.calls.keys[of.key]
			is.Key = is.Key || k != nil && (k.nextRound.lookAt != 0 || s.gate.agents.nextRateRound.lookAt != 0 || s.queues.goesOn(k) || s.gate.judge(k.ask()).n == 0)
		}
		if here {
			return is, true
		}
	}
	is.Round = at.has(number) || at.beyond
	return is, true
}
