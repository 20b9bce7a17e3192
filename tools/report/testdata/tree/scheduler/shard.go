package scheduler

import "example.test/tree/internal/core"

type Shard struct {
	parts []*partition
	now   int
}

type partition struct {
	ready   []bool
	looking []bool
	n       int
}

type entry struct{ p *partition }

type gate struct{}

func (gate) room(e *entry) bool { return e.p.n > limit }

func (s *Shard) submit(e *entry) core.Event {
	if (gate{}).room(e) {
		return core.Event{Kind: core.EventClaim}
	}
	return core.Event{Kind: core.EventOther}
}
