package console

import (
	"context"
	"net/http"
	"strings"

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

var schedulesAbsent = &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "schedules")}

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

// scheduleDialog reads which change of which schedule is meant.
func (c *console) scheduleDialog(r *http.Request) (confirmData, string, error) {
	name, change := r.PathValue("name"), r.PathValue("change")
	if c.Schedules == nil {
		return confirmData{}, name, schedulesAbsent
	}
	ctx, cancel := reading(r)
	defer cancel()
	s, err := c.Schedules.Schedule(ctx, name)
	if err != nil {
		return confirmData{}, name, err
	}
	d := confirmData{URL: c.url("schedules", name, change), Back: c.url("schedules"), ReasonIs: true}
	switch change {
	case "pause":
		d.Title, d.Go = "Pause schedule "+name, "Pause"
		d.What = say.Of("schedule.pause")
	case "resume":
		d.Title, d.Go = "Resume schedule "+name, "Resume"
		d.What = say.Of("schedule.resume")
	case "run-now":
		d.Title, d.Go, d.ReasonIs = "Run schedule "+name+" now", "Run now", false
		d.What = say.Of("schedule.run", "type", s.Type)
	default:
		return d, name, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("schedule.no-change", "change", core.QuoteShort(change))}
	}
	return d, name, nil
}

func (c *console) scheduleForm(w http.ResponseWriter, r *http.Request) {
	d, _, err := c.scheduleDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "schedules", d)
}

func (c *console) changeSchedule(w http.ResponseWriter, r *http.Request) {
	d, name, err := c.scheduleDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	reason := strings.TrimSpace(r.PostForm.Get("reason"))
	told := map[string]string{"pause": "Paused.", "resume": "Resumed.", "run-now": say.Of("schedule.ran")}[r.PathValue("change")]
	c.carry(w, r, "schedules", d, nil, told, func(ctx context.Context) error {
		if r.PathValue("change") == "run-now" {
			_, err := c.Schedules.RunSchedule(ctx, actorOf(r), name, reason)
			return err
		}
		_, err := c.Schedules.PauseSchedule(ctx, actorOf(r), name, r.PathValue("change") == "pause", reason)
		return err
	})
}
