package schema

import (
	"context"
	"encoding/json"
	"fmt"

	"duly.dev/duly/internal/core"
)

type planKey struct {
	name    string
	version int64
}

func (r *reader) planSet(ctx context.Context) (map[planKey]*core.Plan, error) {
	plans, err := r.Plans(ctx)
	if err != nil {
		return nil, err
	}
	set := make(map[planKey]*core.Plan, len(plans))
	for i := range plans {
		set[planKey{plans[i].Name, plans[i].Version}] = &plans[i]
	}
	return set, nil
}

// Plans implements Store.
func (r *reader) Plans(ctx context.Context) ([]core.Plan, error) {
	specs, err := column[[]byte](ctx, r, qPlans)
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	plans := make([]core.Plan, len(specs))
	for i, spec := range specs {
		if err := json.Unmarshal(spec, &plans[i]); err != nil {
			return nil, fmt.Errorf("plan number %d: %w", i+1, err)
		}
	}
	return plans, nil
}
