package storetest

import (
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
)

// nightly is a schedule with every field set.
func nightly(name string) operate.Schedule {
	at := func(d time.Duration) time.Time { return start.Add(d).Time() }
	return operate.Schedule{
		Spec: schedule.Spec{Name: name, Type: "payout", Input: []byte(`{"a": [1, "ü"]}`), PlanVersion: 3, CompleteBy: "2h", Labels: map[string]string{"tenant": "x", "kind": "a=b"},
			Cron: "0 2 * * *", Every: "", Zone: "Europe/Berlin", From: at(time.Hour), Until: at(1000 * time.Hour), Jitter: "30s", Overlap: "queue", Queue: 5, CatchUp: "3h", CatchUps: 7},
		Paused: true, Revision: 10, By: "olga", Created: at(0), Changed: at(time.Second), Cursor: at(2 * time.Second), Waiting: []time.Time{at(time.Minute), at(2 * time.Minute)},
		Last: at(time.Minute), LastTask: name + "-1", LastAt: at(61 * time.Second), Outcome: core.StateUndone, Why: "no money", Submitted: 5, Skipped: 2, Missed: 1,
		Failing: at(time.Minute), Failure: "no plan", Due: at(3 * time.Minute),
	}
}

func testSchedules(r *rig) {
	a, b := nightly("a"), nightly("b")
	b.LastPlace, b.Due, b.Outcome, b.Why = 7, start.Add(10*time.Minute).Time(), "", ""
	c := operate.Schedule{Spec: schedule.Spec{Name: "c", Type: "t", Input: []byte(`1`), Every: "1m"}, Revision: 1, Created: a.Created, Changed: a.Changed, Cursor: a.Cursor}
	for _, s := range []operate.Schedule{b, c, a} {
		r.must(r.s.PutSchedule(r.ctx, s, 0))
	}
	r.equal("one", get(r.s.ScheduleByName(r.ctx, "a"))(r), a)
	r.equal("page", get(r.s.Schedules(r.ctx, 2, ""))(r), []operate.Schedule{a, b})
	r.equal("next page", get(r.s.Schedules(r.ctx, 2, "b"))(r), []operate.Schedule{c})
	if _, err := r.s.ScheduleByName(r.ctx, "d"); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a schedule that is not there: %v, want %v", err, core.ErrNotFound)
	}
	at := func(d time.Duration) time.Time { return start.Add(d).Time() }
	r.equal("none due", get(r.s.DueSchedules(r.ctx, at(3*time.Minute-time.Microsecond), 10, ""))(r), []operate.Schedule(nil))
	r.equal("one due", get(r.s.DueSchedules(r.ctx, at(3*time.Minute), 10, ""))(r), []operate.Schedule{a})
	r.equal("two due, in pages", get(r.s.DueSchedules(r.ctx, at(time.Hour), 1, "a"))(r), []operate.Schedule{b})
	r.equal("tasks", get(r.s.ScheduleTasks(r.ctx))(r), []operate.ScheduleTask{{Name: "b", Task: "b-1", Place: 7}})
}

// testSchedulesFenced lets two write that have read the same.
func testSchedulesFenced(r *rig) {
	a := nightly("a")
	r.must(r.s.PutSchedule(r.ctx, a, 0))
	other := a
	other.Revision, other.Type = 11, "other"
	if !errors.Is(r.s.PutSchedule(r.ctx, other, 0), operate.ErrFenced) {
		r.Error("a schedule that is there is made again")
	}
	r.must(r.s.PutSchedule(r.ctx, other, 10))
	late := a
	late.Revision, late.Submitted = 12, 99
	if err := r.s.PutSchedule(r.ctx, late, 10); !errors.Is(err, operate.ErrFenced) {
		r.Errorf("who has not read the newest writes: %v, want %v", err, operate.ErrFenced)
	}
	r.equal("stands", get(r.s.ScheduleByName(r.ctx, "a"))(r), other)
	if err := r.s.DeleteSchedule(r.ctx, "a", 10); !errors.Is(err, operate.ErrFenced) {
		r.Errorf("who has not read the newest deletes: %v, want %v", err, operate.ErrFenced)
	}
	r.must(r.s.DeleteSchedule(r.ctx, "a", 11))
	if err := r.s.PutSchedule(r.ctx, late, 11); !errors.Is(err, operate.ErrFenced) {
		r.Errorf("one that is gone is written: %v, want %v", err, operate.ErrFenced)
	}
	r.equal("left", get(r.s.Schedules(r.ctx, 10, ""))(r), []operate.Schedule(nil))
}

// testSchedulesMany refuses one more than there may be.
func testSchedulesMany(r *rig) {
	if r.db == nil {
		return
	}
	r.must(r.s.PutSchedule(r.ctx, nightly("a"), 0))
	const rest = "type, input, plan_version, complete_by, labels, cron, every, zone, jitter, overlap, queue, catch_up, catch_ups, paused, revision, by_name, created_at, changed_at, cursor_at, waiting, last_task, last_place, outcome, why, submitted, skipped, missed, failure"
	rows := `generate_series(1, %d) AS n(i)`
	if r.s.Dialect() == "sqlite" {
		rows = `(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n) AS n`
	}
	rows = fmt.Sprintf(rows, operate.SchedulesMax-1)
	get(r.db.ExecContext(r.ctx, `INSERT INTO schedules (name, `+rest+`) SELECT 'f' || n.i, `+rest+` FROM schedules, `+rows+` WHERE name = 'a'`))(r)
	more := nightly("more")
	refused, ok := errors.AsType[*operate.Refusal](r.s.PutSchedule(r.ctx, more, 0))
	if !ok || refused.Code != 409 {
		r.Errorf("schedule %d: %v, want a refusal", operate.SchedulesMax+1, refused)
	}
	r.must(r.s.DeleteSchedule(r.ctx, "a", 10))
	r.must(r.s.PutSchedule(r.ctx, more, 0))
}
