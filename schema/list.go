package schema

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	// lookMax is how many rows a search reads over all partitions before it returns a page that is not full.
	lookMax = 20_000
	// lookFirst is how many rows a search reads of a partition at first. Each further time it reads as many
	// as so far, and so doubles.
	lookFirst = 64
	// clockSkewMax is how far the clocks of two owners may differ. Numbers follow time only that exactly, so
	// that a search by time of creation goes this far beyond its range. A node whose clock is off by half of
	// it is not ready.
	clockSkewMax = time.Minute
)

// List implements operate.Reader: the newest tasks first. In a partition a higher number is a newer task, and
// an index in that order gives each partition's part; the parts are merged by time of creation. Clocks may
// disagree with numbers: then a task counts as being as old as the oldest above it. Error: core.ErrCursor for
// a cursor that List did not return.
func (r *reader) List(ctx context.Context, f core.Filter) (core.Page, error) {
	if f.Limit < 1 || f.Limit > operate.ListMax {
		return core.Page{}, fmt.Errorf("list: limit %d, want 1 to %d", f.Limit, operate.ListMax)
	}
	if f.Label != "" {
		if _, err := core.ParseLabel(f.Label); err != nil {
			return core.Page{}, fmt.Errorf("list: %w", err)
		}
	}
	partitions, at, err := r.positionsAfter(ctx, f.After)
	if err != nil {
		return core.Page{}, fmt.Errorf("list: %w", err)
	}
	parts, err := r.parts(ctx, partitions, at, f)
	if err != nil {
		return core.Page{}, fmt.Errorf("list: %w", err)
	}
	return page(parts, f.Limit), nil
}

// positionsAfter returns the partitions, and where a list goes on in them after a cursor; empty: at its beginning.
func (r *reader) positionsAfter(ctx context.Context, cursor string) (partitions []int64, at positions, err error) {
	if partitions, err = column[int64](ctx, r, qPartitionNumbers); err != nil {
		return nil, nil, err
	}
	if cursor != "" {
		at, err = parsePositions(cursor, len(partitions))
		return partitions, at, err
	}
	at = make(positions, len(partitions))
	for i := range at {
		// Above every number, and small enough for a cursor.
		at[i] = math.MaxInt64 >> 1
	}
	return partitions, at, nil
}

// parts reads each partition's part of a page. It sets positions of partitions that cannot have tasks of the
// list to their end.
func (r *reader) parts(ctx context.Context, partitions []int64, at positions, f core.Filter) ([]part, error) {
	if f.Label != "" {
		return r.labelled(ctx, partitions, at, f)
	}
	sources, err := r.sourcesIn(ctx, partitions, at, f)
	if err != nil || len(sources) == 0 {
		return nil, err
	}
	var filters conditions
	if r.filters(&filters, f); len(filters.where) == 0 {
		return r.readUnfiltered(ctx, partitions, at, f, sources)
	}
	return r.search(ctx, partitions, at, f, sources)
}

// qPartitionNumbers reads the partitions in the order of positions.
const qPartitionNumbers = `SELECT partition FROM partitions ORDER BY partition`

// entry is a task in the list.
type entry struct {
	// at is the time by which the task is sorted: that of its creation, or the oldest of those above it.
	at   int64
	view core.View
}

// part is one partition's part of a page.
type part struct {
	entries []entry
	// next is the number below which the part goes on after entries; 0: it does not.
	next int64
	// seen is a time of creation. All tasks of the partition that are newer are known by now; of older ones
	// nothing is known yet.
	seen int64
	// looked is how many rows were read.
	looked int
}

