package schema

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	qSaveForecast = `INSERT INTO forecasts (node, type, version, step, at, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
	ON CONFLICT (node, type, version, step) DO UPDATE SET at = excluded.at, data = excluded.data`
	qForecasts       = `SELECT node, type, version, step, at, data FROM forecasts ORDER BY at DESC, node, type, version, step LIMIT ?1`
	qForgetForecasts = `DELETE FROM forecasts WHERE at < ?1`
)

// SaveForecasts implements operate.ForecastStore. Each node has rows of its own; those of the same step are
// replaced.
func (a *asked) SaveForecasts(ctx context.Context, node string, rows []operate.ForecastRow) error {
	err := a.change(ctx, func(c changes) error {
		for i := range rows {
			r := &rows[i]
			if len(r.Data) > operate.ForecastBytesMax {
				return fmt.Errorf("step %s of %s version %d has %d bytes, the limit is %d", r.Step, r.Type, r.Version, len(r.Data), operate.ForecastBytesMax)
			}
			if _, err := c.exec(qSaveForecast, operate.CleanText(node), operate.CleanText(r.Type), r.Version, operate.CleanText(r.Step), a.of.time(r.At), r.Data); err != nil {
				return err
			}
		}
		return nil
	})
	return about(err, "forecasts of node %s", node)
}

// Forecasts implements operate.ForecastStore: the rows of all nodes, the newest first, up to
// operate.ForecastRowsMax.
func (a *asked) Forecasts(ctx context.Context) ([]operate.ForecastRow, error) {
	var all []operate.ForecastRow
	for row := range each(a.of.query(ctx, qForecasts, operate.ForecastRowsMax)) {
		var r operate.ForecastRow
		var at instant
		if err := row.Scan(&r.Node, &r.Type, &r.Version, &r.Step, &at, &r.Data); err != nil {
			return nil, fmt.Errorf("forecasts: %w", err)
		}
		r.At = core.Instant(at)
		all = append(all, r)
	}
	return all, nil
}

// ForgetForecasts implements operate.ForecastStore.
func (a *asked) ForgetForecasts(ctx context.Context, before core.Instant) error {
	_, err := a.execOne(ctx, qForgetForecasts, a.of.time(before))
	return about(err, "forecasts before %s", before.Time().Format(time.RFC3339))
}

// A sample of the unfinished tasks. Of parked tasks it takes a run that begins at a random number, by an
// index in that order; of tasks in hand, which are no more than fit into memory, every n-th.
const (
	qOpenRange   = `SELECT partition, next_number FROM partitions ORDER BY partition`
	qOpenColumns = `SELECT number, type, plan_version, state, deadline, COALESCE(labels, '') FROM tasks WHERE partition = ?1 AND `
	qOpenParked  = qOpenColumns + `state = 'pending' AND number >= ?2 ORDER BY number LIMIT ?3`
	qOpenBefore  = qOpenColumns + `state = 'pending' AND number < ?2 ORDER BY number LIMIT ?3`
	qOpenInHand  = qOpenColumns + `state IN ('processing', 'undoing') AND number % ?2 = ?3 LIMIT ?4`
	qCountParked = `SELECT count(*) FROM (SELECT number FROM tasks WHERE partition = ?1 AND state = 'pending' ORDER BY number LIMIT ?2) AS found`
	qCountInHand = `SELECT count(*) FROM (SELECT number FROM tasks WHERE partition = ?1 AND state IN ('processing', 'undoing') LIMIT ?2) AS found`
	qOpenSteps   = `SELECT number, at, round, COALESCE(step, -1), COALESCE(step_status, ''), COALESCE(next, -1), undo, due `

	openCountMax = 100_000 // tasks of all partitions that are counted
	openRowsMax  = 64      // journal rows of a task of the sample, on average
)

// OpenTasks implements operate.ForecastStore. It reads about most tasks, half of them parked, evenly from all
// partitions, and counts openCountMax at most.
func (a *asked) OpenTasks(ctx context.Context, most int) (operate.OpenSample, error) {
	var s operate.OpenSample
	ranges, err := a.openRanges(ctx)
	if err != nil || len(ranges) == 0 {
		return s, err
	}
	each := max(1, most/(2*len(ranges)))
	for _, p := range ranges {
		for _, parked := range []bool{true, false} {
			if err := a.openOf(ctx, &s, p, parked, each, openCountMax/len(ranges)); err != nil {
				return s, fmt.Errorf("open tasks of partition %d: %w", p.partition, err)
			}
		}
	}
	return s, nil
}

// openRange is a partition and its next task number: the range of numbers to begin a sample in.
type openRange struct{ partition, next int64 }

