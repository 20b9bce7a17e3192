package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/near"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/schedule"
	"duly.dev/duly/internal/submit"
)

// scheduleTries bounds how often a change is made again that another was faster than.
const scheduleTries = 20

// Submitter hands tasks to the request endpoint.
type Submitter interface {
	// Submit returns when the task is stored, and its place in the stream of its partition. The same task again is no
	// error. Error: a *Refusal of the endpoint's, or that it does not answer.
	Submit(ctx context.Context, f submit.Form) (place uint64, err error)
}

// Scheduling is Schedules over the state store. Fields are required but where it is said. It is safe for concurrent use.
type Scheduling struct {
	Store ScheduleStore
	Plans func(context.Context) ([]core.Plan, error)
	// Deprecated are the versions that take no submission.
	Deprecated func(context.Context) (core.Deprecations, error)
	Desk       *Desk
	Submit     Submitter
	Now        func() time.Time
	// Known reports whether a task is stored.
	Known func(ctx context.Context, id string) (bool, error)
	// CheckInput says whether an input fits the input schema of a plan that has one; nil: it is not looked at.
	CheckInput func(plan *core.Plan, input []byte) error
}

var _ Schedules = (*Scheduling)(nil)

// scheduleTarget is what the audit trail calls a schedule.
func scheduleTarget(name string) string { return "schedule/" + core.NameOf(name, core.NameBytesMax) }

// Schedules implements Schedules.
func (s *Scheduling) Schedules(ctx context.Context, limit int, after string) ([]ScheduleView, string, error) {
	all, err := s.Store.Schedules(ctx, limit, after)
	if err != nil {
		return nil, "", err
	}
	views := make([]ScheduleView, len(all))
	for i := range all {
		views[i] = s.view(all[i])
	}
	next := ""
	if n := len(all); n == limit {
		next = all[n-1].Name
	}
	return views, next, nil
}

// Schedule implements Schedules.
func (s *Scheduling) Schedule(ctx context.Context, name string) (ScheduleView, error) {
	one, err := s.Store.ScheduleByName(ctx, name)
	if err != nil {
		return ScheduleView{}, err
	}
	return s.view(one), nil
}

// view adds the runs that come.
func (s *Scheduling) view(one Schedule) ScheduleView {
	v := ScheduleView{Schedule: one, Next: []time.Time{}}
	if one.Paused {
		return v
	}
	if parsed, err := schedule.Parse(&one.Spec); err == nil { // a newer node may have written what this one cannot read
		after := one.Cursor
		if now := s.Now(); after.Before(now) && !one.Due.After(now) {
			after = now // what is due already does not come
		}
		v.Next = append(v.Next, parsed.NextRuns(after, ScheduleNext)...)
	}
	return v
}

// PutSchedule implements Schedules.
func (s *Scheduling) PutSchedule(ctx context.Context, by Actor, spec schedule.Spec, reason string) (ScheduleView, error) {
	put := Act{By: by, Action: "schedule.put", Target: scheduleTarget(spec.Name), Reason: reason}
	no := func(bad *Refusal) (ScheduleView, error) { return ScheduleView{}, s.Desk.Note(ctx, &put, bad) }
	if bad := firstOf(CheckOperator(by, put.Action), by.Submits(spec.Name+"-"), CheckReason(reason)); bad != nil {
		return no(bad)
	}
	now := s.Now().UTC()
	cleanTimes(&spec)
	parsed, err := schedule.Parse(&spec)
	if err == nil {
		err = parsed.CheckFires(now)
	}
	if bad, ok := errors.AsType[*schedule.FieldError](err); ok {
		return no(&Refusal{Code: 400, Field: bad.Field, Detail: bad.Text})
	}
	if err != nil {
		return ScheduleView{}, err
	}
	bad, err := s.checkPlan(ctx, &spec)
	if err != nil {
		return ScheduleView{}, err
	}
	if bad != nil {
		return no(bad)
	}
	return s.change(ctx, spec.Name, &put, func(before *Schedule) (Schedule, *Refusal) {
		return changedTo(before, spec, by, now), nil
	})
}

// cleanTimes makes times as the store gives them back.
func cleanTimes(spec *schedule.Spec) {
	for _, at := range []*time.Time{&spec.From, &spec.Until} {
		if !at.IsZero() {
			*at = core.InstantOf(*at).Time()
		}
	}
}

