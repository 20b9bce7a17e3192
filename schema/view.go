package schema

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// Get implements Store.
func (r *reader) Get(ctx context.Context, partition int, id string) (core.View, error) {
	saved, err := r.LoadIDs(ctx, core.AsOf{Partition: partition}, []string{id})
	if err != nil {
		return core.View{}, err
	}
	if len(saved) == 0 {
		return core.View{}, fmt.Errorf("task %s: %w", id, core.ErrNotFound)
	}
	s := &saved[0]
	if s.Err != nil {
		return core.View{}, fmt.Errorf("task %s: %w", id, s.Err)
	}
	var plan *core.Plan
	if s.Row.PlanVersion != 0 {
		if plan, err = r.plan(ctx, s.Row.Type, s.Row.PlanVersion); err != nil {
			return core.View{}, err
		}
	}
	now := core.InstantOf(time.Now())
	v, err := viewOf(plan, s, now)
	// The plan was unknown at submission. If there is one by now, the view says what resubmitting would run.
	if err == nil && v.State == core.StateError && s.Row.PlanVersion == 0 {
		if newest, unread := r.plan(ctx, s.Row.Type, 0); unread == nil { // one that cannot be read starts nothing
			v.KnownBy(newest, now)
		}
	}
	if err == nil {
		v.Ancestors, err = r.ancestors(ctx, partition, &s.Row)
	}
	if len(v.Ancestors) > 0 {
		v.Parent, v.ParentType = v.Ancestors[0].ID, v.Ancestors[0].Type
	}
	if err == nil {
		err = r.countChildren(ctx, &v)
	}
	if err != nil || !failed(v.State) || ungrouped(&s.Row) {
		return v, err
	}
	v.Fingerprint, err = r.fingerprint(ctx, partition, s.Row.Number)
	return v, err
}

// fingerprint is the stored fingerprint of a task; "" if the row is gone.
func (r *reader) fingerprint(ctx context.Context, partition int, number int64) (string, error) {
	found, err := column[string](ctx, r, `SELECT COALESCE(fingerprint, '') FROM tasks WHERE partition = ?1 AND number = ?2`, partition, number)
	if err != nil {
		return "", fmt.Errorf("fingerprint of task number %d of partition %d: %w", number, partition, err)
	}
	if len(found) == 0 { // its row is gone since
		return "", nil
	}
	return found[0], nil
}

// plan reads a version of a plan; 0 for the newest. nil: it is not stored. Error: core.UnreadablePlan.
func (r *reader) plan(ctx context.Context, name string, version int64) (*core.Plan, error) {
	specs, err := column[[]byte](ctx, r, qPlan, name, version)
	if err != nil {
		return nil, fmt.Errorf("plan %s version %d: %w", name, version, err)
	}
	if len(specs) == 0 {
		return nil, nil
	}
	p, err := decodePlan(specs[0])
	if err != nil {
		return nil, fmt.Errorf("steps: %w", core.UnreadablePlan{Name: name, Version: version, Err: err})
	}
	return &p, nil
}

// viewOf shows a stored task with its steps, as replaying the journal gives them. A purged task has only its
// row, and one whose plan is not stored has no steps. at is now.
func viewOf(plan *core.Plan, saved *core.Saved, at core.Instant) (core.View, error) {
	if len(saved.Journal) == 0 {
		v := saved.Row.Summary()
		v.Input, v.Sentence = saved.Row.Input, saved.Row.Sentence(nil, nil, at)
		return v, nil
	}
	t, err := core.Replay(plan, saved) // the journal may be newer than the row
	if err != nil {
		return core.View{}, err
	}
	return t.View(plan, saved.Journal, at), nil
}
