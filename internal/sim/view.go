package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"duly.dev/duly/internal/core"
)

// What the API and the supervisor read.

// Overdue returns unfinished tasks whose bound lies before now and not before since, in the order of
// partition, bound and number, after a place in that order.
func (m *MemStore) Overdue(_ context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var due []core.Due
	for _, r := range m.rows {
		d := core.Due{Partition: r.task.Partition, Number: r.task.Number, Bound: r.task.Bound}
		if !r.task.State.Ended() && d.Bound >= since && d.Bound < now && compareDue(d, after) > 0 {
			due = append(due, d)
		}
	}
	slices.SortFunc(due, compareDue)
	return due[:min(limit, len(due))], nil
}

func compareDue(a, b core.Due) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Bound, b.Bound), cmp.Compare(a.Number, b.Number))
}

// Get returns the task of that id with its steps. Error: core.ErrNotFound.
func (m *MemStore) Get(_ context.Context, partition int, id string) (core.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ids[idKey{partition, id}]
	if r == nil {
		return core.View{}, fmt.Errorf("task %s: %w", id, core.ErrNotFound)
	}
	plan, t, err := m.replay(r)
	if err != nil {
		return core.View{}, err
	}
	v := view(t)
	v.Input, v.Seq, v.Sentence, v.Possible = t.Input, t.Seq, t.Sentence(plan, t.UpdatedAt), t.Possible(plan, t.UpdatedAt)
	for i := range t.Steps {
		s, ps := &t.Steps[i], &plan.Steps[i]
		v.Steps = append(v.Steps, core.StepView{
			Name: ps.Name, Kind: ps.Kind, Agent: ps.Agent, Child: ps.Child, Count: s.Own().Count, Status: s.StatusWord(), Attempt: s.Attempt, Due: s.Due, Result: s.Result,
		})
	}
	for _, j := range r.journal {
		if j.Round == t.Round && j.Step >= 0 && j.Step < len(v.Steps) {
			v.Steps[j.Step].At, v.Steps[j.Step].Code, v.Steps[j.Step].Error = j.At, j.Code, j.Error
		}
	}
	return v, nil
}

func view(t *core.Task) core.View {
	v := core.View{
		ID: t.ID, Type: t.Type, PlanVersion: t.PlanVersion, Partition: t.Partition, Number: t.Number, State: t.State,
		Round: t.Round, Failures: t.Failures, LockedBy: t.LockedBy, WaitsFor: t.WaitsFor, InputHash: t.InputHash,
		CompleteBy: t.Deadline, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, EndedAt: t.EndedAt,
	}
	if t.State != core.StateProcessed {
		v.Reason = t.Why
	}
	return v
}

// List returns one page of tasks without their steps, newest first.
func (m *MemStore) List(_ context.Context, f core.Filter) (core.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []core.View
	for _, r := range m.rows {
		if (f.Type == "" || f.Type == r.task.Type) && (f.State == "" || f.State == r.task.State) {
			all = append(all, view(&r.task))
		}
	}
	slices.SortFunc(all, func(a, b core.View) int {
		return -cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Number, b.Number))
	})
	from := 0
	if f.After != "" {
		var err error
		if from, err = strconv.Atoi(f.After); err != nil || from < 0 || from > len(all) {
			return core.Page{}, fmt.Errorf("list: after %q is not a cursor of a page", f.After)
		}
	}
	to := min(from+f.Limit, len(all))
	page := core.Page{Tasks: all[from:to]}
	if to < len(all) {
		page.Next = strconv.Itoa(to)
	}
	return page, nil
}

// Counts returns how many tasks of each type are in each state.
func (m *MemStore) Counts(context.Context) ([]core.Count, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[core.Count]int64{}
	for _, r := range m.rows {
		counts[core.Count{Type: r.task.Type, State: r.task.State}]++
	}
	var all []core.Count
	for c, n := range counts {
		c.Tasks = n
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b core.Count) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State))
	})
	return all, nil
}

// Cursor returns the last contiguous committed position of the partition.
func (m *MemStore) Cursor(_ context.Context, partition int) (uint64, error) {
	return m.Partition(partition).Cursor, nil
}
