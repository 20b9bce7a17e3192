package scheduler

import (
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
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

// KeysHeld is how many keys the node knows of that committers use.
func (s *Scheduler) KeysHeld() (n int) {
	for of := range s.limits.held {
		if of.keyed {
			n++
		}
	}
	return n
}

// Counted is what a node counts of calls.
type Counted struct{ b *breakers }

// NewCounted begins with none.
func NewCounted() *Counted { return &Counted{newBreakers()} }

// Asks collects what a shard has counted, and reports whether a turn is asked for.
func (c *Counted) Asks(s *Shard, now core.Instant, p *core.BreakerPolicy) bool {
	c.b.collect(s, now, p)
	select {
	case <-c.b.told:
		return true
	default:
		return false
	}
}

// Term is that of grants which the shard takes.
func (s *Shard) Term() int64 { return s.agents.term }
