package schema

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// countIn counts some of the tasks of a partition, each of the states by an index that
// has no others: those in hand, those parked, those undone, those in error, and those
// that have ended, the newest first.
const (
	countBegin = `SELECT type, state, count(*) FROM (SELECT type, state FROM tasks WHERE partition = ?1 AND `
	countEnd   = ` LIMIT ?2) AS counted GROUP BY type, state`
	qInHand    = countBegin + `state IN ('processing', 'undoing')` + countEnd
	qParked    = countBegin + `state = 'pending' ORDER BY number DESC` + countEnd
	qUndone    = countBegin + `state IN ('undone', 'error') AND state = 'undone' ORDER BY number DESC` + countEnd
	qInError   = countBegin + `state IN ('undone', 'error') AND state = 'error' ORDER BY number DESC` + countEnd
	qEnded     = countBegin + `end_number > 0 ORDER BY end_number DESC` + countEnd
)

// countGroups are the states that each query counts.
var countGroups = []struct {
	query  string
	states []core.State
}{
	{qInHand, []core.State{core.StateProcessing, core.StateUndoing}},
	{qParked, []core.State{core.StatePending}},
	{qUndone, []core.State{core.StateUndone}},
	{qInError, []core.State{core.StateError}},
	{qEnded, []core.State{core.StateProcessed}},
}

// CountsUpTo implements operate.Reader.
func (r *reader) CountsUpTo(ctx context.Context, most int) ([]core.Count, error) {
	partitions, err := column[int64](ctx, r, `SELECT partition FROM partitions`)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	counts := map[core.Count]int64{}
	more := map[core.State]bool{}
	for _, p := range partitions {
		for _, g := range countGroups {
			limit := int64(most/len(partitions) + 1)
			read, err := r.countSome(ctx, counts, g.query, g.states, p, limit)
			if err != nil {
				return nil, fmt.Errorf("counts of partition %d: %w", p, err)
			}
			for _, s := range g.states {
				more[s] = more[s] || read == limit
			}
		}
	}
	all := make([]core.Count, 0, len(counts))
	for c, n := range counts {
		c.Tasks, c.AtLeast = n, more[c.State]
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b core.Count) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State)) })
	return all, nil
}

// countSome adds what a query counts in those states, and returns how many tasks it
// read, which may be in others as well.
func (r *reader) countSome(ctx context.Context, counts map[core.Count]int64, query string, states []core.State, partition, limit int64) (read int64, err error) {
	for row := range each(r.query(ctx, query, partition, limit)) {
		var c core.Count
		var n int64
		var state string
		if err := row.Scan(&c.Type, &state, &n); err != nil {
			return 0, err
		}
		read += n
		if c.State = core.State(state); slices.Contains(states, c.State) {
			counts[c] += n
		}
	}
	return read, nil
}
