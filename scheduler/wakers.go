package scheduler

import "slices"

// Wakers says what would make a shard look again at a parked task.
type Wakers struct {
	// Round: each round looks at it, if the agent has room.
	Round bool
	// Pause: it stands aside until the pauses change.
	Pause bool
	// Key: it stands aside until its key has room, or until another task of the key that is in the order goes
	// on.
	Key bool
}

// Wakers returns what wakes a parked task. ok is false if the shard leaves it to another owner. Only the
// driver of the committer may call it. The simulator compares it with the state of the gates, to find tasks
// that nothing wakes.
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
