package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// scheduleColumns are in the order of scanSchedule's targets and of scheduleArgs.
var scheduleColumns = []string{
	"name", "type", "input", "plan_version", "complete_by", "labels", "cron", "every", "zone", "from_at", "until_at", "jitter", "overlap", "queue", "catch_up", "catch_ups",
	"paused", "revision", "by_name", "created_at", "changed_at", "cursor_at", "waiting", "last_run", "last_task", "last_at", "last_place", "outcome", "why",
	"submitted", "skipped", "missed", "failing_since", "failure", "due_at",
}

var (
	qScheduleAll   = `SELECT ` + strings.Join(scheduleColumns, ", ") + ` FROM schedules WHERE `
	qScheduleName  = qScheduleAll + `name = ?1`
	qSchedulePage  = qScheduleAll + `name > ?1 ORDER BY name LIMIT ?2`
	qScheduleDue   = qScheduleAll + `name > ?1 AND due_at <= ?3 ORDER BY name LIMIT ?2`
	qScheduleTasks = `SELECT name, last_task, last_place FROM schedules WHERE last_task <> '' AND outcome = '' ORDER BY name LIMIT ?1`
	qScheduleCount = `SELECT count(*) FROM schedules WHERE name <> ?1` // one that is there already is told as such
	qScheduleDrop  = `DELETE FROM schedules WHERE name = ?1 AND revision = ?2`
	qScheduleNew   = `INSERT INTO schedules (` + strings.Join(scheduleColumns, ", ") + `) VALUES (` + params(1, len(scheduleColumns)) + `) ON CONFLICT (name) DO NOTHING`
	qScheduleSet   = `UPDATE schedules SET (` + strings.Join(scheduleColumns[1:], ", ") + `) = (` + params(2, len(scheduleColumns)) + `) WHERE name = ?1 AND revision = ` + params(len(scheduleColumns)+1, len(scheduleColumns)+1)
)

// params is the list of the parameters with numbers from one to another.
func params(from, to int) string {
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprintf("?%d", i))
	}
	return strings.Join(all, ", ")
}

// scheduleArgs are a schedule's values in the order of scheduleColumns.
func (r *reader) scheduleArgs(s *operate.Schedule) ([]any, error) {
	waiting, err := json.Marshal(s.Waiting)
	if err != nil {
		return nil, err
	}
	var labels []string
	for key, value := range s.Labels {
		labels = append(labels, key+"="+value)
	}
	slices.Sort(labels)
	return []any{
		s.Name, s.Type, []byte(s.Input), s.PlanVersion, s.CompleteBy, operate.CleanText(strings.Join(labels, ",")), operate.CleanText(s.Cron), s.Every, s.Zone, r.when(s.From), r.when(s.Until), s.Jitter, s.Overlap, s.Queue, s.CatchUp, s.CatchUps,
		s.Paused, s.Revision, operate.CleanText(s.By), r.when(s.Created), r.when(s.Changed), r.when(s.Cursor), waiting, r.when(s.Last), s.LastTask, r.when(s.LastAt), int64(s.LastPlace), string(s.Outcome), operate.CleanText(s.Why),
		s.Submitted, s.Skipped, s.Missed, r.when(s.Failing), operate.CleanText(s.Failure), r.when(s.Due),
	}, nil
}

// scanSchedule reads a row of scheduleColumns.
func scanSchedule(row interface{ Scan(...any) error }) (operate.Schedule, error) {
	var s operate.Schedule
	var from, until, created, changed, cursor, last, lastAt, failing, due instant
	var input, waiting []byte
	var labels, outcome string
	var place int64
	err := row.Scan(&s.Name, &s.Type, &input, &s.PlanVersion, &s.CompleteBy, &labels, &s.Cron, &s.Every, &s.Zone, &from, &until, &s.Jitter, &s.Overlap, &s.Queue, &s.CatchUp, &s.CatchUps,
		&s.Paused, &s.Revision, &s.By, &created, &changed, &cursor, &waiting, &last, &s.LastTask, &lastAt, &place, &outcome, &s.Why,
		&s.Submitted, &s.Skipped, &s.Missed, &failing, &s.Failure, &due)
	if err != nil {
		return s, err
	}
	s.Input, s.Outcome = input, core.State(outcome)
	s.From, s.Until, s.Created, s.Changed, s.Cursor = from.timeOf(), until.timeOf(), created.timeOf(), changed.timeOf(), cursor.timeOf()
	s.LastPlace = uint64(place)
	s.Last, s.LastAt, s.Failing, s.Due = last.timeOf(), lastAt.timeOf(), failing.timeOf(), due.timeOf()
	if labels != "" {
		s.Labels = map[string]string{}
		for one := range strings.SplitSeq(labels, ",") {
			key, value, _ := strings.Cut(one, "=")
			s.Labels[key] = value
		}
	}
	if err := json.Unmarshal(waiting, &s.Waiting); err != nil {
		return s, fmt.Errorf("runs of schedule %s that wait: %w", s.Name, err)
	}
	return s, nil
}

