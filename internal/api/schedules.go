package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/schedule"
	"duly.dev/duly/internal/taskform"
)

type (
	// ScheduleIn is a schedule in a path.
	ScheduleIn struct {
		Schedule string `path:"schedule" maxLength:"43"`
	}
	schedulesIn   struct{ PageIn }
	schedulesJSON struct {
		Schedules []operate.ScheduleView `json:"schedules"`
		Next      string                 `json:"next,omitempty"`
	}
	// scheduleJSON is schedule.Spec as it is sent: the name stands in the path.
	scheduleJSON struct {
		Name        string            `json:"name,omitempty" doc:"as in the path, or absent"`
		Type        string            `json:"type" doc:"of its tasks"`
		Input       anyJSON           `json:"input" doc:"of its tasks"`
		PlanVersion int64             `json:"plan_version,omitempty" doc:"absent: the newest when a task is submitted"`
		CompleteBy  string            `json:"complete_by,omitempty" doc:"a duration from the submission, as 2h; absent: the plan's"`
		Labels      map[string]string `json:"labels,omitempty" doc:"of its tasks"`
		Cron        string            `json:"cron,omitempty" doc:"minute, hour, day of month, month, day of week"`
		Every       string            `json:"every,omitempty" doc:"instead of cron: a duration as 15m, counted from from, or from 1970"`
		Zone        string            `json:"zone,omitempty" doc:"of cron: a name of the IANA database; absent: UTC"`
		From        *time.Time        `json:"from,omitempty" doc:"no run before it"`
		Until       *time.Time        `json:"until,omitempty" doc:"no run at it or after it"`
		Jitter      string            `json:"jitter,omitempty" doc:"a duration: each run is late by its own part of it"`
		Overlap     string            `json:"overlap,omitempty" doc:"of a run whose predecessor has not ended: skip (default), queue or all"`
		Queue       int               `json:"queue,omitempty" doc:"of overlap queue: so many wait at most; absent: 16"`
		CatchUp     string            `json:"catch_up,omitempty" doc:"a duration: a run that is later is missed; absent: 1h"`
		CatchUps    int               `json:"catch_ups,omitempty" doc:"so many are made up for after a stop, the newest; absent: 100"`
	}
	putScheduleIn struct {
		ScheduleIn
		Reason string `query:"reason" maxLength:"1000"`
		Body   scheduleJSON
	}
	deleteScheduleIn struct {
		ScheduleIn
		Reason string `query:"reason" maxLength:"1000" doc:"why; it may not be empty"`
	}
	changeScheduleIn struct {
		ScheduleIn
		Body struct {
			Reason string `json:"reason" minLength:"1" maxLength:"1000"`
		}
	}
	runScheduleIn struct {
		ScheduleIn
		KeyIn
		Body *struct {
			Reason string `json:"reason,omitempty" maxLength:"1000"`
		}
	}
)

// spec is the body as the ports take it.
func (j *scheduleJSON) spec(name string) schedule.Spec {
	s := schedule.Spec{
		Name: name, Type: j.Type, Input: json.RawMessage(j.Input), PlanVersion: j.PlanVersion, CompleteBy: j.CompleteBy, Labels: j.Labels, Cron: j.Cron, Every: j.Every, Zone: j.Zone,
		Jitter: j.Jitter, Overlap: j.Overlap, Queue: j.Queue, CatchUp: j.CatchUp, CatchUps: j.CatchUps,
	}
	if j.From != nil {
		s.From = *j.From
	}
	if j.Until != nil {
		s.Until = *j.Until
	}
	return s
}

