package schedules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/submit/submittest"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// world is a state store, a request endpoint and a clock in memory.
type world struct {
	mu        sync.Mutex
	now       time.Time
	rows      map[string]operate.Schedule
	tasks     map[string]State // that were submitted, by id
	inputs    map[string]string
	order     []string // ids, in the order of their first submission
	again     int      // submissions of a task that was there
	refuse    error    // of every submission
	lost      error    // instead of the answer to one
	putFails  int      // so many writes fail from now on
	limited   bool     // after takes more submissions the next are refused
	takes     int
	down      bool                 // States fails
	afterSend func()               // runs after each submission, without the lock
	unread    bool                 // what is submitted stands in the stream
	stands    []string             // ids that do
	stored    map[string]time.Time // when each submission was
	others    time.Time            // when what others submitted was, which is not read; zero: all is
	refused   bool                 // what has been read is refused
	onRead    func()               // runs before it is told what has been read
	trail     []operate.AuditEntry
}

func newWorld() *world {
	return &world{now: noon, rows: map[string]operate.Schedule{}, tasks: map[string]State{}, inputs: map[string]string{}, stored: map[string]time.Time{}}
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) wait(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

var errDown = errors.New("the database is down")

func (w *world) PutSchedule(_ context.Context, s operate.Schedule, was int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.putFails > 0 {
		w.putFails--
		return errDown
	}
	is, found := w.rows[s.Name]
	if found != (was != 0) || found && is.Revision != was {
		return fmt.Errorf("schedule %s: %w", s.Name, operate.ErrFenced)
	}
	s.Waiting = slices.Clone(s.Waiting)
	w.rows[s.Name] = s
	return nil
}

func (w *world) DeleteSchedule(_ context.Context, name string, was int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is, found := w.rows[name]; !found || is.Revision != was {
		return operate.ErrFenced
	}
	delete(w.rows, name)
	return nil
}

func (w *world) ScheduleByName(_ context.Context, name string) (operate.Schedule, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, found := w.rows[name]
	if !found {
		return s, core.ErrNotFound
	}
	s.Waiting = slices.Clone(s.Waiting)
	return s, nil
}

func (w *world) selected(limit int, after string, is func(*operate.Schedule) bool) (all []operate.Schedule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range w.rows {
		if name > after && is(&s) {
			s.Waiting = slices.Clone(s.Waiting)
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b operate.Schedule) int { return strings.Compare(a.Name, b.Name) })
	return all[:min(limit, len(all))]
}

func (w *world) Schedules(_ context.Context, limit int, after string) ([]operate.Schedule, error) {
	return w.selected(limit, after, func(*operate.Schedule) bool { return true }), nil
}

func (w *world) DueSchedules(_ context.Context, now time.Time, limit int, after string) ([]operate.Schedule, error) {
	return w.selected(limit, after, func(s *operate.Schedule) bool { return !s.Due.IsZero() && !s.Due.After(now) }), nil
}

func (w *world) ScheduleTasks(context.Context) (all []operate.ScheduleTask, err error) {
	for _, s := range w.selected(operate.SchedulesMax, "", func(s *operate.Schedule) bool { return s.LastTask != "" && s.Outcome == "" }) {
		all = append(all, operate.ScheduleTask{Name: s.Name, Task: s.LastTask, Place: s.LastPlace})
	}
	return all, nil
}

func (w *world) States(_ context.Context, ids []string) (map[string]State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errDown
	}
	found := map[string]State{}
	for _, id := range ids {
		if s, ok := w.tasks[id]; ok {
			found[id] = s
		}
	}
	return found, nil
}

// Read is what Tasks says: a place is how many were submitted before.
func (w *world) Read(_ context.Context, tasks []operate.ScheduleTask) (read []operate.ScheduleTask, err error) {
	if w.onRead != nil {
		w.onRead()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, task := range tasks {
		if int(task.Place) <= len(w.order)-len(w.stands) {
			read = append(read, task)
		}
	}
	return read, nil
}

// Unread is what Tasks says.
func (w *world) Unread(_ context.Context, ids []string, before time.Time) (map[string]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unread := map[string]bool{}
	for _, id := range ids {
		unread[id] = slices.Contains(w.stands, id) && w.stored[id].Before(before) || !w.others.IsZero() && w.others.Before(before)
	}
	return unread, nil
}

// read lets owners read what stands in the stream.
func (w *world) read() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread = false
	for _, id := range w.stands {
		if !w.refused {
			w.tasks[id] = State{State: core.StateProcessing}
		}
	}
	w.stands = nil
}