// openRanges reads the ranges of all partitions.
func (a *asked) openRanges(ctx context.Context) ([]openRange, error) {
	var all []openRange
	for row := range each(a.of.query(ctx, qOpenRange)) {
		var p openRange
		if err := row.Scan(&p.partition, &p.next); err != nil {
			return nil, fmt.Errorf("open tasks: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// openOf samples up to each of a partition's parked tasks, or of those in hand, and counts them up to count.
// A task of the sample weighs as many as it stands for.
func (a *asked) openOf(ctx context.Context, s *operate.OpenSample, p openRange, parked bool, each, count int) error {
	query := qCountInHand
	if parked {
		query = qCountParked
	}
	there, err := column[int64](ctx, a.of, query, p.partition, count+1)
	if err != nil || there[0] == 0 {
		return err
	}
	// More says that there are tasks beyond those that were counted.
	s.More = s.More || there[0] > int64(count)
	there[0] = min(there[0], int64(count))
	s.All += there[0]
	var found []sampled
	if parked {
		// From a random number on, and from the beginning again if the run reaches the end.
		from := 1 + rand.Int64N(max(p.next, 1))
		if found, err = a.openSome(ctx, found, qOpenParked, p.partition, from, each); err == nil && len(found) < each {
			found, err = a.openSome(ctx, found, qOpenBefore, p.partition, from, each-len(found))
		}
	} else {
		every := max(1, there[0]/int64(each))
		found, err = a.openSome(ctx, found, qOpenInHand, p.partition, every, rand.Int64N(every), each)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	if found, err = a.openSteps(ctx, p.partition, found); err != nil {
		return err
	}
	for i := range found {
		found[i].Weight = float64(there[0]) / float64(len(found))
		s.Tasks = append(s.Tasks, found[i].OpenTask)
	}
	return nil
}

// sampled is a task of the sample, with what openSteps needs to read its steps.
type sampled struct {
	operate.OpenTask
	number int64
	round  int
}

// openSome appends the tasks that a query reads, without their steps.
func (a *asked) openSome(ctx context.Context, all []sampled, query string, args ...any) ([]sampled, error) {
	for row := range each(a.of.query(ctx, query, args...)) {
		var t sampled
		var deadline instant
		var state, labels string
		if err := row.Scan(&t.number, &t.Type, &t.PlanVersion, &state, &deadline, &labels); err != nil {
			return all, err
		}
		t.State, t.Deadline, t.Labels = core.State(state), core.Instant(deadline), labelsIn(labels)
		all = append(all, t)
	}
	return all, nil
}

// openSteps reads how far the steps of tasks are, without inputs and results. If the bound on rows was hit,
// the tasks whose rows were not all read are left out.
func (a *asked) openSteps(ctx context.Context, partition int64, tasks []sampled) ([]sampled, error) {
	numbers, at := make([]int64, len(tasks)), map[int64]*sampled{}
	for i := range tasks {
		numbers[i], at[tasks[i].number] = tasks[i].number, &tasks[i]
	}
	number, most := int64(0), openRowsMax*len(tasks)
	for row := range each(a.of.query(ctx, qOpenSteps+a.of.among("journal", "number")+` ORDER BY number, seq LIMIT ?3`, partition, a.of.list(numbers), most)) {
		var r core.Record
		var when, due instant
		var status string
		if err := row.Scan(&number, &when, &r.Round, &r.Step, &status, &r.Next, &r.Undo, &due); err != nil {
			return nil, err
		}
		most--
		r.At, r.Due, r.StepStatus = core.Instant(when), core.Instant(due), stepStatus(status)
		if t := at[number]; t != nil {
			t.apply(&r)
		}
	}
	// The limit was reached within the journal of the task with this number, so that it and later ones are
	// incomplete.
	if most == 0 {
		tasks = slices.DeleteFunc(tasks, func(t sampled) bool { return t.number >= number })
	}
	return tasks, nil
}

// apply takes in a journal row. A new round begins all steps anew.
func (t *sampled) apply(r *core.Record) {
	if r.Round > t.round {
		t.round, t.Steps = r.Round, nil
	}
	if r.Step >= 0 {
		s := t.step(r.Step)
		s.Status, s.At, s.Due = r.StepStatus, r.At, 0
		if r.Next < 0 {
			s.Due = r.Due
		}
	}
	if r.Next >= 0 && !r.Undo {
		s := t.step(r.Next)
		s.Status, s.At, s.Due = core.StepRunning, r.At, r.Due
		if s.Began == 0 {
			s.Began = r.At
		}
	}
}

// step returns a step of the task, and adds it if no row named it before. The pointer is valid until the next
// call.
func (t *sampled) step(step int) *operate.OpenStep {
	for i := range t.Steps {
		if t.Steps[i].Step == step {
			return &t.Steps[i]
		}
	}
	t.Steps = append(t.Steps, operate.OpenStep{Step: step})
	return &t.Steps[len(t.Steps)-1]
}
