package scheduler

import (
	"maps"
	"slices"
)

// OpenGate lets a partition's tasks in that a test has adopted by the shard.
func (b *Inbox) OpenGate(partition, room int) { b.openGate(partition, room) }

// AsideMax is asideMax.
const AsideMax = asideMax

// Keys are those of an agent that the shard knows of.
func (s *Shard) Keys(agent string) []string {
	return slices.Sorted(maps.Keys(s.agents.all[agent].keys))
}

// ReleaseLimits gives back what no command uses, as a scheduler that stops does.
func (s *Scheduler) ReleaseLimits() { s.releaseLimits() }

// KeysHeld is how many keys the node knows of that committers use.
func (s *Scheduler) KeysHeld() (n int) {
	for of := range s.limits.held {
		if of.keyed {
			n++
		}
	}
	return n
}
