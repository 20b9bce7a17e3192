package console

import (
	"context"
	"net/http"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// scheduleRow is a schedule with what may be done about it.
type scheduleRow struct {
	operate.ScheduleView
	When    string // its times, in words
	TaskURL string // of the task that was submitted last
	Buttons []changeButton
}

type schedulesData struct {
	Rows  []scheduleRow
	Next  string
	First bool
	Query string
}

// schedules shows what is submitted again and again, and what comes next.
func (c *console) schedules(ctx context.Context, r *http.Request) (page, error) {
	q := r.URL.Query()
	all, next, err := c.Schedules.Schedules(ctx, rowsOfList, q.Get("after"))
	if err != nil {
		return page{}, err
	}
	d := schedulesData{First: q.Get("after") == "", Next: nextPage(r, next)}
	why := operate.WhyNotRole(actorOf(r), operate.RoleOperator)
	for _, s := range all {
		row := scheduleRow{ScheduleView: s, When: whenOf(&s.Schedule)}
		if s.LastTask != "" && s.Outcome != operate.ScheduleForgotten {
			row.TaskURL = c.taskURL(s.Type, s.LastTask)
		}
		change, title := "pause", "Pause"
		if s.Paused {
			change, title = "resume", "Resume"
		}
		for _, b := range []changeButton{{Change: change, Title: title}, {Change: "run-now", Title: "Run now"}} {
			b.URL, b.Why = c.url("schedules", s.Name, b.Change), why
			row.Buttons = append(row.Buttons, b)
		}
		d.Rows = append(d.Rows, row)
	}
	return page{Title: "Schedules", Data: d}, nil
}

// whenOf are the times of a schedule, in words.
func whenOf(s *operate.Schedule) string {
	words := "every " + s.Every
	if s.Cron != "" {
		words = s.Cron + " UTC"
		if s.Zone != "" {
			words = s.Cron + " " + s.Zone
		}
	}
	if s.Jitter != "" {
		words += say.Of("schedule.jitter", "time", s.Jitter)
	}
	return words
}

// changeSchedule pauses or resumes a schedule, or submits a task of it now.
func (c *console) changeSchedule(r *http.Request) (*dialog, error) {
	name, change := r.PathValue("name"), r.PathValue("change")
	ctx, cancel := reading(r)
	defer cancel()
	s, err := c.Schedules.Schedule(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &dialog{URL: c.url("schedules", name, change), Back: c.url("schedules"), ReasonIs: true, do: func(ctx context.Context, typed form) error {
		_, err := c.Schedules.PauseSchedule(ctx, actorOf(r), name, change == "pause", typed("reason"))
		return err
	}}
	switch change {
	case "pause":
		d.Title, d.Go, d.told = "Pause schedule "+name, "Pause", "Paused."
		d.What = say.Of("schedule.pause")
	case "resume":
		d.Title, d.Go, d.told = "Resume schedule "+name, "Resume", "Resumed."
		d.What = say.Of("schedule.resume")
	case "run-now":
		d.Title, d.Go, d.told, d.ReasonIs = "Run schedule "+name+" now", "Run now", say.Of("schedule.ran"), false
		d.What = say.Of("schedule.run", "type", s.Type)
		d.Hidden = keyOf(r)
		d.do = func(ctx context.Context, typed form) error {
			run, err := c.Schedules.RunSchedule(ctx, actorOf(r), name, typed("reason"), typed("key"))
			if run.Again {
				d.told = say.Of("schedule.ran-already", "task", run.Task)
			}
			return err
		}
	default:
		return nil, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("schedule.no-change", "change", core.QuoteShort(change))}
	}
	return d, nil
}
