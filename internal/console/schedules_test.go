package console

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
)

// clocked fills the schedules of a world: one that works, one that is paused, one whose submissions fail.
func (w *world) clocked() {
	at := w.now()
	w.timed = []operate.ScheduleView{
		{Schedule: operate.Schedule{Spec: schedule.Spec{Name: "failing", Type: "order", Input: []byte(`{}`), Every: "15m"}, Created: at, Changed: at, Failing: at.Add(-time.Hour), Failure: "no plan is stored", Missed: 4},
			Next: []time.Time{at.Add(time.Minute)}},
		{Schedule: operate.Schedule{Spec: schedule.Spec{Name: "monthly", Type: "settlement", Input: []byte(`{}`), Cron: "0 6 1 * *"}, Paused: true, By: "ada", Created: at, Changed: at}, Next: []time.Time{}},
		{Schedule: operate.Schedule{Spec: schedule.Spec{Name: "nightly", Type: "order", Input: []byte(`{}`), Cron: "30 2 * * *", Zone: "Europe/Berlin", Jitter: "10m", From: at.Add(-24 * time.Hour)}, Created: at, Changed: at,
			LastTask: "order-1002", LastAt: at.Add(-time.Hour), Outcome: core.StateError, Why: "no money", Submitted: 12345, Skipped: 2, Waiting: []time.Time{at}},
			Next: []time.Time{at.Add(time.Hour), at.Add(25 * time.Hour), at.Add(49 * time.Hour), at.Add(73 * time.Hour), at.Add(97 * time.Hour)}},
	}
}

// timetable is operate.Schedules of a world.
type timetable struct{ *world }

func (t timetable) find(name string) (*operate.ScheduleView, error) {
	for i := range t.timed {
		if t.timed[i].Name == name {
			return &t.timed[i], t.broken
		}
	}
	return nil, core.ErrNotFound
}

func (t timetable) Schedules(_ context.Context, _ int, after string) (page []operate.ScheduleView, next string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
	for _, s := range t.timed {
		if s.Name > after {
			page = append(page, s)
		}
	}
	return page, "", t.broken
}

func (t timetable) Schedule(_ context.Context, name string) (operate.ScheduleView, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.find(name)
	if err != nil {
		return operate.ScheduleView{}, err
	}
	return *s, nil
}

func (t timetable) PutSchedule(context.Context, operate.Actor, schedule.Spec, string) (operate.ScheduleView, error) {
	return operate.ScheduleView{}, &operate.Refusal{Code: 400, Detail: "no page makes one"}
}

func (t timetable) DeleteSchedule(context.Context, operate.Actor, string, string) error {
	return &operate.Refusal{Code: 400, Detail: "no page deletes one"}
}

func (t timetable) did(by operate.Actor, action, name, reason string) {
	t.append(operate.AuditEntry{At: t.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: action, Target: "schedule/" + name, Reason: reason, Outcome: "done"})
}

func (t timetable) PauseSchedule(_ context.Context, by operate.Actor, name string, paused bool, reason string) (operate.ScheduleView, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.find(name)
	if err != nil {
		return operate.ScheduleView{}, err
	}
	s.Paused, s.By = paused, by.Name
	t.did(by, map[bool]string{true: "schedule.pause", false: "schedule.resume"}[paused], name, reason)
	return *s, nil
}

func (t timetable) RunSchedule(_ context.Context, by operate.Actor, name, reason, key string) (operate.ScheduleRun, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.find(name)
	if err != nil {
		return operate.ScheduleRun{}, err
	}
	s.LastTask, s.Submitted = schedule.RunNowID(name, t.now()), s.Submitted+1
	t.did(by, "schedule.run_now", name, reason)
	t.entries[len(t.entries)-1].Key = key
	return operate.ScheduleRun{Type: s.Type, Task: s.LastTask}, nil
}

// TestSchedules: the page says what comes, what became of the last task and what is wrong; a change needs a reason where
// it stops something, works without scripts, and what cannot be pressed says why.
//
// covers: OP16
func TestSchedules(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	body := html.UnescapeString(get(t, h, Path+"schedules").Body.String())
	for _, want := range []string{"30 2 * * * Europe/Berlin, each run delayed by a random time of up to 10m", "every 15m", "0 6 1 * * UTC", "paused", "no plan is stored", "not taken", "no money", number(12345), "1 wait for the task before", `href="/console/tasks/order/order-1002"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(body, "<li>"); n < 6 {
		t.Errorf("%d next runs, want 6", n)
	}
	pause := Path + "schedules/nightly/pause"
	if rec := post(t, h, pause, url.Values{}); rec.Code != http.StatusUnprocessableEntity || w.timed[2].Paused {
		t.Fatalf("without a reason: %d", rec.Code)
	}
	before := len(w.entries)
	if rec := post(t, h, pause, url.Values{"reason": {"month's end"}}); rec.Code != http.StatusSeeOther || !w.timed[2].Paused {
		t.Fatalf("with a reason: %d %s", rec.Code, rec.Body)
	}
	if e := w.entries[before]; e.Action != "schedule.pause" || e.Via != "console" || e.Actor != "ada" || e.Reason != "month's end" {
		t.Errorf("%+v", e)
	}
	if rec := post(t, h, Path+"schedules/nightly/resume", url.Values{"reason": {"over"}}); rec.Code != http.StatusSeeOther || w.timed[2].Paused {
		t.Errorf("resume: %d", rec.Code)
	}
	if rec := post(t, h, Path+"schedules/nightly/run-now", url.Values{"key": {"k-1"}}); rec.Code != http.StatusSeeOther || w.timed[2].Submitted != 12346 || w.entries[len(w.entries)-1].Key != "k-1" {
		t.Errorf("run now: %d", rec.Code)
	}
	for _, path := range []string{"schedules/nightly/run-now", "pauses/new"} {
		if page := get(t, h, Path+path).Body.String(); !regexp.MustCompile(`name="key" value="[A-Z2-7]{26}"`).MatchString(page) {
			t.Errorf("%s has no key", path)
		}
	}
	for path, code := range map[string]int{"schedules/none/pause": http.StatusNotFound, "schedules/nightly/burn": http.StatusNotFound} {
		if rec := get(t, h, Path+path); rec.Code != code {
			t.Errorf("%s: %d, want %d", path, rec.Code, code)
		}
	}
	body = get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path+"schedules").Body.String()
	if strings.Contains(body, "schedules/nightly/pause") || !strings.Contains(body, "Your role is viewer; this needs the role operator.") {
		t.Error("a viewer's buttons are not disabled with the reason")
	}
	w.timed = nil
	if body := get(t, h, Path+"schedules").Body.String(); !strings.Contains(body, "There is no schedule.") {
		t.Error("no schedule is no empty page")
	}
}
