package schema

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// countedStates has a query for each state that reads an index with few other tasks, the newest first where
// the index has that order. Processed tasks have no index of their own: they are counted among all that
// ended, so the query has to read past the undone and those in error, which come before it in this list for
// that reason.
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
	// besideMax limits how far the count of processed tasks reads past undone ones and those in error, in
	// multiples of the bound, when there are too many of those to know how many.
	besideMax = 10
)

// counting is one count of all tasks, each state up to a bound.
type counting struct {
	r *reader
	// most is the number up to which a state is counted.
	most       int64
	partitions []int64
	// counts has the types and states with a task at least.
	counts map[core.Count]int64
	// beside is, by partition, how many ended tasks are not processed ones.
	beside map[int64]int64
	// cut has the states that may have more tasks than were counted.
	cut map[core.State]bool
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

// countState counts the tasks of one state over all partitions until it has seen more than the bound.
func (c *counting) countState(ctx context.Context, state core.State, query string) error {
	types, found := map[core.Count]int64{}, int64(0)
	for _, p := range c.partitions {
		// One more than the bound is enough to know that there are more.
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
	// A single type may have as many as the bound, even where the state was cut.
	for is, n := range types {
		c.counts[is] = min(n, c.most)
	}
	return nil
}

// countIn adds a partition's tasks of a state to types. n is how many they are; read is how many rows the
// query went over, some of which may have another state.
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

// addTypes gives every type a count, be it 0, of each state that was cut: the tasks that were not reached may
// be of any type, so a missing count would read as a certain 0.
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
