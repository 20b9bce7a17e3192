package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// The row of a task says which signals it waits for (signal_steps, see core.StepSet.Bytes), since when, and
// until when. Each query names the order of its index, so that no planner reads the whole table.
const (
	// Counted are the most urgent ones, so that near ones are among them.
	qSignalCounts = `SELECT signal_steps, near, count(*) FROM (SELECT signal_steps, CASE WHEN signal_due < ?1 THEN 1 ELSE 0 END AS near FROM tasks
	WHERE signal_steps IS NOT NULL AND signal_due IS NOT NULL ORDER BY signal_due LIMIT ?2) AS counted GROUP BY signal_steps, near`
	qSignalOldest = `SELECT signal_since FROM tasks WHERE signal_steps IS NOT NULL AND signal_since IS NOT NULL ORDER BY signal_since LIMIT 1`
	qSignalNext   = `SELECT id, type, plan_version, signal_steps, signal_since, signal_due FROM tasks WHERE signal_steps IS NOT NULL AND signal_due IS NOT NULL ORDER BY signal_due LIMIT ?1`
	qStepNames    = `SELECT name FROM plan_steps WHERE plan = ?1 AND version = ?2 ORDER BY ordinal`
)

// Signals implements operate.Reader. near is the time before which a due signal counts as near; next is how
// many of the most urgent to list.
func (a *asked) Signals(ctx context.Context, near core.Instant, next int) (operate.Signals, error) {
	s := operate.Signals{Next: []operate.OpenSignal{}}
	if next < 0 || next > operate.ListMax {
		return s, fmt.Errorf("signals: the next %d, want 0 to %d", next, operate.ListMax)
	}
	if err := a.countSignals(ctx, &s, near); err != nil || s.Tasks.N == 0 {
		return s, err
	}
	var oldest instant
	switch err := a.of.db.QueryRowContext(ctx, a.of.params(qSignalOldest)).Scan(&oldest); {
	case err == nil:
		at := core.Instant(oldest).Time()
		s.Since = &at
	case !errors.Is(err, sql.ErrNoRows): // they were answered meanwhile
		return s, fmt.Errorf("the oldest signal: %w", err)
	}
	var err error
	s.Next, err = a.nextSignals(ctx, next)
	return s, err
}

// countSignals counts tasks with open signals, the most urgent first, up to operate.CountExactMax, and the
// signals and near ones among them.
func (a *asked) countSignals(ctx context.Context, s *operate.Signals, near core.Instant) error {
	for row := range each(a.of.query(ctx, qSignalCounts, a.of.time(near), operate.CountExactMax+1)) {
		var steps []byte
		var n int64
		var isNear int
		if err := row.Scan(&steps, &isNear, &n); err != nil {
			return fmt.Errorf("signals: %w", err)
		}
		s.Tasks.N += n
		s.Steps.N += n * int64(core.StepSetIn(steps).Len())
		s.Near.N += n * int64(isNear)
	}
	if s.Tasks.N > operate.CountExactMax {
		s.Steps.AtLeast, s.Near.AtLeast = true, s.Near.N == s.Tasks.N
	}
	s.Tasks, s.Near.N = countUpTo(s.Tasks.N), min(s.Near.N, operate.CountExactMax)
	return nil
}

// nextSignals reads the n tasks whose signals are due first, with the names of the steps that wait.
func (a *asked) nextSignals(ctx context.Context, n int) ([]operate.OpenSignal, error) {
	type version struct {
		plan string
		n    int64
	}
	type waiting struct {
		of    version
		steps core.StepSet
	}
	all, marks := make([]operate.OpenSignal, 0, n), make([]waiting, 0, n)
	for row := range each(a.of.query(ctx, qSignalNext, n)) {
		var o operate.OpenSignal
		var w waiting
		var steps []byte
		var since, due instant
		if err := row.Scan(&o.ID, &o.Type, &w.of.n, &steps, &since, &due); err != nil {
			return nil, fmt.Errorf("next signals: %w", err)
		}
		w.of.plan, w.steps = o.Type, core.StepSetIn(steps)
		o.Since, o.Due = core.Instant(since).Time(), core.Instant(due).Time()
		all, marks = append(all, o), append(marks, w)
	}
	// Names come from the plan's version, of which few differ on a
	// page.
	names := map[version][]string{}
	for i, w := range marks {
		if _, known := names[w.of]; !known {
			var err error
			if names[w.of], err = column[string](ctx, a.of, qStepNames, w.of.plan, w.of.n); err != nil {
				return nil, fmt.Errorf("steps of plan %s version %d: %w", w.of.plan, w.of.n, err)
			}
		}
		all[i].Steps = []string{}
		for k, name := range names[w.of] {
			if w.steps.Has(k) {
				all[i].Steps = append(all[i].Steps, name)
			}
		}
	}
	return all, nil
}
