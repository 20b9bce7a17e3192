package scheduler

// Wakers is what makes a shard look again at the tasks that are parked at an agent of one of its partitions.
type Wakers struct {
	Room    bool // any round, where the agent has room
	Pause   bool // a change of the pauses, or the end of one
	Breaker bool // a change of the agent's breaker, or the begin of a trial
}

// Wakers returns what wakes the tasks that are parked at an agent of a partition. ok is false where the shard leaves them to
// another owner. Only the driver may call it; the simulator does, which holds it to the state of the gates.
func (s *Shard) Wakers(partition int, agent string) (is Wakers, ok bool) {
	p := s.partitions[partition]
	if p == nil || p.noMore {
		return Wakers{}, false
	}
	slot := p.slots[agent]
	if slot == nil {
		return Wakers{}, true
	}
	a := s.agents.all[agent]
	return Wakers{Room: slot.park, Pause: len(s.pauses.all) > 0, Breaker: a != nil && a.breaker.State != ""}, true
}
