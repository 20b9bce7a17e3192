package schema

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"sync"

	"duly.dev/duly/internal/core"
)

// planSet reads all plans by name and version, and those that this binary cannot read, which are no error
// here.
func (r *reader) planSet(ctx context.Context) (map[core.PlanKey]*core.Plan, core.UnreadablePlans, error) {
	plans, err := r.Plans(ctx)
	unreadable, _ := errors.AsType[core.UnreadablePlans](err)
	if err != nil && unreadable == nil {
		return nil, nil, err
	}
	return core.PlansByKey(plans), unreadable, nil
}

// Plans implements Store.
func (r *reader) Plans(ctx context.Context) ([]core.Plan, error) {
	var plans []core.Plan
	var unreadable core.UnreadablePlans
	seen := map[core.PlanKey]bool{}
	for row := range each(r.query(ctx, qPlans)) {
		var is core.UnreadablePlan
		var spec []byte
		if err := row.Scan(&is.Name, &is.Version, &spec); err != nil {
			return nil, fmt.Errorf("plans: %w", err)
		}
		key := core.PlanKey{Name: is.Name, Version: is.Version}
		seen[key] = true
		plan, err := r.plans.decode(key, spec)
		if err != nil {
			is.Err = err
			is.CompleteBy, is.QueueFor = timesOf(spec)
			unreadable = append(unreadable, is)
			continue
		}
		plans = append(plans, plan)
	}
	r.plans.keep(seen)
	if len(unreadable) > 0 {
		return plans, unreadable
	}
	return plans, nil
}

// planSpecs are the plans as they were decoded last. Decoding takes much longer than reading, and nearly all are those of the
// reading before. What was decoded before a reading was cut off is kept too, so that the next one gets further.
type planSpecs struct {
	mu  sync.Mutex
	all map[core.PlanKey]planSpec
}

// planSpec is a plan decoded from a spec with this hash. Nobody changes it.
type planSpec struct {
	of   [sha256.Size]byte
	plan core.Plan
	err  error
}

// decode is decodePlan. A spec that differs from the one before, because the database went back, is decoded again.
func (s *planSpecs) decode(key core.PlanKey, spec []byte) (core.Plan, error) {
	hash := sha256.Sum256(spec)
	s.mu.Lock()
	is, there := s.all[key]
	s.mu.Unlock()
	if there && is.of == hash {
		return is.plan, is.err
	}
	plan, err := decodePlan(spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[core.PlanKey]planSpec{}
	}
	s.all[key] = planSpec{hash, plan, err}
	return plan, err
}

// keep forgets all but these.
func (s *planSpecs) keep(keys map[core.PlanKey]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(key core.PlanKey, _ planSpec) bool { return !keys[key] })
}
