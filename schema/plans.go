package schema

import (
	"context"
	"errors"
	"fmt"

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
	for row := range each(r.query(ctx, qPlans)) {
		var is core.UnreadablePlan
		var spec []byte
		if err := row.Scan(&is.Name, &is.Version, &spec); err != nil {
			return nil, fmt.Errorf("plans: %w", err)
		}
		plan, err := decodePlan(spec)
		if err != nil {
			is.Err = err
			is.CompleteBy, is.QueueFor = timesOf(spec)
			unreadable = append(unreadable, is)
			continue
		}
		plans = append(plans, plan)
	}
	if len(unreadable) > 0 {
		return plans, unreadable
	}
	return plans, nil
}
