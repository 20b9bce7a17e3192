package sim

import (
	"context"
	"slices"

	"duly.dev/duly/internal/core"
)

// siblings are the children of a step, by number.
func (m *MemStore) siblings(partition int, of core.Siblings) []*row {
	first := m.ids[idKey{partition, of.First}]
	if first == nil {
		return nil
	}
	return m.inOrder(partition, func(r *row) bool {
		return r.task.Parent == of.Parent && r.task.ParentStep == of.Step && r.task.Number >= first.task.Number
	})
}

func childRows(rows []*row, limit int) []core.ChildRow {
	var all []core.ChildRow
	for _, r := range rows[:min(limit, len(rows))] {
		all = append(all, core.ChildRow{Number: r.task.Number, Index: r.task.ChildIndex, State: r.task.State, Ended: r.task.EndedAt})
	}
	return all
}

// Children returns children of a step in the order of their numbers, after one.
func (m *MemStore) Children(_ context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return nil, err
	}
	rows := slices.DeleteFunc(m.siblings(as.Partition, of), func(r *row) bool { return r.task.Number <= after })
	return childRows(rows, limit), nil
}

// Youngest returns them in the other order, below one.
func (m *MemStore) Youngest(_ context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return nil, err
	}
	rows := slices.DeleteFunc(m.siblings(as.Partition, of), func(r *row) bool { return r.task.Number >= below })
	slices.Reverse(rows)
	return childRows(rows, limit), nil
}

// ChildCounts counts the children of a step.
func (m *MemStore) ChildCounts(_ context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return core.ChildCounts{}, err
	}
	var all core.ChildCounts
	for _, r := range m.siblings(as.Partition, of) {
		all.Add(r.task.State, 1, r.task.ChildIndex, r.task.EndedAt < of.Since)
	}
	return all, nil
}

// Fresh returns pending tasks from a number on whose rows the last commits have written.
func (m *MemStore) Fresh(_ context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return nil, err
	}
	var all []core.Fresh
	for _, r := range m.inOrder(as.Partition, func(r *row) bool {
		return r.task.Number >= from && r.task.State == core.StatePending && r.written > after && r.written <= last
	}) {
		all = append(all, core.Fresh{Number: r.task.Number, Type: r.task.Type})
	}
	return all, nil
}
