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
	return t.View(plan, r.journal, t.UpdatedAt), nil
}

// List returns one page of tasks without their steps, newest first.
func (m *MemStore) List(_ context.Context, f core.Filter) (core.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []core.View
	for _, r := range m.rows {
		if (f.Type == "" || f.Type == r.task.Type) && (f.State == "" || f.State == r.task.State) {
			all = append(all, r.task.Summary())
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
