package sim

import (
	"cmp"
	"context"
	"slices"

	"duly.dev/duly/internal/core"
)

// Purge forgets inputs and journals of up to limit tasks of a partition that
// ended before detail, oldest first, and rows of those that ended before row.
func (m *MemStore) Purge(_ context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.partition(partition)
	if st.Epoch != epoch {
		return 0, nil
	}
	touched := 0
	for _, r := range m.publishedEnds(st) {
		if r.task.EndedAt < row && r.purged && touched < limit {
			m.remove(r)
			touched++
		}
	}
	rows, gone := touched, map[int64]bool{}
	for _, r := range m.publishedEnds(st) {
		up := m.rows[rowKey{partition, r.task.Parent}]
		if r.task.Parent != 0 && up != nil && !up.purged {
			continue // it goes with its parent
		}
		if gone[r.task.Parent] {
			break // it ended after its parent, and goes with the next purge
		}
		if r.task.EndedAt >= detail {
			break // as in SQL: by a wrong clock a later end may be older
		}
		if !r.purged && touched-rows < limit {
			gone[r.task.Number] = true
			for _, kid := range m.endedBefore(r) {
				kid.purged, kid.task.Input, kid.journal, kid.commits, kid.past = true, nil, nil, nil, kid.commits
				touched++
			}
			r.purged, r.task.Input, r.journal, r.commits, r.past = true, nil, nil, nil, r.commits
			touched++
		}
	}
	return touched, nil
}

// endedBefore are the children of a task that ended before it, and theirs, as far as they are neither in error nor forgotten.
func (m *MemStore) endedBefore(r *row) (all []*row) {
	for _, kid := range m.inOrder(r.task.Partition, func(o *row) bool { return o.task.Parent == r.task.Number }) {
		if kid.task.State.Ended() && kid.task.State != core.StateError && !kid.purged && kid.task.EndNumber < r.task.EndNumber {
			all = append(append(all, kid), m.endedBefore(kid)...)
		}
	}
	return all
}

// publishedEnds are a partition's tasks whose end is published and needs no operator, in the order of their ends.
func (m *MemStore) publishedEnds(st *core.PartitionState) []*row {
	var ends []*row
	for _, r := range m.byNumber[st.Partition] {
		end := r.task.EndNumber
		if r.task.State.Ended() && r.task.State != core.StateError && end > 0 && end <= st.Told {
			ends = append(ends, r)
		}
	}
	slices.SortFunc(ends, func(a, b *row) int { return cmp.Compare(a.task.EndNumber, b.task.EndNumber) })
	return ends
}
