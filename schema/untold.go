package schema

import (
	"cmp"
	"context"
	"slices"

	"duly.dev/duly/internal/core"
)

// Untold implements Store. It leaves out a task that was started again since it ended.
func (r *reader) Untold(ctx context.Context, as core.AsOf, afterEnd int64, limit int) ([]core.Ending, error) {
	numbers, err := numbers[int64](ctx, r, as, qUntold, as.Partition, afterEnd, limit)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	saved, err := r.LoadNumbers(ctx, as, numbers)
	if err != nil {
		return nil, err
	}
	plans, _, err := r.planSet(ctx) // one whose plan cannot be read is told without the step: it holds nothing up
	if err != nil {
		return nil, err
	}
	endings := make([]core.Ending, 0, len(saved))
	for i := range saved {
		if row := &saved[i].Row; row.EndNumber > afterEnd { // else it was started again since the first query
			endings = append(endings, ending(plans[core.PlanKey{Name: row.Type, Version: row.PlanVersion}], &saved[i]))
		}
	}
	slices.SortFunc(endings, func(a, b core.Ending) int { return cmp.Compare(a.EndNumber, b.EndNumber) })
	return endings, nil
}

// ending is what is told of a task that ended. Why it failed comes from the journal, and is empty if that has
// been purged.
func ending(plan *core.Plan, saved *core.Saved) core.Ending {
	t := saved.Row
	e := core.Ending{
		Partition: t.Partition, EndNumber: t.EndNumber, ID: t.ID, Type: t.Type, State: t.State, Seq: t.Seq,
		Labels: core.FormatLabels(t.Labels), CreatedAt: t.CreatedAt, At: t.EndedAt, ReplyTo: t.ReplyTo,
	}
	switch live, err := core.Replay(plan, saved); {
	case t.State == core.StateProcessed:
	case saved.Err != nil:
		e.Error = saved.Err.Error()
	case err == nil: // else its journal has been purged
		e.Error = live.Why
		if plan != nil && live.FailedStep > 0 {
			e.Step = plan.Steps[live.FailedStep-1].Name
		}
	}
	return e
}