// scheduleRoutes are tasks that are submitted again and again.
func (a *api) scheduleRoutes() {
	const tag, path = "schedules", "/v1/schedules/{schedule}"
	listing(a, route{method: "GET", path: "/v1/schedules", id: "listSchedules", tag: tag, needs: operate.RoleViewer, summary: "Schedules, by name, each with its next runs"},
		func(ctx context.Context, _ *schedulesIn, after string, limit int) (page schedulesJSON, rows []operate.ScheduleView, next string, err error) {
			if !core.PlainText(after) {
				return page, nil, "", ingest.Refuse(400, ingest.CauseQuery, "query parameter after is %s, want the next of a page", core.QuoteShort(after))
			}
			rows, next, err = a.ports.Schedules.Schedules(ctx, limit, after)
			page = schedulesJSON{some(rows), next}
			return page, page.Schedules, page.Next, err
		})
	register(a, route{method: http.MethodGet, path: path, id: "getSchedule", tag: tag, needs: operate.RoleViewer, summary: "A schedule, its next runs and what became of the last"},
		func(ctx context.Context, in *ScheduleIn) (out operate.ScheduleView, err error) {
			if bad := a.scheduleNamed(in.Schedule); bad != nil {
				return out, bad
			}
			return a.ports.Schedules.Schedule(ctx, in.Schedule)
		})
	register(a, route{method: http.MethodPut, path: path, id: "putSchedule", tag: tag, needs: operate.RoleOperator, summary: "Make a schedule, or change one",
		about: "What it has done is kept; other times count from now. One that would never run, or whose type has no plan, is refused."},
		func(ctx context.Context, in *putScheduleIn) (out operate.ScheduleView, err error) {
			if bad := a.scheduleNamed(in.Schedule); bad != nil {
				return out, bad
			}
			if in.Body.Name != "" && in.Body.Name != in.Schedule {
				return out, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.name-differs", "name", core.QuoteShort(in.Body.Name), "path", in.Schedule))
			}
			labels, bad := bindLabels(ctx, listOf(in.Body.Labels))
			if bad != nil {
				return out, bad
			}
			in.Body.Labels = taskform.Labels(labels)
			return a.ports.Schedules.PutSchedule(ctx, by(ctx), in.Body.spec(in.Schedule), in.Reason)
		})
	changing(a, route{method: http.MethodDelete, path: path, id: "deleteSchedule", tag: tag, needs: operate.RoleOperator, summary: "Delete a schedule", about: "Its tasks stay."},
		func(ctx context.Context, in *deleteScheduleIn) error {
			if bad := a.scheduleNamed(in.Schedule); bad != nil {
				return bad
			}
			return a.ports.Schedules.DeleteSchedule(ctx, by(ctx), in.Schedule, in.Reason)
		})
	for _, one := range []struct {
		word, summary, about string
		paused               bool
	}{
		{"pause", "Pause a schedule", "Runs of the time until it is resumed are left out.", true},
		{"resume", "Resume a schedule", "It goes on with the next run that comes.", false},
	} {
		register(a, route{method: http.MethodPost, path: path + "/" + one.word, id: one.word + "Schedule", tag: tag, needs: operate.RoleOperator, summary: one.summary, about: one.about},
			func(ctx context.Context, in *changeScheduleIn) (out operate.ScheduleView, err error) {
				if bad := a.scheduleNamed(in.Schedule); bad != nil {
					return out, bad
				}
				return a.ports.Schedules.PauseSchedule(ctx, by(ctx), in.Schedule, one.paused, in.Body.Reason)
			})
	}
	register(a, route{method: http.MethodPost, path: path + "/run-now", id: "runSchedule", tag: tag, needs: operate.RoleOperator, status: 202, summary: "Submit a task of a schedule now",
		about: "Whatever its times and its overlap are, and also while it is paused. Two requests within a second, or with one key, are one task."},
		func(ctx context.Context, in *runScheduleIn) (out operate.ScheduleRun, err error) {
			if bad := a.scheduleNamed(in.Schedule); bad != nil {
				return out, bad
			}
			reason := ""
			if in.Body != nil {
				reason = in.Body.Reason
			}
			return a.ports.Schedules.RunSchedule(ctx, by(ctx), in.Schedule, reason, in.Key)
		})
}

// scheduleNamed refuses a name that no schedule can have.
func (a *api) scheduleNamed(name string) error {
	if err := schedule.CheckName(name); err != nil {
		return ingest.Refuse(400, ingest.CauseBody, "path schedule: %v", err)
	}
	return nil
}