// changedTo is a schedule with another spec; before nil: a new one. Other times begin now.
func changedTo(before *Schedule, spec schedule.Spec, by Actor, now time.Time) Schedule {
	at := core.InstantOf(now).Time()
	if before == nil {
		return Schedule{Spec: spec, Revision: now.UnixMicro() - 1, By: by.Name, Created: at, Changed: at, Cursor: at}
	}
	to := *before
	if is := &before.Spec; is.Cron != spec.Cron || is.Every != spec.Every || is.Zone != spec.Zone || !is.From.Equal(spec.From) || !is.Until.Equal(spec.Until) || is.Jitter != spec.Jitter {
		to.Cursor, to.Waiting = at, nil
	}
	if spec.Overlap != schedule.OverlapQueue {
		to.Waiting = nil
	}
	to.Spec, to.By, to.Changed = spec, by.Name, at
	return to
}

// checkPlan refuses a task type without a plan, and an input that the plan does not take: its tasks would be refused one
// by one.
func (s *Scheduling) checkPlan(ctx context.Context, spec *schedule.Spec) (*Refusal, error) {
	plans, err := s.Plans(ctx)
	unreadable, some := errors.AsType[core.UnreadablePlans](err)
	if err != nil && !some {
		return nil, fmt.Errorf("plans: %w", err)
	}
	deprecated, err := s.Deprecated(ctx)
	if err != nil {
		return nil, fmt.Errorf("deprecated versions: %w", err)
	}
	unreadable = deprecated.Current(unreadable)
	known := unreadable.Newest(spec.Type) > 0 // of a newer node, which can read it
	var meant *core.Plan
	var types []string
	for i := range plans {
		plan := &plans[i]
		types = append(types, plan.Name)
		if plan.Name != spec.Type {
			continue
		}
		if known = true; deprecated.Has(plan.Name, plan.Version) {
			continue
		}
		if plan.Version == spec.PlanVersion || spec.PlanVersion == 0 && plan.Version > unreadable.Newest(spec.Type) && (meant == nil || plan.Version > meant.Version) {
			meant = plan
		}
	}
	switch {
	case meant != nil:
		return s.checkInput(meant, spec.Input), nil
	case deprecated.Has(spec.Type, spec.PlanVersion):
		return &Refusal{Code: 409, Field: "plan_version", Detail: say.Of("refuse.schedule-deprecated", "version", spec.PlanVersion, "plan", spec.Type)}, nil
	case known && spec.PlanVersion == 0 && unreadable.Newest(spec.Type) == 0:
		return &Refusal{Code: 409, Field: "type", Detail: "type is " + spec.Type + ": " + core.DeprecatedPlan(spec.Type, 0)}, nil
	case !known:
		return &Refusal{Code: 400, Field: "type", Detail: say.Of("refuse.type-planless", "type", core.QuoteShort(spec.Type), "hint", cmp.Or(near.Ask(spec.Type, types), ": apply it first"))}, nil
	case spec.PlanVersion != 0 && unreadable.Newest(spec.Type) != spec.PlanVersion:
		return &Refusal{Code: 400, Field: "plan_version", Detail: say.Of("refuse.schedule-version", "version", spec.PlanVersion, "type", spec.Type)}, nil
	}
	return nil, nil
}

// checkInput refuses an input that a submission to the plan would be refused for.
func (s *Scheduling) checkInput(plan *core.Plan, input []byte) *Refusal {
	if len(input) > plan.InputMax {
		return &Refusal{Code: 413, Field: "input", Detail: say.Of("refuse.schedule-input", "bytes", len(input), "plan", plan.Name, "version", plan.Version, "limit", plan.InputMax)}
	}
	if err := plan.FitsInput(input, s.CheckInput); err != nil {
		return &Refusal{Code: 422, Field: "input", Detail: err.Error()}
	}
	return nil
}

