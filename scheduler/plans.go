package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// planBook is the plans as last read. A plan version never changes, so what is
// in the book stays true; only what is missing is looked for again.
type planBook struct {
	byType map[string]map[int64]*core.Plan
	latest map[string]*core.Plan
	refs   map[refKey]*planRef
	readAt core.Instant
	old    bool // somebody announced a change
}

type refKey struct {
	partition int
	plan      *core.Plan
}

func (b *planBook) init() {
	b.byType = map[string]map[int64]*core.Plan{}
	b.latest = map[string]*core.Plan{}
	b.refs = map[refKey]*planRef{}
	b.old = true
}

func (b *planBook) forget(partition int) {
	for key := range b.refs {
		if key.partition == partition {
			delete(b.refs, key)
		}
	}
}

func (b *planBook) stale() { b.old = true }

func (b *planBook) find(name string, version int64) *core.Plan {
	if version == 0 {
		return b.latest[name]
	}
	return b.byType[name][version]
}

func (b *planBook) read(plans []core.Plan, now core.Instant) {
	for i := range plans {
		p := plans[i]
		versions := b.byType[p.Name]
		if versions == nil {
			versions = map[int64]*core.Plan{}
			b.byType[p.Name] = versions
		}
		if versions[p.Version] != nil {
			continue // keep the pointer that tasks in hand share
		}
		versions[p.Version] = &p
		if l := b.latest[p.Name]; l == nil || l.Version < p.Version {
			b.latest[p.Name] = &p
		}
	}
	b.readAt, b.old = now, false
}

// planFor returns the plan with its agents' slots in the partition; version 0
// takes the highest. nil: there is none, also after a fresh look.
func (s *Shard) planFor(ctx context.Context, p *partition, name string, version int64) (*planRef, error) {
	now := s.turn.now
	plan := s.plans.find(name, version)
	// A version was read from the store by whoever names it, so it is there; a
	// type alone may be anybody's guess, and a flood of those is not looked up.
	if s.plans.old || (plan == nil && (version != 0 || now >= s.plans.readAt.Add(s.cfg.PlansRetry))) {
		plans, err := s.store.Plans(ctx)
		if err != nil {
			return nil, fmt.Errorf("plans: %w", err)
		}
		s.plans.read(plans, now)
		plan = s.plans.find(name, version)
	}
	if plan == nil {
		return nil, nil
	}
	key := refKey{p.id, plan}
	ref := s.plans.refs[key]
	if ref == nil {
		ref = &planRef{plan: plan, slots: make([]int, len(plan.Steps))}
		for i := range plan.Steps {
			ref.slots[i] = p.slot(plan.Steps[i].Agent)
		}
		s.plans.refs[key] = ref
	}
	return ref, nil
}
