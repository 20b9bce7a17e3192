package scheduler

import (
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
)

// OpenGate lets a partition's tasks in that a test has adopted by the shard.
func (b *Inbox) OpenGate(partition, room int) { b.openGate(partition, room) }

// Grants is how many grants wait for a cycle.
func (b *Inbox) Grants() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mail.Grants)
}

// AsideMax is asideMax.
const AsideMax = asideMax

// CountChildren has the children counted of all tasks that have come back to memory and have not counted them.
func (s *Shard) CountChildren() {
	for _, p := range s.inOrder() {
		for _, number := range slices.Sorted(maps.Keys(p.tasks)) {
			for _, f := range p.tasks[number].fans {
				if f.recount && f.stands() {
					s.families.queue(f)
				}
			}
		}
	}
}

// Wakes is how many wakes are kept.
func (s *Shard) Wakes() int { return len(s.wakes) }

// Keys are those of an agent that the shard knows of.
func (s *Shard) Keys(agent string) []string {
	return slices.Sorted(maps.Keys(s.gate.agents.all[agent].keys))
}

// KeysHeld is how many keys the node knows of that committers use.
func (s *Scheduler) KeysHeld() (n int) {
	for of := range s.limits.grants {
		if of.keyed {
			n++
		}
	}
	return n
}

// AsksForLimitTurn reports whether a turn is asked for, and takes that back.
func (s *Scheduler) AsksForLimitTurn() bool {
	select {
	case <-s.limits.kick:
		return true
	default:
		return false
	}
}

// Counted is what a node counts of calls.
type Counted struct{ b *breakers }

// NewCounted begins with none.
func NewCounted() *Counted { return &Counted{newBreakers()} }

// Asks collects what a shard has counted, and reports whether a turn is asked for.
func (c *Counted) Asks(s *Shard, now core.Instant, p *core.BreakerPolicy) bool {
	c.b.collect(&s.gate.agents, now, p)
	select {
	case <-c.b.kick:
		return true
	default:
		return false
	}
}

// Doubt takes what a former owner knew of a partition.
func (s *Shard) Doubt(e core.Evidence) bool {
	return s.evidence.doubt(s.partitions[e.Partition], e)
}

// Rewound remembers that a stream of a partition went back.
func (s *Shard) Rewound(partition int, err error) { s.evidence.wentBack(partition, err) }

// Listed is how many tasks a partition lists as waiting at an agent in memory, also those that have gone since.
func (s *Shard) Listed(partition int, agent string) int {
	slot := s.partitions[partition].slots[agent]
	return len(slot.waiting) + len(slot.unable) + len(slot.blocked)
}

// Calls gives out what the shard has counted since the last call.
func (s *Shard) Calls(yield func(agent string, revision int64, calls, trial core.Calls)) {
	s.gate.agents.collect(yield)
}

// Term is that of grants which the shard takes.
func (s *Shard) Term() int64 { return s.gate.agents.term }

// Forget lets a task go as one whose rows are refused, whatever they are.
func (s *Shard) Forget(partition int, id string) {
	p := s.partitions[partition]
	if e := p.ids[id]; e != nil {
		p.drop(e)
	}
}

// CountUses counts what is used of limits up to now, as a committer does after each cycle.
func (s *Shard) CountUses() { s.gate.limitUses(s.inOrder(), func(limitUse) {}) }

// Answers are how many answers of the last cycle were timed, and how many of them were late.
func (s *Shard) Answers() (timed, late int) { return s.cycle.answers, s.cycle.late }

// LacksRoom reports whether parked tasks were left in the last cycle because the node's window is full.
func (s *Shard) LacksRoom() bool { return s.cycle.noRoom }

// Own is own, of a shard that no committer runs.
func (a *Admission) Own(partitions int) { a.own(partitions) }