// PutSchedule implements operate.ScheduleStore. was is the revision that the stored schedule must have; 0: it
// must not exist. Error: operate.ErrFenced, or an *operate.Refusal when there are too many.
func (a *asked) PutSchedule(ctx context.Context, s operate.Schedule, was int64) error {
	args, err := a.of.scheduleArgs(&s)
	if err == nil {
		err = a.change(ctx, func(c changes) error {
			if was != 0 {
				return c.one(qScheduleSet, append(args[:len(args):len(args)], was)...)
			}
			var there int
			if err := c.row(qScheduleCount, []any{s.Name}, &there); err != nil {
				return err
			}
			if there >= operate.SchedulesMax {
				return &operate.Refusal{Code: 409, Detail: fmt.Sprintf("there are %d schedules, the limit: delete one first", there)}
			}
			return c.one(qScheduleNew, args...)
		})
	}
	return about(err, "schedule %s", core.QuoteShort(s.Name))
}

// one runs a statement that must change a row. Error: operate.ErrFenced when it changed none, because another
// change was faster.
func (c changes) one(query string, args ...any) error {
	n, err := c.exec(query, args...)
	if err == nil && n == 0 {
		return operate.ErrFenced
	}
	return err
}

// DeleteSchedule implements operate.ScheduleStore. was is the revision that it must have. Error:
// operate.ErrFenced.
func (a *asked) DeleteSchedule(ctx context.Context, name string, was int64) error {
	err := a.change(ctx, func(c changes) error { return c.one(qScheduleDrop, operate.CleanText(name), was) })
	return about(err, "schedule %s", core.QuoteShort(name))
}

// ScheduleByName implements operate.ScheduleStore.
func (a *asked) ScheduleByName(ctx context.Context, name string) (operate.Schedule, error) {
	return lookUp(ctx, a, "schedule", name, scanSchedule, qScheduleName, operate.CleanText(name))
}

// Schedules implements operate.ScheduleStore.
func (a *asked) Schedules(ctx context.Context, limit int, after string) ([]operate.Schedule, error) {
	if limit < 1 || limit > operate.ListMax {
		return nil, fmt.Errorf("schedules: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	all, err := scanAll(ctx, a.of, scanSchedule, qSchedulePage, operate.CleanText(after), limit)
	return all, about(err, "schedules")
}

// DueSchedules implements operate.ScheduleStore: by name, not by time, so that after can page.
func (a *asked) DueSchedules(ctx context.Context, now time.Time, limit int, after string) ([]operate.Schedule, error) {
	if limit < 1 || limit > operate.ListMax {
		return nil, fmt.Errorf("schedules that are due: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	all, err := scanAll(ctx, a.of, scanSchedule, qScheduleDue, operate.CleanText(after), limit, a.of.time(core.InstantOf(now)))
	return all, about(err, "schedules that are due")
}

// ScheduleTasks implements operate.ScheduleStore: the schedules whose last task has not ended as far as they
// know.
func (a *asked) ScheduleTasks(ctx context.Context) ([]operate.ScheduleTask, error) {
	all, err := scanAll(ctx, a.of, func(row interface{ Scan(...any) error }) (operate.ScheduleTask, error) {
		var t operate.ScheduleTask
		var place int64
		err := row.Scan(&t.Name, &t.Task, &place)
		t.Place = uint64(place)
		return t, err
	}, qScheduleTasks, operate.SchedulesMax)
	return all, about(err, "tasks of schedules")
}