// page merges parts into a page. If the search in a partition stopped early, at the time seen, then older
// tasks of the others have to wait for the next page: it might have some that belong before them.
func page(parts []part, limit int) core.Page {
	type placed struct {
		part int
		*entry
	}
	frontier := int64(math.MinInt64)
	var all []placed
	next := make(positions, len(parts))
	for i := range parts {
		next[i] = parts[i].next
		if parts[i].next > 0 {
			// A part that is complete holds nobody up.
			frontier = max(frontier, parts[i].seen)
		}
		for k := range parts[i].entries {
			all = append(all, placed{i, &parts[i].entries[k]})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.part, a.part)) })
	var p core.Page
	cut := make([]bool, len(parts))
	for _, e := range all {
		switch {
		case len(p.Tasks) < limit && e.at >= frontier:
			p.Tasks = append(p.Tasks, e.view)
		case !cut[e.part]:
			// What is not on this page has to come on the next one, so the position goes back to the first task
			// that is left out.
			cut[e.part], next[e.part] = true, e.view.Number+1
		}
	}
	p.Next = next.String()
	p.Partial = p.Next != "" && len(p.Tasks) < limit
	return p
}

// source is a part of an index that has tasks of a list in the order of their numbers. It adds its parameters
// to c, where ?1 is the partition. The other conditions of the list are the filter's.
type source func(c *conditions) fromWhere

// fromWhere is a FROM with its WHERE, and the column with the numbers.
type fromWhere struct{ from, where, order string }

// inTasks selects from the table tasks itself.
func inTasks(where string) fromWhere { return fromWhere{`tasks`, where, `number`} }

// conditions builds a WHERE and its parameters. Where a query is of one partition, that is ?1.
type conditions struct {
	where []string
	args  []any
}

// add adds a condition. Each %s in format becomes the parameter of a value.
func (c *conditions) add(format string, values ...any) {
	params := make([]any, len(values))
	for i, v := range values {
		c.args = append(c.args, v)
		params[i] = fmt.Sprintf("?%d", len(c.args))
	}
	c.where = append(c.where, fmt.Sprintf(format, params...))
}

// param adds a parameter and returns its name, such as ?3.
func (c *conditions) param(v any) string {
	c.args = append(c.args, v)
	return fmt.Sprintf("?%d", len(c.args))
}

// String is the WHERE without that word; empty if there are no conditions.
func (c *conditions) String() string { return strings.Join(c.where, " AND ") }

// sourcesIn returns the sources of a list. The children of a task are all in its partition: the positions of
// the others are set to their end.
func (r *reader) sourcesIn(ctx context.Context, partitions []int64, at positions, f core.Filter) ([]source, error) {
	// Without a parent no partition can be left out.
	if f.Parent == "" {
		return r.sources(ctx, f)
	}
	partition, all, err := r.childSources(ctx, f.Parent)
	for i, p := range partitions {
		if p != partition {
			at[i] = 0
		}
	}
	return all, err
}

// sources returns the parts of indexes that together have the tasks of a list: several where the filter
// allows several states, or its fingerprint is that of several types; none where no task has the fingerprint.
func (r *reader) sources(ctx context.Context, f core.Filter) ([]source, error) {
	if f.OpenSignal {
		return []source{func(*conditions) fromWhere { return inTasks(`partition = ?1 AND signal_steps IS NOT NULL`) }}, nil
	}
	if f.Fingerprint == "" && f.Step == "" {
		if f.State == "" && f.MovableTo != 0 {
			return []source{stateSource(core.StatePending), stateSource(core.StateProcessing), stateSource(core.StateError)}, nil
		}
		if f.State == "" {
			return []source{func(*conditions) fromWhere { return inTasks(`partition = ?1`) }}, nil
		}
		return []source{stateSource(f.State)}, nil
	}
	var all []source
	for _, state := range failedStates(f.State) {
		if f.Fingerprint == "" {
			all = append(all, stateSource(state))
			continue
		}
		types, err := r.typesWith(ctx, state, f.Type, f.Fingerprint)
		if err != nil {
			return nil, err
		}
		for _, taskType := range types {
			k := groupKey{state, taskType, f.Fingerprint}
			all = append(all, func(c *conditions) fromWhere { return inTasks(k.is(c) + ` AND partition = ?1`) })
		}
	}
	return all, nil
}

// stateSource is the source of all tasks in a state.
func stateSource(s core.State) source {
	return func(c *conditions) fromWhere { return inTasks(`partition = ?1 AND ` + stateIs(s, c.param)) }
}

