package schema

import (
	"context"
	"fmt"
	"math"
	"strings"

	"duly.dev/duly/internal/core"
)

// A list by label reads some numbers from the index of labels, then the rows of those by key. A join in one
// statement would be simpler, but planners do it well or badly depending on how large they believe the tables
// to be.

// labelsLook is how many numbers one statement reads from the index of labels at least.
const labelsLook = 200

// qLabelled reads the numbers of tasks with a label, the newest first. The index has -number, so that the
// conditions are on that.
const qLabelled = `SELECT number FROM labels WHERE partition = ?1 AND key = ?2 AND value = ?3 AND -number > ?4 ORDER BY -number LIMIT ?5`

// labelIs adds the condition that a task of partition ?1 has a label, key=value; an empty label adds nothing.
func labelIs(c *conditions, label string) {
	if key, value, is := strings.Cut(label, "="); is {
		c.add(`number IN (SELECT l.number FROM labels l WHERE l.partition = ?1 AND l.key = %s AND l.value = %s)`, key, value)
	}
}

// labelled reads a page of a list by label. The filter's other conditions are checked on the rows that the
// label finds.
func (r *reader) labelled(ctx context.Context, partitions []int64, at positions, f core.Filter) ([]part, error) {
	parts := make([]part, len(partitions))
	for i, p := range partitions {
		if at[i] == 0 {
			continue
		}
		var err error
		if parts[i], err = r.labelledPart(ctx, p, at[i], f, max(lookMax/len(partitions), f.Limit+1)); err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return parts, nil
}

// labelledPart reads one partition's part of a page: up to f.Limit+1 tasks below a number, going over about
// look labels.
func (r *reader) labelledPart(ctx context.Context, partition, below int64, f core.Filter, look int) (part, error) {
	key, value, _ := strings.Cut(f.Label, "=")
	p := part{next: below, seen: math.MaxInt64}
	for n := max(labelsLook, f.Limit+1); ; {
		numbers, err := column[int64](ctx, r, qLabelled, partition, key, value, -p.next, n)
		if err != nil || len(numbers) == 0 {
			p.next = 0
			return p, err
		}
		found, oldest, err := r.matching(ctx, partition, numbers, f)
		if err != nil {
			return p, err
		}
		for _, e := range found {
			// A task counts as being as old as the oldest above it: see List.
			p.seen = min(p.seen, e.at)
			e.at = p.seen
			if p.entries = append(p.entries, e); len(p.entries) > f.Limit {
				p.next = e.view.Number
				return p, nil
			}
		}
		p.next, p.seen = numbers[len(numbers)-1], min(p.seen, oldest)
		if look -= len(numbers); len(numbers) < n {
			p.next = 0
		}
		if p.next == 0 || look <= 0 {
			return p, nil
		}
	}
}

// matching reads those of the given tasks that match the filter's other conditions, the newest first. oldest
// is when the oldest of all the given tasks was created. A first statement finds out whether any matches, so
// that no rows are sent if not.
func (r *reader) matching(ctx context.Context, partition int64, numbers []int64, f core.Filter) (found []entry, oldest int64, err error) {
	c := conditions{args: []any{partition, r.list(numbers)}}
	r.filters(&c, f)
	matches := `1 = 1`
	if len(c.where) > 0 {
		matches = c.String()
	}
	// Without other conditions all match, and the first statement is not needed.
	hits, created := 1, instant(math.MaxInt64)
	if len(c.where) > 0 {
		look := `SELECT COALESCE(max(CASE WHEN ` + matches + ` THEN 1 ELSE 0 END), 0), min(created_at)` + r.among("tasks", "number")
		if err := r.db.QueryRowContext(ctx, r.params(look), c.args...).Scan(&hits, &created); err != nil {
			return nil, 0, err
		}
	}
	if oldest = int64(created); created == 0 { // none of them has a row any more
		oldest = math.MaxInt64
	}
	if hits == 0 {
		return nil, oldest, nil
	}
	for row := range each(r.query(ctx, `SELECT `+r.sql.listed+r.among("tasks", "number")+` AND `+matches+` ORDER BY number DESC`, c.args...)) {
		v, err := r.scanListed(row)
		if err != nil {
			return nil, 0, err
		}
		oldest = min(oldest, int64(v.CreatedAt))
		found = append(found, entry{int64(v.CreatedAt), v})
	}
	return found, oldest, nil
}
