package scheduler

import "example.test/tree/internal/core"

type Shard struct {
	parts []*partition
	now   int
}

type partition struct {
	park  []bool
	fresh []bool
	n     int
}

type entry struct{ p *partition }

func (s *Shard) paused(e *entry) bool { return e.p.n > limit }

func (s *Shard) submit(e *entry) core.Event {
	if s.paused(e) {
		return core.Event{Kind: core.EventClaim}
	}
	return core.Event{Kind: core.EventOther}
}
