package apitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
	"duly.dev/duly/internal/submit"
)

// nightly is the schedule of the world.
func nightly() operate.Schedule {
	s := operate.Schedule{Spec: schedule.Spec{Name: "nightly", Type: "order", Input: []byte(`{"cents":1}`), Cron: "30 2 * * *", Zone: "Europe/Berlin"}, Revision: 1, By: "olga", Created: At, Changed: At, Cursor: At,
		Last: At.Add(-10 * time.Hour), LastTask: "nightly-20260131T013000Z", LastAt: At.Add(-10 * time.Hour), Outcome: core.StateProcessed, Submitted: 3, Skipped: 1}
	s.Due = operate.DueOf(&s)
	return s
}

// scheduling is operate.Schedules of the world.
func (w *World) scheduling() *operate.Scheduling {
	return &operate.Scheduling{Store: w, Plans: w.Plans, Deprecated: w.Deprecated, Desk: w.desk(), Submit: scheduled{w}, Now: w.now, Known: func(context.Context, string) (bool, error) { return true, nil },
		CheckInput: func(p *core.Plan, input []byte) error { return w.schemas.Check(p.InputSchema, input) }}
}

// scheduled is operate.Submitter of the world.
type scheduled struct{ w *World }

// Submit implements operate.Submitter.
func (s scheduled) Submit(_ context.Context, f submit.Form) (place uint64, err error) {
	return 1, s.w.do(func() error {
		s.w.Submitted = append(s.w.Submitted, ingest.Request{Form: f})
		return nil
	})
}

// PutSchedule implements operate.ScheduleStore.
func (w *World) PutSchedule(_ context.Context, s operate.Schedule, was int64) error {
	return w.do(func() error {
		i := slices.IndexFunc(w.Timed, func(is operate.Schedule) bool { return is.Name == s.Name })
		switch {
		case i >= 0 && w.Timed[i].Revision != was || i < 0 && was != 0:
			return operate.ErrFenced
		case i >= 0:
			w.Timed[i] = s
		default:
			w.Timed = append(w.Timed, s)
			slices.SortFunc(w.Timed, func(a, b operate.Schedule) int { return strings.Compare(a.Name, b.Name) })
		}
		return nil
	})
}

// DeleteSchedule implements operate.ScheduleStore.
func (w *World) DeleteSchedule(_ context.Context, name string, was int64) error {
	return w.do(func() error {
		n := len(w.Timed)
		if w.Timed = slices.DeleteFunc(w.Timed, func(is operate.Schedule) bool { return is.Name == name && is.Revision == was }); len(w.Timed) == n {
			return operate.ErrFenced
		}
		return nil
	})
}

// ScheduleByName implements operate.ScheduleStore.
func (w *World) ScheduleByName(_ context.Context, name string) (s operate.Schedule, err error) {
	err = w.do(func() error {
		for _, is := range w.Timed {
			if is.Name == name {
				s = is
				return nil
			}
		}
		return fmt.Errorf("schedule %s: %w", name, core.ErrNotFound)
	})
	return s, err
}

// Schedules implements operate.ScheduleStore.
func (w *World) Schedules(_ context.Context, limit int, after string) (page []operate.Schedule, err error) {
	err = w.do(func() error {
		for _, is := range w.Timed {
			if is.Name > after && len(page) < limit {
				page = append(page, is)
			}
		}
		return nil
	})
	return page, err
}

// DueSchedules implements operate.ScheduleStore.
func (w *World) DueSchedules(context.Context, time.Time, int, string) ([]operate.Schedule, error) {
	return nil, nil // no one carries them out here
}

// ScheduleTasks implements operate.ScheduleStore.
func (w *World) ScheduleTasks(context.Context) ([]operate.ScheduleTask, error) { return nil, nil }
