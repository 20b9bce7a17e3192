package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
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

var schedulesAbsent = &operate.Refusal{Code: http.StatusNotFound, Detail: "This node does not serve schedules."}

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
		words += ", late by up to " + s.Jitter
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
		d.What = "Nothing is submitted until it is resumed, and the runs of that time are left out. Tasks that were submitted go on."
	case "resume":
		d.Title, d.Go = "Resume schedule "+name, "Resume"
		d.What = "It goes on with the next run that comes. Runs of the time of the pause are not made up for."
	case "run-now":
		d.Title, d.Go, d.ReasonIs = "Run schedule "+name+" now", "Run now", false
		d.What = fmt.Sprintf("A task of type %s is submitted at once, whatever the times of the schedule are and whether or not the task before has ended.", s.Type)
	default:
		return d, name, &operate.Refusal{Code: http.StatusNotFound, Detail: fmt.Sprintf("There is no change %s of a schedule: want pause, resume or run-now.", core.QuoteShort(change))}
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
	told := map[string]string{"pause": "Paused.", "resume": "Resumed.", "run-now": "A task was submitted."}[r.PathValue("change")]
	c.carry(w, r, "schedules", d, nil, told, func(ctx context.Context) error {
		if r.PathValue("change") == "run-now" {
			_, err := c.Schedules.RunSchedule(ctx, actorOf(r), name, reason)
			return err
		}
		_, err := c.Schedules.PauseSchedule(ctx, actorOf(r), name, r.PathValue("change") == "pause", reason)
		return err
	})
}
