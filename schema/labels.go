package schema

import (
	"context"
	"fmt"
	"strings"

	"duly.dev/duly/internal/core"
)

// The list of the tasks with a label goes by the index of labels, some numbers at a time, and reads the rows of those by
// their key: two simple questions, because what a planner makes of a join depends on what it takes the tables for.

// labelsLook is how many numbers are read at a time, at least.
const labelsLook = 200

const (
	qLabelled  = `SELECT number FROM labels WHERE partition = ?1 AND key = ?2 AND value = ?3 AND -number > ?4 ORDER BY -number LIMIT ?5`
	qNewestOld = `SELECT COALESCE(max(number), 0) FROM tasks WHERE partition = ?1 AND created_at `
)

// newestLabelled is newest for a filter with a label.
func (r *reader) newestLabelled(ctx context.Context, all []entry, partition int64, f core.Filter, after *place) ([]entry, error) {
	key, value, _ := strings.Cut(f.Label, "=")
	below, oldest := int64(1<<63-1), int64(1<<63-1)
	// begun: whatever comes is after the place. Else the first that is older than it begins; those before it have been
	// shown, by the times of tasks above them.
	begun := true
	switch {
	case after == nil:
	case partition == after.partition:
		below, oldest = after.number, after.at
	default:
		top, err := column[int64](ctx, r, qNewestOld+olderThan(partition, *after)+`?2`, partition, r.time(core.Instant(after.at)))
		if err != nil || top[0] == 0 {
			return all, err
		}
		below, oldest, begun = top[0]+1, after.at, false
	}
	limit := max(labelsLook, f.Limit+1)
	for found := 0; found <= f.Limit; {
		numbers, err := column[int64](ctx, r, qLabelled, partition, key, value, -below, limit)
		if err != nil || len(numbers) == 0 {
			return all, err
		}
		tasks, err := r.matching(ctx, partition, numbers, f)
		if err != nil {
			return all, err
		}
		for i := range tasks {
			t := &tasks[i]
			if begun = begun || isOlder(int64(t.CreatedAt), partition, *after); !begun || found > f.Limit {
				continue
			}
			found++
			oldest = min(oldest, int64(t.CreatedAt))
			all = append(all, entry{place{oldest, partition, t.Number}, summary(t)})
		}
		if len(numbers) < limit {
			break
		}
		below = numbers[len(numbers)-1]
	}
	return all, nil
}

// isOlder is what olderThan says.
func isOlder(at, partition int64, after place) bool {
	return at < after.at || at == after.at && partition < after.partition
}

// matching reads those of some tasks of a partition that match a filter's other conditions, the newest first.
func (r *reader) matching(ctx context.Context, partition int64, numbers []int64, f core.Filter) ([]core.Task, error) {
	args := []any{partition, r.list(numbers)}
	where := andMatches(f, func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("?%d", len(args))
	})
	rows, err := r.query(ctx, `SELECT `+listColumns+r.among("tasks", "number")+where+` ORDER BY number DESC`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tasks []core.Task
	for rows.Next() {
		t, err := scanTask(rows)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, rows.Err()
}
