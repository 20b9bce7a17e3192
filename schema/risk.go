package schema

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// JournalPage implements operate.Reader.
func (a *asked) JournalPage(ctx context.Context, partition int, number int64, before int64, limit int) ([]core.Record, error) {
	if limit < 1 || limit > operate.ListMax {
		return nil, fmt.Errorf("journal: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	if before <= 0 {
		before = math.MaxInt64
	}
	var all []core.Record
	row := JournalRow{Record: new(core.Record)}
	to := targets(a.of.sql.journalColumns, &row)
	for is := range each(a.of.query(ctx, a.of.sql.journalPage, partition, number, before, limit)) {
		if err := row.scan(is, to); err != nil {
			return nil, fmt.Errorf("journal row of partition %d: %w", partition, err)
		}
		all = append(all, *row.Record)
	}
	return all, nil
}

// Unfinished tasks whose bound is before a time, the nearest first, by the indexes that the supervisor uses.
// The bound is the deadline or an earlier time, such as that of the running step, so no task with an earlier
// deadline is missed; of tasks in hand many that have later deadlines are read too.
const (
	qRiskParked = `SELECT number, complete_by, deadline FROM tasks WHERE state = 'pending' AND partition = ?1 AND complete_by < ?2 ORDER BY complete_by, number LIMIT ?3`
	qRiskInHand = `SELECT number, complete_by, CASE WHEN state = 'processing' THEN deadline END FROM tasks WHERE state IN ('processing', 'undoing') AND partition = ?1
	AND complete_by < ?2 ORDER BY complete_by, number LIMIT ?3`
)

// dueTask is an unfinished task with its deadline.
type dueTask struct {
	partition int
	number    int64
	deadline  core.Instant
}

// AtRisk implements operate.Reader. It reads lookMax tasks at most, and more is true if that was not all.
// There is no index by deadline, which every commit would have to maintain.
func (a *asked) AtRisk(ctx context.Context, before core.Instant, limit int) (tasks []core.View, more bool, err error) {
	r := a.of
	if limit < 1 || limit > operate.ListMax {
		return nil, false, fmt.Errorf("at risk: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	partitions, err := column[int](ctx, r, qPartitionNumbers)
	if err != nil {
		return nil, false, fmt.Errorf("at risk: %w", err)
	}
	var all []dueTask
	for _, p := range partitions {
		for _, query := range []string{qRiskParked, qRiskInHand} {
			// Half for each query, and the same for each partition.
			found, cut, err := r.dueBefore(ctx, query, p, before, max(lookMax/(2*len(partitions)), 1))
			if err != nil {
				return nil, false, fmt.Errorf("at risk in partition %d: %w", p, err)
			}
			all, more = append(all, found...), more || cut
		}
	}
	slices.SortFunc(all, func(a, b dueTask) int {
		return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.partition, b.partition), cmp.Compare(a.number, b.number))
	})
	if len(all) > limit {
		all, more = all[:limit], true
	}
	tasks, err = r.views(ctx, all)
	return tasks, more, err
}

// dueBefore reads up to most tasks of a query and keeps those with a deadline before a time. cut: there may
// be others.
func (r *reader) dueBefore(ctx context.Context, query string, partition int, before core.Instant, most int) (found []dueTask, cut bool, err error) {
	read := 0
	for row := range each(r.query(ctx, query, partition, r.time(before), most)) {
		var bound, deadline instant
		n := dueTask{partition: partition}
		if err := row.Scan(&n.number, &bound, &deadline); err != nil {
			return nil, false, err
		}
		if n.deadline = core.Instant(deadline); n.deadline > 0 && n.deadline < before {
			found = append(found, n)
		}
		read++
	}
	return found, read == most, nil
}

// views reads tasks in the order of wanted, less those that have ended or are gone.
func (r *reader) views(ctx context.Context, wanted []dueTask) ([]core.View, error) {
	byPartition := map[int][]int64{}
	for _, n := range wanted {
		byPartition[n.partition] = append(byPartition[n.partition], n.number)
	}
	found := map[dueTask]core.View{}
	for p, numbers := range byPartition {
		for row := range each(r.query(ctx, `SELECT `+r.sql.listed+r.among("tasks", "number"), p, r.list(numbers))) {
			v, err := r.scanListed(row)
			if err != nil {
				return nil, fmt.Errorf("task row of partition %d: %w", p, err)
			}
			found[dueTask{partition: p, number: v.Number}] = v
		}
	}
	all := make([]core.View, 0, len(wanted))
	for _, n := range wanted {
		if v, ok := found[dueTask{partition: n.partition, number: n.number}]; ok && !v.State.Ended() {
			all = append(all, v)
		}
	}
	return all, nil
}

const (
	qSampleTotals = `SELECT partition, next_number - 1, next_end - 1 FROM partitions ORDER BY partition`
	qSampleEnds   = `SELECT CASE WHEN start_at > created_at THEN start_at ELSE created_at END, ended_at FROM tasks WHERE partition = ?1 AND end_number > 0 ORDER BY end_number DESC LIMIT ?2`
)

// Sample implements operate.Reader. Created and Ended come from the partitions' counters: a number that went
// to a submission whose id was taken counts as created, and a task that ended twice, because it was started
// again, counts as two endings.
func (a *asked) Sample(ctx context.Context, newest int) (operate.Sample, error) {
	if newest < 1 || newest > lookMax {
		return operate.Sample{}, fmt.Errorf("sample: of %d endings, want 1 to %d", newest, lookMax)
	}
	s := operate.Sample{At: time.Now().UTC()}
	partitions, err := a.totals(ctx, &s)
	if err != nil {
		return s, fmt.Errorf("sample: %w", err)
	}
	var took []float64
	for _, p := range partitions {
		if took, err = a.took(ctx, took, p, (newest+len(partitions)-1)/len(partitions)); err != nil {
			return s, fmt.Errorf("sample of partition %d: %w", p, err)
		}
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		s.P50MS, s.P99MS = took[(n-1)/2], took[(n-1)*99/100]
	}
	return s, nil
}

// totals adds up the counters of all partitions, and returns the partitions' numbers.
func (a *asked) totals(ctx context.Context, s *operate.Sample) ([]int64, error) {
	var partitions []int64
	for row := range each(a.of.query(ctx, qSampleTotals)) {
		var p, created, ended int64
		if err := row.Scan(&p, &created, &ended); err != nil {
			return nil, err
		}
		partitions = append(partitions, p)
		s.Created, s.Ended = s.Created+created, s.Ended+ended
	}
	return partitions, nil
}

// took appends how long the tasks that ended last took, in milliseconds.
func (a *asked) took(ctx context.Context, all []float64, partition int64, most int) ([]float64, error) {
	for row := range each(a.of.query(ctx, qSampleEnds, partition, most)) {
		var created, ended instant
		if err := row.Scan(&created, &ended); err != nil {
			return nil, err
		}
		all = append(all, float64(ended-created)/1000)
	}
	return all, nil
}
