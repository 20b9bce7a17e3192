package schema

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// place is where a task stands in the list: newest first. Within a partition the
// newer task has the higher number, so that each partition's part is read by its
// key; where clocks say otherwise, a task stands by the oldest time of those
// above it in its partition.
type place struct {
	at                int64
	partition, number int64
}

func (a place) before(b place) int {
	return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.partition, a.partition), cmp.Compare(b.number, a.number))
}

func (a place) String() string { return fmt.Sprintf("%d.%d.%d", a.at, a.partition, a.number) }

// placeTimeMax is the end of the year 9999: no database takes a later time.
const placeTimeMax = 253402300799999999

// parsePlace reads what String wrote, and nothing else. Errors wrap
// core.ErrCursor.
func parsePlace(s string) (place, error) {
	var p place
	var err error
	for i, n := range []*int64{&p.at, &p.partition, &p.number} {
		token, rest, more := strings.Cut(s, ".")
		if *n, err = strconv.ParseInt(token, 10, 64); err != nil || *n < 0 || more != (i < 2) || strconv.FormatInt(*n, 10) != token {
			return place{}, fmt.Errorf("%w: not <time>.<partition>.<number>", core.ErrCursor)
		}
		s = rest
	}
	if p.at > placeTimeMax {
		return place{}, fmt.Errorf("%w: time %d is beyond the year 9999", core.ErrCursor, p.at)
	}
	return p, nil
}

// entry is a task in the list.
type entry struct {
	place
	view core.View
}

// List implements Store. The cursor is the place of the last task shown; the
// error about one that is none wraps core.ErrCursor.
func (r *reader) List(ctx context.Context, f core.Filter) (core.Page, error) {
	if f.Limit < 1 || f.Limit > 1000 {
		return core.Page{}, fmt.Errorf("list: limit %d, want 1 to 1000", f.Limit)
	}
	newest := r.newest
	if f.Label != "" {
		if _, err := core.ParseLabel(f.Label); err != nil {
			return core.Page{}, fmt.Errorf("list: %w", err)
		}
		newest = r.newestLabelled
	}
	var after *place
	if f.After != "" {
		p, err := parsePlace(f.After)
		if err != nil {
			return core.Page{}, fmt.Errorf("list: %w", err)
		}
		after = &p
	}
	partitions, err := column[int64](ctx, r, `SELECT partition FROM partitions`)
	if err != nil {
		return core.Page{}, fmt.Errorf("list: %w", err)
	}
	var all []entry
	for _, p := range partitions {
		if all, err = newest(ctx, all, p, f, after); err != nil {
			return core.Page{}, fmt.Errorf("list of partition %d: %w", p, err)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return a.before(b.place) })
	var page core.Page
	if len(all) > f.Limit {
		all = all[:f.Limit]
		page.Next = all[f.Limit-1].String()
	}
	for i := range all {
		page.Tasks = append(page.Tasks, all[i].view)
	}
	return page, nil
}

// newest appends the first tasks of one partition's part of the list that come
// after a place in it.
func (r *reader) newest(ctx context.Context, all []entry, partition int64, f core.Filter, after *place) ([]entry, error) {
	query, args := r.listQuery(partition, f, after)
	rows, err := r.query(ctx, query, args...)
	if err != nil {
		return all, err
	}
	defer rows.Close()
	oldest := int64(1<<63 - 1)
	if after != nil {
		oldest = after.at
	}
	for rows.Next() {
		t, err := scanTask(rows)
		if err != nil {
			return all, err
		}
		oldest = min(oldest, int64(t.CreatedAt))
		all = append(all, entry{place{oldest, partition, t.Number}, summary(&t)})
	}
	return all, rows.Err()
}

// listQuery reads the tasks of newest, by an index of those in one state where there
// is one, and otherwise by number.
func (r *reader) listQuery(partition int64, f core.Filter, after *place) (string, []any) {
	args := []any{partition, f.Limit + 1}
	param := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("?%d", len(args))
	}
	where := `partition = ?1` + andMatches(f, param)
	if after != nil {
		where += ` AND number ` + r.beyond(partition, *after, where, param)
	}
	return `SELECT ` + listColumns + ` FROM tasks WHERE ` + where + ` ORDER BY number DESC LIMIT ?2`, args
}

// andMatches are the conditions of a filter on a task's own row.
func andMatches(f core.Filter, param func(any) string) (where string) {
	if f.Type != "" {
		where += ` AND type = ` + param(f.Type)
	}
	if f.State != "" {
		where += ` AND ` + stateIs(f.State, param)
	}
	return where
}

// listColumns are a task's without its input, which may be large.
var listColumns = strings.Replace(taskColumns, " input,", " NULL,", 1)

// beyond is the condition on the number of what a partition has after a place:
// from the newest task that is older than its time on, or as old in the
// partitions that come later at the same time.
func (r *reader) beyond(partition int64, after place, where string, param func(any) string) string {
	if partition == after.partition {
		return `< ` + param(after.number)
	}
	return `<= (SELECT max(number) FROM tasks WHERE ` + where + ` AND created_at ` + olderThan(partition, after) + param(r.time(core.Instant(after.at))) + `)`
}

// olderThan compares times with that of a place in another partition: what is as old comes later in those after it.
func olderThan(partition int64, after place) string {
	if partition < after.partition {
		return `<= `
	}
	return `< `
}

// stateIs is the condition on the state. An index of tasks in some states serves a query
// that names one, not one with a parameter; to SQLite, one that has the very words of
// the index.
func stateIs(s core.State, param func(any) string) string {
	is := `state = '` + string(s) + `'`
	switch s {
	case core.StateProcessing, core.StateUndoing:
		return `state IN ('processing', 'undoing') AND ` + is
	case core.StateUndone, core.StateError:
		return `state IN ('undone', 'error') AND ` + is
	case core.StatePending, core.StateProcessed:
		return is
	}
	return `state = ` + param(string(s))
}
