package schema

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// Existing implements Store.
func (r *reader) Existing(ctx context.Context, partition int, ids []string) ([]core.Existing, error) {
	var all []core.Existing
	for row := range each(r.query(ctx, qExisting+r.among("tasks", "id"), partition, r.list(ids))) {
		var e core.Existing
		var state string
		if err := row.Scan(&e.Partition, &e.Number, &e.ID, &e.Type, &e.InputHash, &state); err != nil {
			return nil, fmt.Errorf("ids of partition %d: %w", partition, err)
		}
		e.State = core.State(state)
		all = append(all, e)
	}
	found := make([]*core.Existing, len(all))
	for i := range all {
		found[i] = &all[i]
	}
	return all, r.explain(ctx, found)
}

// explainDuplicates fills in why the tasks ended that have the ids of births.
func (r *reader) explainDuplicates(ctx context.Context, duplicates []core.Duplicate) error {
	found := make([]*core.Existing, len(duplicates))
	for i := range duplicates {
		found[i] = &duplicates[i].Existing
	}
	return r.explain(ctx, found)
}

// explain fills in, for tasks that ended in undone or error, why they did. The reason is in their journals,
// of which it reads all.
func (r *reader) explain(ctx context.Context, found []*core.Existing) error {
	byPartition := map[int][]int64{}
	for _, e := range found {
		if e.State == core.StateUndone || e.State == core.StateError {
			// Journals are read by partition; the duplicates of a commit are in few.
			byPartition[e.Partition] = append(byPartition[e.Partition], e.Number)
		}
	}
	if len(byPartition) == 0 {
		return nil
	}
	plans, _, err := r.planSet(ctx) // a plan that cannot be read is no hindrance: the journal says why a task ended
	if err != nil {
		return err
	}
	why := map[[2]int64]string{}
	for partition, numbers := range byPartition {
		saved, err := r.LoadNumbers(ctx, core.AsOf{Partition: partition}, numbers)
		if err != nil {
			return err
		}
		for i := range saved {
			row := &saved[i].Row
			why[[2]int64{int64(partition), row.Number}] = ending(plans[core.PlanKey{Name: row.Type, Version: row.PlanVersion}], &saved[i]).Error
		}
	}
	for _, e := range found {
		e.Reason = why[[2]int64{int64(e.Partition), e.Number}]
	}
	return nil
}
