package schema

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// Get implements Store.
func (r *reader) Get(ctx context.Context, partition int, id string) (core.View, error) {
	saved, err := r.LoadIDs(ctx, partition, []string{id})
	if err != nil {
		return core.View{}, err
	}
	if len(saved) == 0 {
		return core.View{}, fmt.Errorf("task %s: %w", id, core.ErrNotFound)
	}
	s := &saved[0]
	var plan *core.Plan
	if s.Row.PlanVersion != 0 {
		if plan, err = r.plan(ctx, s.Row.Type, s.Row.PlanVersion); err != nil {
			return core.View{}, err
		}
	}
	return viewOf(plan, s, core.InstantOf(time.Now()))
}

// plan is one plan version, nil when it is not stored.
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

// viewOf shows a stored task with the steps its journal leads to. Of a purged
// task the row is all there is; of one whose plan is unknown, all but the steps. at is now.
func viewOf(plan *core.Plan, saved *core.Saved, at core.Instant) (core.View, error) {
	if len(saved.Journal) == 0 {
		v := summary(&saved.Row)
		v.Input, v.Seq = saved.Row.Input, saved.Row.Seq
		v.Sentence = saved.Row.Sentence(nil, at)
		return v, nil
	}
	t, err := core.Replay(plan, saved)
	if err != nil {
		return core.View{}, err
	}
	v := summary(t) // the journal may be newer than the row
	v.Reason, v.Input, v.Seq = t.Why, t.Input, t.Seq
	v.Sentence, v.Possible = t.Sentence(plan, at), t.Possible(plan)
	if t.State == core.StateProcessed {
		v.Reason = ""
	} else if plan != nil && t.FailedStep > 0 && t.FailedStep <= len(plan.Steps) {
		v.FailedStep = plan.Steps[t.FailedStep-1].Name
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		v.Steps = append(v.Steps, core.StepView{
			Name: plan.Steps[i].Name, Agent: plan.Steps[i].Agent, Status: s.Status.String(), Attempt: s.Attempt, Due: s.Due, Result: s.Result,
		})
	}
	for i := range saved.Journal {
		rec := &saved.Journal[i]
		if rec.Round != t.Round {
			continue
		}
		if rec.Step >= 0 && rec.Step < len(v.Steps) {
			sv := &v.Steps[rec.Step]
			sv.At, sv.Code, sv.Error, sv.By = rec.At, rec.Code, rec.Error, rec.Actor
		}
		if rec.Next >= 0 && rec.Next < len(v.Steps) {
			v.Steps[rec.Next].At = rec.At
		}
	}
	return v, nil
}

func summary(t *core.Task) core.View {
	return core.View{
		ID: t.ID, Type: t.Type, PlanVersion: t.PlanVersion, Partition: t.Partition, Number: t.Number, State: t.State, Round: t.Round,
		Failures: t.Failures, LockedBy: t.LockedBy, WaitsFor: t.WaitsFor, InputHash: t.InputHash, CompleteBy: t.Deadline,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, EndedAt: t.EndedAt,
	}
}