// filters adds the conditions of a filter that its sources do not ensure.
func (r *reader) filters(c *conditions, f core.Filter) {
	byOther := f.Label != "" || f.Parent != "" || f.OpenSignal // their sources see to nothing else
	if f.OpenSignal && (f.Label != "" || f.Parent != "") {
		c.where = append(c.where, `signal_steps IS NOT NULL`)
	}
	if f.Type != "" && (f.Fingerprint == "" || byOther) {
		c.add(`type = %s`, f.Type)
	}
	if f.Label != "" && f.Parent != "" {
		c.add(`parent = (SELECT up.number FROM tasks up WHERE up.id = %s AND up.partition = tasks.partition)`, f.Parent)
	}
	if byOther && f.State != "" {
		c.add(`state = %s`, string(f.State))
	}
	if byOther && f.Fingerprint != "" {
		c.add(`fingerprint = %s`, f.Fingerprint)
		c.where = append(c.where, `state IN ('undone', 'error')`)
	}
	if f.Step != "" {
		c.add(stepIs, f.Step)
	}
	if f.PlanVersion != 0 {
		c.add(`plan_version = %s`, f.PlanVersion)
	}
	if f.MovableTo != 0 {
		c.add(`plan_version <> %s AND state IN ('pending', 'processing', 'error')`, f.MovableTo)
	}
	if f.CreatedFrom != 0 {
		c.add(`created_at >= %s`, r.time(f.CreatedFrom))
	}
	if f.CreatedTo != 0 {
		c.add(`created_at < %s`, r.time(f.CreatedTo))
	}
	if f.DeadlineTo != 0 {
		c.add(`deadline < %s`, r.time(f.DeadlineTo))
	}
}

// stepIs is the condition that the step that failed has a name, which the task's own version of its plan
// gives.
const stepIs = `EXISTS (SELECT 1 FROM plan_steps ps WHERE ps.plan = tasks.type AND ps.version = tasks.plan_version AND ps.ordinal = tasks.failed_step AND ps.name = %s)`

// readUnfiltered reads a list whose sources ensure the whole filter: a page's worth and one more of each
// partition.
func (r *reader) readUnfiltered(ctx context.Context, partitions []int64, at positions, f core.Filter, sources []source) ([]part, error) {
	parts := make([]part, len(partitions))
	for i, p := range partitions {
		if at[i] == 0 {
			continue
		}
		entries, err := r.entries(ctx, p, 0, at[i], f, sources)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
		if parts[i].entries = entries; len(entries) > f.Limit {
			last := &entries[f.Limit]
			parts[i].next, parts[i].seen = last.view.Number, last.at
		}
	}
	return parts, nil
}

// search lists tasks, newest first, by a filter that no index answers: it reads rows and leaves out some. It always goes on in
// the partition whose oldest row read so far is the newest, until a page is full, all partitions are read to their ends, or
// lookMax rows were read.
func (r *reader) search(ctx context.Context, partitions []int64, at positions, f core.Filter, sources []source) ([]part, error) {
	parts := make([]part, len(partitions))
	for i := range parts {
		parts[i] = part{next: at[i], seen: math.MaxInt64}
	}
	if f.CreatedTo != 0 && f.After == "" {
		tops, err := r.createdBefore(ctx, f.CreatedTo.Add(clockSkewMax))
		if err != nil {
			return nil, fmt.Errorf("created_to: %w", err)
		}
		for i, p := range partitions {
			parts[i].next = min(at[i], tops[p])
		}
	}
	// Each partition has to be read at least once, or a page might make no progress.
	first := max(1, min(lookFirst, lookMax/(2*max(1, len(parts)))))
	for total := 0; total < lookMax; {
		i := newestSeen(parts)
		if i < 0 || countNewer(parts, parts[i].seen) >= f.Limit {
			break
		}
		// Twice as many each time: many small reads if tasks are found soon, few large ones if the filter
		// passes over most.
		some := min(max(first, parts[i].looked), lookMax-total)
		n, err := r.searchMore(ctx, partitions[i], &parts[i], f, sources, some)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", partitions[i], err)
		}
		total += n
	}
	return parts, nil
}

