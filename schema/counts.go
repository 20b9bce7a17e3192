package schema

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// countedStates are how the tasks of each state in a partition are found, by an index that has few others, the newest first
// where it can say so. Those that were processed have no index of their own: they are found among all that have ended, of
// which the undone and those in error are counted before.
var countedStates = []struct {
	state core.State
	query string
}{
	{core.StateProcessing, countBegin + `state IN ('processing', 'undoing') AND state = 'processing'` + countEnd},
	{core.StateUndoing, countBegin + `state IN ('processing', 'undoing') AND state = 'undoing'` + countEnd},
	{core.StatePending, countBegin + `state = 'pending' ORDER BY number DESC` + countEnd},
	{core.StateUndone, countBegin + `state IN ('undone', 'error') AND state = 'undone' ORDER BY number DESC` + countEnd},
	{core.StateError, countBegin + `state IN ('undone', 'error') AND state = 'error' ORDER BY number DESC` + countEnd},
	{core.StateProcessed, countBegin + `end_number > 0 ORDER BY end_number DESC` + countEnd},
}

const (
	countBegin = `SELECT type, state, count(*) FROM (SELECT type, state FROM tasks WHERE partition = ?1 AND `
	countEnd   = ` LIMIT ?2) AS counted GROUP BY type, state`
	// besideMax is how many times the bound of a count is looked at of other tasks that have ended, when they are too many to count.
	besideMax = 10
)

// counting is a count of all tasks up to a bound.
type counting struct {
	r          *reader
	most       int64
	partitions []int64
	counts     map[core.Count]int64 // of at least one
	beside     map[int64]int64      // by partition: tasks that have ended otherwise than processed
	cut        map[core.State]bool  // states that may have more than were counted
}

// CountsUpTo implements operate.Reader.
func (r *reader) CountsUpTo(ctx context.Context, most int) ([]core.Count, error) {
	partitions, err := column[int64](ctx, r, `SELECT partition FROM partitions ORDER BY partition`)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	c := counting{r, int64(most), partitions, map[core.Count]int64{}, map[int64]int64{}, map[core.State]bool{}}
	for _, s := range countedStates {
		if err := c.countState(ctx, s.state, s.query); err != nil {
			return nil, fmt.Errorf("counts: %w", err)
		}
	}
	if err := c.addTypes(ctx); err != nil {
		return nil, fmt.Errorf("counts: types of plans: %w", err)
	}
	all := make([]core.Count, 0, len(c.counts))
	for is, n := range c.counts {
		is.Tasks, is.AtLeast = n, c.cut[is.State]
		all = append(all, is)
	}
	slices.SortFunc(all, func(a, b core.Count) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State)) })
	return all, nil
}

// countState counts the tasks of a state in all partitions together, whatever part of them each has, until it knows of more than
// the bound.
func (c *counting) countState(ctx context.Context, state core.State, query string) error {
	types, found := map[core.Count]int64{}, int64(0)
	for _, p := range c.partitions {
		limit := c.most - found + 1
		if state == core.StateProcessed {
			limit += c.beside[p]
		}
		n, read, err := c.countIn(ctx, types, state, query, p, limit)
		if err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
		found += n
		if state == core.StateUndone || state == core.StateError {
			c.beside[p] += n
		}
		if read == limit || found > c.most {
			c.cut[state] = true
		}
		if found > c.most {
			break
		}
	}
	if c.cut[state] && state != core.StateProcessed { // how many more there are, and where, is not known
		for _, p := range c.partitions {
			c.beside[p] += besideMax * c.most / int64(len(c.partitions))
		}
	}
	for is, n := range types {
		c.counts[is] = min(n, c.most)
	}
	return nil
}

// countIn adds what a query counts of a state in a partition. n is how many tasks that is, read how many it has read, of which
// some may be in another.
func (c *counting) countIn(ctx context.Context, types map[core.Count]int64, state core.State, query string, partition, limit int64) (n, read int64, err error) {
	for row := range each(c.r.query(ctx, query, partition, limit)) {
		var is core.Count
		var in string
		var tasks int64
		if err := row.Scan(&is.Type, &in, &tasks); err != nil {
			return 0, 0, err
		}
		read += tasks
		if is.State = core.State(in); is.State == state {
			types[is] += tasks
			n += tasks
		}
	}
	return n, read, nil
}

// addTypes gives every type a count of each state that was cut: none of its tasks may be among those that were counted.
func (c *counting) addTypes(ctx context.Context) error {
	if len(c.cut) == 0 {
		return nil
	}
	types, err := column[string](ctx, c.r, `SELECT DISTINCT name FROM plans`)
	if err != nil {
		return err
	}
	for is := range c.counts {
		types = append(types, is.Type)
	}
	for state := range c.cut {
		for _, name := range types {
			c.counts[core.Count{Type: name, State: state}] += 0
		}
	}
	return nil
}