func (w *world) Submit(ctx context.Context, t submit.Form) (place uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w.mu.Lock()
	if w.refuse != nil {
		defer w.mu.Unlock()
		return 0, w.refuse
	}
	if w.takes--; w.limited && w.takes < 0 {
		defer w.mu.Unlock()
		return 0, &operate.Refusal{Code: 503, Detail: "busy"}
	}
	if i := slices.Index(w.order, t.ID); i >= 0 {
		w.again++
		place = uint64(i + 1)
	} else {
		w.inputs[t.ID] = string(t.Input)
		w.order, w.stored[t.ID] = append(w.order, t.ID), w.now
		place = uint64(len(w.order))
		if w.unread {
			w.stands = append(w.stands, t.ID)
		} else {
			w.tasks[t.ID] = State{State: core.StateProcessing}
		}
	}
	after, lost := w.afterSend, w.lost
	w.mu.Unlock()
	if after != nil {
		after()
	}
	return place, lost
}

func (w *world) end(id string, state core.State, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks[id] = State{state, why}
}

func (w *world) Append(_ context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.trail, func(is operate.AuditEntry) bool { return e.Key != "" && is.Key == e.Key }); i >= 0 {
		again := w.trail[i]
		return int64(i + 1), &again, nil
	}
	w.trail = append(w.trail, e)
	return int64(len(w.trail)), nil, nil
}

func (w *world) SetOutcome(_ context.Context, number int64, outcome string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trail[number-1].Outcome = outcome
	return nil
}

// leads is a leader that says so always.
type leads bool

func (l leads) Leads() bool { return bool(l) }

// missed is what a runner told of one stop.
type missed struct {
	name string
	runs int64
}

func (w *world) runner(t *testing.T, told *[]missed) *Runner {
	t.Helper()
	return w.teller(told, nil)
}

// teller is a runner that tells of runs that are left out.
func (w *world) teller(late, skipped *[]missed) *Runner {
	tell := func(told *[]missed) func(string, int64, time.Time) {
		return func(name string, runs int64, _ time.Time) {
			if told != nil {
				*told = append(*told, missed{name, runs})
			}
		}
	}
	return NewRunner(Config{Now: w.clock, Missed: tell(late), Skipped: tell(skipped)}, w, w, w, leads(true), slog.New(slog.DiscardHandler))
}

func (w *world) service() *operate.Scheduling {
	return &operate.Scheduling{Store: w, Desk: operate.NewDesk(w, w.clock, slog.New(slog.DiscardHandler)), Submit: w, Now: w.clock, Known: func(_ context.Context, id string) (bool, error) {
		states, err := w.States(context.Background(), []string{id})
		return len(states) > 0, err
	}, Plans: func(context.Context) ([]core.Plan, error) {
		return []core.Plan{core.Plan{Name: "payout", Version: 1}.WithDefaults()}, nil
	}, Deprecated: func(context.Context) (core.Deprecations, error) { return nil, nil }}
}

var olga = operate.Actor{Name: "olga", Role: operate.RoleOperator, Via: "http"}

// put makes a schedule as an operator does.
func (w *world) put(t *testing.T, change func(*schedule.Spec)) {
	t.Helper()
	spec := schedule.Spec{Name: "s", Type: "payout", Input: []byte(`{"a":1}`), Every: "1h"}
	if change != nil {
		change(&spec)
	}
	if _, err := w.service().PutSchedule(t.Context(), olga, spec, ""); err != nil {
		t.Fatal(err)
	}
}

// round runs one round.
func round(t *testing.T, r *Runner) {
	t.Helper()
	if err := r.round(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) row(t *testing.T) operate.Schedule {
	t.Helper()
	s, err := w.ScheduleByName(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hours are the runs that were submitted, as hours after noon.
func (w *world) hours(t *testing.T) (all []int) {
	t.Helper()
	for _, id := range w.order {
		at, err := time.Parse("20060102T150405Z", strings.TrimPrefix(id, "s-"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, int(at.Sub(noon)/time.Hour))
	}
	return all
}

// TestScheduleCarriesEveryField: a task of a schedule is submitted with all that the schedule says of its tasks.
func TestScheduleCarriesEveryField(t *testing.T) {
	sent := submittest.Full(t)
	got := operate.TaskOf(&operate.Schedule{Spec: schedule.Spec{Name: "nightly", Type: sent.Type, Input: []byte(sent.Input), CompleteBy: sent.CompleteBy, PlanVersion: 3, Cron: "30 2 * * *",
		Labels: map[string]string{"a": "b", "duly-priority": "low"}}}, sent.ID)
	submittest.Same(t, "schedule", got, sent, map[string]string{
		"StartAt": "a run is submitted when it begins", "ReplyTo": "no one waits for a run; its outcome is the schedule's", "Trace": "no request is behind a run", "Ago": "of a node that reads an outbox",
	})
}