// newestSeen is the part that goes on and reaches back least; -1: none goes on.
func newestSeen(parts []part) int {
	newest := -1
	for i := range parts {
		if parts[i].next > 0 && (newest < 0 || parts[i].seen > parts[newest].seen) {
			newest = i
		}
	}
	return newest
}

// countNewer counts the entries that are as new as a time, or newer.
func countNewer(parts []part, seen int64) int {
	n := 0
	for i := range parts {
		for k := range parts[i].entries {
			if parts[i].entries[k].at >= seen {
				n++
			}
		}
	}
	return n
}

// searchMore goes over up to some more rows of a partition and returns how many there were.
func (r *reader) searchMore(ctx context.Context, partition int64, p *part, f core.Filter, sources []source, some int) (int, error) {
	looked, err := r.sweepBelow(ctx, partition, p.next, f, sources, some)
	if err != nil || looked.rows == 0 {
		p.next = 0
		return 0, err
	}
	f.Limit -= len(p.entries)
	var found []entry
	if looked.some { // if none passes the filter, there is nothing to read
		if found, err = r.entries(ctx, partition, looked.number, p.next, f, sources); err != nil {
			return 0, err
		}
	}
	for i := range found { // a task counts as being as old as the oldest above it
		found[i].at = min(found[i].at, p.seen)
	}
	p.entries = append(p.entries, found...)
	p.looked += looked.rows
	if len(found) > f.Limit {
		last := &found[f.Limit]
		p.next, p.seen = last.view.Number, last.at
		return looked.rows, nil
	}
	p.next, p.seen = looked.number, min(p.seen, looked.created)
	if looked.rows < some || f.CreatedFrom != 0 && looked.created < int64(f.CreatedFrom.Add(-clockSkewMax)) {
		p.next = 0
	}
	return looked.rows, nil
}

// qCreated reads for each partition when the task with a number, or the next one below, was created.
const qCreated = `SELECT u.partition, (SELECT t.created_at FROM tasks t WHERE t.partition = u.partition AND t.number <= u.number ORDER BY t.number DESC LIMIT 1) FROM `

// createdBefore returns for each partition a number such that tasks from there on were created at or after a
// time, as far as clocks agree. It halves the ranges of all partitions in each statement, down to lookFirst
// numbers.
func (r *reader) createdBefore(ctx context.Context, at core.Instant) (map[int64]int64, error) {
	last, err := r.lastNumbers(ctx)
	if err != nil {
		return nil, err
	}
	low, high := make(map[int64]int64, len(last)), make(map[int64]int64, len(last)) // all from high on is too new; low is not known to be
	for _, p := range last {
		high[p.partition] = p.number + 1
	}
	for {
		var partitions, middles []int64
		for _, p := range last {
			// The search itself gets over the rest as fast.
			if l, h := low[p.partition], high[p.partition]; h-l > lookFirst {
				partitions, middles = append(partitions, p.partition), append(middles, l+(h-l)/2)
			}
		}
		if len(partitions) == 0 {
			return high, nil
		}
		created := make(map[int64]core.Instant, len(partitions))
		for row := range each(r.query(ctx, qCreated+r.rows(1, `partition INT8`, `number INT8`), r.rowArgs(partitions, middles)...)) {
			var p int64
			var when instant
			if err := row.Scan(&p, &when); err != nil {
				return nil, err
			}
			created[p] = core.Instant(when)
		}
		for i, p := range partitions {
			if created[p] >= at {
				high[p] = middles[i]
			} else {
				low[p] = middles[i]
			}
		}
	}
}

// swept tells of the rows that a search went over.
type swept struct {
	rows int
	// number is the lowest.
	number int64
	// created is the oldest time of creation.
	created int64
	// some says that the filter lets some of them through.
	some bool
}