// change reads a schedule, changes it, and writes it, again where another was faster. Error: *Refusal.
func (s *Scheduling) change(ctx context.Context, name string, act *Act, to func(before *Schedule) (Schedule, *Refusal)) (ScheduleView, error) {
	read := func(ctx context.Context) (*Schedule, error) {
		is, err := s.Store.ScheduleByName(ctx, name)
		if errors.Is(err, core.ErrNotFound) {
			return nil, nil
		}
		return &is, err
	}
	before, err := read(ctx)
	if err != nil {
		return ScheduleView{}, err
	}
	after, bad := to(before)
	if bad != nil {
		return ScheduleView{}, s.Desk.Note(ctx, act, bad)
	}
	if act.After = after; before != nil {
		act.Before = before.Spec
	}
	err = s.Desk.Change(ctx, act, func(ctx context.Context) error {
		for try := 1; ; try++ {
			revision := int64(0)
			if before != nil {
				revision = before.Revision
			}
			after.Revision++
			after.Due = DueOf(&after)
			err := s.Store.PutSchedule(ctx, after, revision)
			if !errors.Is(err, ErrFenced) || try == scheduleTries {
				return err
			}
			if before, err = read(ctx); err != nil {
				return err
			}
			if after, bad = to(before); bad != nil {
				return bad
			}
		}
	})
	if err != nil {
		return ScheduleView{}, err
	}
	return s.view(after), nil
}

// DueOf is when a schedule has to be looked at next; zero: never, as it stands.
func DueOf(s *Schedule) time.Time {
	switch {
	case s.Paused:
		return time.Time{}
	case len(s.Waiting) > 0:
		return s.Waiting[0]
	}
	parsed, err := schedule.Parse(&s.Spec)
	if err != nil {
		return s.Cursor // who looks says why
	}
	next, ok := parsed.Next(s.Cursor)
	if !ok {
		return time.Time{}
	}
	return parsed.Due(next)
}

// noSchedule refuses a name that no schedule has.
func noSchedule(name string) *Refusal {
	return &Refusal{Code: 404, Field: "name", Detail: say.Of("refuse.no-schedule", "name", core.QuoteShort(name))}
}

// PauseSchedule implements Schedules. After a pause it goes on with the next run that comes; what was waiting goes on
// waiting.
func (s *Scheduling) PauseSchedule(ctx context.Context, by Actor, name string, paused bool, reason string) (ScheduleView, error) {
	pause := Act{By: by, Action: "schedule.pause", Target: scheduleTarget(name), Reason: reason}
	if !paused {
		pause.Action = "schedule.resume"
	}
	if bad := firstOf(CheckOperator(by, pause.Action), checkReason(reason)); bad != nil {
		return ScheduleView{}, s.Desk.Note(ctx, &pause, bad)
	}
	gone := ""
	if !paused {
		var err error
		if gone, err = s.gone(ctx, name); err != nil {
			return ScheduleView{}, err
		}
	}
	now := core.InstantOf(s.Now()).Time()
	return s.change(ctx, name, &pause, func(before *Schedule) (Schedule, *Refusal) {
		if before == nil {
			return Schedule{}, noSchedule(name)
		}
		to := *before
		if to.Paused && !paused {
			if to.Cursor.Before(now) {
				to.Cursor = now
			}
			if gone != "" && to.LastTask == gone && to.Outcome == "" {
				to.Outcome, to.Why = ScheduleForgotten, say.Of("schedule.missing", "by", by.Name)
			}
		}
		to.Paused, to.By, to.Changed = paused, by.Name, now
		return to, nil
	})
}

