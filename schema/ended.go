package schema

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// qEnded reads tasks of a partition with end numbers below one, those that ended last first.
const qEnded = `SELECT id, type, plan_version, state, round, created_at, ended_at, end_number FROM tasks
	WHERE partition = ?1 AND end_number > 0 AND end_number < ?2 ORDER BY end_number DESC LIMIT ?3`

// Ended implements Store.
func (a *asked) Ended(ctx context.Context, since core.Instant, limit int, after string) (core.Page, error) {
	if limit < 1 || limit > operate.ListMax {
		return core.Page{}, fmt.Errorf("ended tasks: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	partitions, at, err := a.of.positionsAfter(ctx, after)
	if err != nil {
		return core.Page{}, fmt.Errorf("ended tasks: %w", err)
	}
	var p core.Page
	for i, partition := range partitions {
		if at[i] == 0 || limit == 0 {
			continue
		}
		rows, err := a.endedIn(ctx, partition, &at[i], since, limit, &p.Tasks)
		if err != nil {
			return core.Page{}, fmt.Errorf("ended tasks of partition %d: %w", partition, err)
		}
		limit -= rows
	}
	p.Next = at.String()
	return p, nil
}

// endedIn appends what ended in a partition below an end number, which goes on to where the next page begins; 0: nowhere. It
// returns how many rows it read. End numbers follow the clocks of owners, which differ by up to clockSkewMax.
func (a *asked) endedIn(ctx context.Context, partition int64, below *int64, since core.Instant, limit int, all *[]core.View) (rows int, err error) {
	for row := range each(a.of.query(ctx, qEnded, partition, *below, limit)) {
		v := core.View{Partition: int(partition)}
		var state string
		var created, ended instant
		if err := row.Scan(&v.ID, &v.Type, &v.PlanVersion, &state, &v.Round, &created, &ended, below); err != nil {
			return 0, err
		}
		rows++
		v.State, v.CreatedAt, v.EndedAt = core.State(state), core.Instant(created), core.Instant(ended)
		if v.EndedAt < since.Add(-clockSkewMax) {
			*below = 0
			return rows, nil
		}
		if v.EndedAt >= since {
			*all = append(*all, v)
		}
	}
	if rows < limit {
		*below = 0
	}
	return rows, nil
}