// sweepBelow goes over up to n rows below a number, without reading the tasks.
func (r *reader) sweepBelow(ctx context.Context, partition, below int64, f core.Filter, sources []source, n int) (swept, error) {
	c := conditions{args: []any{partition}}
	r.filters(&c, f)
	hit := `1`
	if len(c.where) > 0 {
		hit = `CASE WHEN ` + c.String() + ` THEN 1 ELSE 0 END`
	}
	c.where = nil
	from := c.union(sources, `number, created_at, `+hit+` AS hit`, below, c.param(n))
	var rows, hits int
	var number sql.NullInt64
	var created instant
	query := `SELECT count(*), min(number), min(created_at), COALESCE(max(hit), 0) FROM (SELECT number, created_at, hit FROM (` + from + `) AS found ORDER BY number DESC LIMIT ` +
		c.param(n) + `) AS looked`
	err := r.db.QueryRowContext(ctx, r.params(query), c.args...).Scan(&rows, &number, &created, &hits)
	return swept{rows, number.Int64, int64(created), hits > 0}, err
}

// entries reads the newest tasks with numbers from one up to below another that pass the filter, at most
// f.Limit+1.
func (r *reader) entries(ctx context.Context, partition, from, below int64, f core.Filter, sources []source) ([]entry, error) {
	query, args := r.listQuery(partition, from, below, f, sources)
	oldest := int64(math.MaxInt64)
	var all []entry
	for row := range each(r.query(ctx, query, args...)) {
		v, err := r.scanListed(row)
		if err != nil {
			return nil, err
		}
		oldest = min(oldest, int64(v.CreatedAt))
		all = append(all, entry{oldest, v})
	}
	return all, nil
}

// listQuery returns the query of one page of a partition's tasks, newest first, and its arguments. Their numbers are at least
// from (0: any) and less than below; each is in one of the sources.
func (r *reader) listQuery(partition, from, below int64, f core.Filter, sources []source) (string, []any) {
	c := conditions{args: []any{partition}}
	limit := c.param(f.Limit + 1)
	if from > 0 {
		c.add(`number >= %s`, from)
	}
	r.filters(&c, f)
	filter := ""
	if len(c.where) > 0 {
		filter = ` AND ` + c.String()
	}
	if len(sources) == 1 {
		return c.union(sources, r.sql.listed, below, limit, filter), c.args
	}
	query := `SELECT ` + r.sql.listed + ` FROM (` + c.union(sources, `*`, below, limit, filter) + `) AS tasks ORDER BY number DESC LIMIT ` + limit
	return query, c.args
}

// union selects the newest rows below a number, up to limit of each source, that pass the filter.
func (c *conditions) union(sources []source, columns string, below int64, limit string, filter ...string) string {
	top := c.param(below)
	parts := make([]string, len(sources))
	for i, source := range sources {
		p := source(c)
		parts[i] = `SELECT ` + columns + ` FROM ` + p.from + ` WHERE ` + p.where + ` AND ` + p.order + ` < ` + top + strings.Join(filter, "") +
			` ORDER BY ` + p.order + ` DESC LIMIT ` + limit
		if len(sources) > 1 {
			parts[i] = fmt.Sprintf(`SELECT * FROM (%s) AS part%d`, parts[i], i)
		}
	}
	return strings.Join(parts, ` UNION ALL `)
}

// parentName selects the id of a task's parent; an empty text for none.
const parentName = `CASE WHEN parent IS NULL THEN '' ELSE COALESCE((SELECT up.id FROM tasks up WHERE up.partition = tasks.partition AND up.number = tasks.parent), '') END`

// failedStepName selects the name of the step that failed; an empty text for none.
const failedStepName = `COALESCE((SELECT ps.name FROM plan_steps ps WHERE ps.plan = tasks.type AND ps.version = tasks.plan_version AND ps.ordinal = tasks.failed_step), '')`

// scanListed reads a row of queries.listed. While a task has not ended its journal may be newer than its row,
// so Seq is left 0 then.
func (r *reader) scanListed(row interface{ Scan(...any) error }) (core.View, error) {
	var t core.Task
	var fingerprint, step, parent string
	err := row.Scan(targets(r.sql.taskColumns, &TaskRow{Task: &t}, &fingerprint, &step, &parent)...)
	v := t.Summary()
	v.Fingerprint, v.FailedStep, v.Parent = fingerprint, step, parent
	if !t.State.Ended() {
		v.Seq = 0
	}
	return v, err
}

// stateIs is the condition on a state, written such that the partial indexes on states serve it. Planners
// match an index with a literal, not with a parameter, and SQLite only if the query repeats the index's own
// words.
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