// gone is the task that was submitted last, if its end is not known and it is not there: an operator who resumes the
// schedule does not wait for it any more, for instance because its stream was lost before it was read.
func (s *Scheduling) gone(ctx context.Context, name string) (string, error) {
	is, err := s.Store.ScheduleByName(ctx, name)
	if errors.Is(err, core.ErrNotFound) || err == nil && (is.LastTask == "" || is.Outcome != "") {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	there, err := s.Known(ctx, is.LastTask)
	if err != nil || there {
		return "", err
	}
	return is.LastTask, nil
}

func firstOf(all ...*Refusal) *Refusal {
	for _, bad := range all {
		if bad != nil {
			return bad
		}
	}
	return nil
}

// DeleteSchedule implements Schedules.
func (s *Scheduling) DeleteSchedule(ctx context.Context, by Actor, name, reason string) error {
	drop := Act{By: by, Action: "schedule.delete", Target: scheduleTarget(name), Reason: reason}
	if bad := firstOf(CheckOperator(by, drop.Action), checkReason(reason)); bad != nil {
		return s.Desk.Note(ctx, &drop, bad)
	}
	before, err := s.Store.ScheduleByName(ctx, name)
	if errors.Is(err, core.ErrNotFound) {
		return s.Desk.Note(ctx, &drop, noSchedule(name))
	}
	if err != nil {
		return err
	}
	drop.Before = before
	return s.Desk.Change(ctx, &drop, func(ctx context.Context) error {
		for try := 1; ; try++ {
			err := s.Store.DeleteSchedule(ctx, name, before.Revision)
			if !errors.Is(err, ErrFenced) || try == scheduleTries {
				return err
			}
			if before, err = s.Store.ScheduleByName(ctx, name); err != nil {
				if errors.Is(err, core.ErrNotFound) {
					return nil // another deleted it
				}
				return err
			}
		}
	})
}

// ScheduleRunNow is what the audit trail calls a task that was asked for by hand; After is its ScheduleRun.
const ScheduleRunNow = "schedule.run_now"

// RunSchedule implements Schedules. Two requests within a second, or with one key, are one task.
func (s *Scheduling) RunSchedule(ctx context.Context, by Actor, name, reason, key string) (ScheduleRun, error) {
	now := Act{By: by, Action: ScheduleRunNow, Target: scheduleTarget(name), Reason: reason, Key: key, Away: true}
	if bad := firstOf(CheckOperator(by, now.Action), by.Submits(name+"-"), CheckReason(reason)); bad != nil {
		return ScheduleRun{}, s.Desk.Note(ctx, &now, bad)
	}
	is, err := s.Store.ScheduleByName(ctx, name)
	if errors.Is(err, core.ErrNotFound) {
		return ScheduleRun{}, s.Desk.Note(ctx, &now, noSchedule(name))
	}
	if err != nil {
		return ScheduleRun{}, err
	}
	at := s.Now().UTC()
	task := TaskOf(&is, schedule.RunNowID(name, at))
	run := ScheduleRun{Type: task.Type, Task: task.ID}
	now.After = run
	var missing error // in the schedule; the task runs all the same
	again := false
	err = s.Desk.Change(ctx, &now, func(ctx context.Context) error {
		if now.Again != nil { // it is the task of the first request
			at, task.ID = now.Again.At, runOf(now.Again).Task
		}
		place, err := s.Submit.Submit(ctx, task)
		if bad, refused := errors.AsType[*Refusal](err); refused && bad.Taken && now.Again != nil {
			return nil // by that request, before the schedule was changed
		}
		if err != nil {
			return err
		}
		missing = ChangeSchedule(Apart(ctx), s.Store, is, func(to *Schedule) bool {
			again = to.LastTask == task.ID
			if again || now.Again != nil && to.LastAt.After(at) {
				return false
			}
			to.LastTask, to.LastAt, to.LastPlace, to.Outcome, to.Why = task.ID, core.InstantOf(at).Time(), place, "", ""
			to.Submitted++
			return true
		})
		return nil
	})
	if err == nil {
		err = missing
	}
	if run.Again = again; now.Again != nil {
		run = runOf(now.Again)
	}
	return run, err
}

// runOf is the task that an entry of the audit trail is about.
func runOf(e *AuditEntry) (run ScheduleRun) {
	_ = json.Unmarshal(e.After, &run) // it was written as one
	return run
}

// TaskOf is a task of a schedule. What of the spec cannot be is for the endpoint to refuse.
func TaskOf(s *Schedule, id string) submit.Form {
	t := submit.Form{Type: s.Type, ID: id, Input: s.Input, CompleteBy: s.CompleteBy}
	if s.PlanVersion != 0 {
		t.Version = strconv.FormatInt(s.PlanVersion, 10)
	}
	if parsed, err := schedule.Parse(&s.Spec); err == nil {
		t.Labels = core.FormatLabels(parsed.Labels)
	}
	return t
}

// ChangeSchedule writes a change of a schedule that was read, and makes it again on what stands where another was faster.
// A change that reports false is none. One that is deleted meanwhile is left so.
func ChangeSchedule(ctx context.Context, store ScheduleStore, is Schedule, change func(*Schedule) bool) error {
	for try := 1; ; try++ {
		to := is
		to.Waiting = append([]time.Time(nil), is.Waiting...)
		if !change(&to) {
			return nil
		}
		to.Revision, to.Due = is.Revision+1, DueOf(&to)
		err := store.PutSchedule(ctx, to, is.Revision)
		if !errors.Is(err, ErrFenced) || try == scheduleTries {
			return err
		}
		if is, err = store.ScheduleByName(ctx, is.Name); err != nil {
			if errors.Is(err, core.ErrNotFound) {
				return nil
			}
			return err
		}
	}
}
