package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/schedule"
)

const (
	duePage      = 100              // schedules that are read at a time
	roundMax     = 30 * time.Second // of one round
	submitMax    = 10 * time.Second // of one submission
	writeMax     = 5 * time.Second  // of writing down what a round came to that was cut off
	outcomeEvery = 5 * time.Second  // between two looks at what became of the tasks
	retryFirst   = time.Second      // after a submission that failed
	retryMost    = 30 * time.Second
)

// State is where a task stands.
type State struct {
	State core.State
	Why   string // it ended so, in words
}

// closed reports whether the task holds nothing up any more: it has ended, or is not waited for.
func (s State) closed() bool { return s.State.Ended() || s.State == operate.ScheduleForgotten }

// Tasks tells where tasks stand.
type Tasks interface {
	// States returns those of the ids that are there, by id.
	States(ctx context.Context, ids []string) (map[string]State, error)
	// Read returns those whose partitions have been read as far as their places: whoever of them is not there then was
	// refused, or could not be read, or is forgotten.
	Read(ctx context.Context, tasks []operate.ScheduleTask) ([]operate.ScheduleTask, error)
	// Unread returns those of the ids whose partitions have not been read up to a time: they may be among what is not read.
	Unread(ctx context.Context, ids []string, before time.Time) (map[string]bool, error)
}

// Leader says whether this process is the one that carries schedules out.
type Leader interface{ Leads() bool }

// Config is how a runner works. Interval and its successors take their defaults where they are 0; Now is required.
type Config struct {
	Interval time.Duration // between two rounds; 0: a second
	Now      func() time.Time
	// Report takes the outcome of each round, nil when it worked; it must not block.
	Report func(error)
	// Missed is told once of runs that could not be submitted in time, and Skipped of those whose predecessor had not ended,
	// the first time for each predecessor, both after that is written down. nil: it is only logged.
	Missed, Skipped func(name string, runs int64, since time.Time)
}

// Stats are what a runner has done since it was made, and how it stands.
type Stats struct {
	Submitted, Skipped, Missed, Failed int64
	Lag                                time.Duration // by which the newest submission was late, or the oldest that fails is
	Failing                            map[string]string
}

// Runner submits what has come due.
type Runner struct {
	cfg    Config
	store  operate.ScheduleStore
	tasks  Tasks
	submit operate.Submitter
	leader Leader
	log    *slog.Logger

	since     time.Time         // it leads; zero: it does not
	again     map[string]*retry // of schedules whose submissions fail
	outcomeAt core.Instant      // when it was last looked what became of tasks
	skipped   map[string]string // by schedule: the task for which it was told that runs are left out
	unwritten map[string][]run  // by schedule: what was submitted and could not be written down

	mu    sync.Mutex // of what follows
	stats Stats
}

// retry is when a submission that failed is tried again.
type retry struct {
	tries int
	from  core.Instant
	wait  time.Duration
	why   string
	due   time.Time // of the run that it is about
}

// NewRunner makes a runner, which does nothing until Run.
func NewRunner(cfg Config, store operate.ScheduleStore, tasks Tasks, submit operate.Submitter, leader Leader, log *slog.Logger) *Runner {
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	return &Runner{cfg: cfg, store: store, tasks: tasks, submit: submit, leader: leader, log: log, again: map[string]*retry{}, skipped: map[string]string{}, unwritten: map[string][]run{}}
}

// Run carries schedules out until ctx ends. What fails is reported, and done again in the next round.
func (r *Runner) Run(ctx context.Context) {
	for {
		err := r.round(ctx)
		if ctx.Err() == nil && r.cfg.Report != nil {
			r.cfg.Report(err)
		}
		if pause.For(ctx, r.cfg.Interval) != nil {
			return
		}
	}
}

// Stats are a copy. It is safe for concurrent use.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Failing = make(map[string]string, len(r.stats.Failing))
	maps.Copy(s.Failing, r.stats.Failing)
	return s
}

// round looks at all schedules that are due, once.
func (r *Runner) round(ctx context.Context) error {
	if !r.leader.Leads() {
		r.since = time.Time{}
		clear(r.again)
		clear(r.skipped)
		clear(r.unwritten)
		r.standing(r.cfg.Now())
		return nil
	}
	if r.since.IsZero() {
		r.since = r.cfg.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, roundMax)
	defer cancel()
	failed := r.outcomes(ctx)
	seen := map[string]bool{}
	for after, more := "", true; more; {
		due, err := r.store.DueSchedules(ctx, r.cfg.Now(), duePage, after)
		if err != nil {
			return errors.Join(failed, err)
		}
		for i := range due {
			after, seen[due[i].Name] = due[i].Name, true
			if err := r.look(ctx, due[i]); err != nil {
				failed = errors.Join(failed, err)
			}
		}
		more = len(due) == duePage
	}
	for name := range r.again {
		if !seen[name] { // it was paused, changed or deleted
			delete(r.again, name)
		}
	}
	maps.DeleteFunc(r.unwritten, func(name string, _ []run) bool { return !seen[name] })
	r.standing(r.cfg.Now())
	return failed
}

// standing brings what is failing up to date in the stats.
func (r *Runner) standing(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Failing = make(map[string]string, len(r.again))
	for name, a := range r.again {
		r.stats.Failing[name] = a.why
		r.stats.Lag = max(r.stats.Lag, now.Sub(a.due))
	}
}

// outcomes writes down what became of tasks that were submitted last.
func (r *Runner) outcomes(ctx context.Context) error {
	now := r.cfg.Now()
	if !r.outcomeAt.Elapsed(core.InstantOf(now), outcomeEvery) {
		return nil
	}
	r.outcomeAt = core.InstantOf(now)
	open, err := r.store.ScheduleTasks(ctx)
	if err != nil || len(open) == 0 {
		return err
	}
	states, err := r.states(ctx, open)
	if err != nil {
		return fmt.Errorf("tasks of schedules: %w", err)
	}
	for _, task := range open {
		ended := states[task.Task]
		if !ended.closed() {
			continue
		}
		is, err := r.store.ScheduleByName(ctx, task.Name)
		if errors.Is(err, core.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		l := looked{at: now, task: task.Task, outcome: ended.State, why: core.ShortText(ended.Why, operate.ScheduleTextMax)}
		if err := operate.ChangeSchedule(ctx, r.store, is, l.apply); err != nil {
			return err
		}
	}
	return nil
}

// states are where tasks stand. One that is not there may not have been read from the stream yet, and then has no state.
func (r *Runner) states(ctx context.Context, tasks []operate.ScheduleTask) (map[string]State, error) {
	ids := make([]string, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].Task
	}
	states, err := r.tasks.States(ctx, ids)
	if err != nil {
		return nil, err
	}
	var absent []operate.ScheduleTask
	for _, task := range tasks {
		if _, found := states[task.Task]; !found {
			absent = append(absent, task)
		}
	}
	if len(absent) == 0 {
		return states, nil
	}
	read, err := r.tasks.Read(ctx, absent)
	if err != nil || len(read) == 0 {
		return states, err
	}
	ids = ids[:0]
	for i := range read {
		ids = append(ids, read[i].Task)
	}
	again, err := r.tasks.States(ctx, ids) // it may have been stored since
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		is, found := again[id]
		if !found {
			is = State{State: operate.ScheduleForgotten, Why: "its submission was read and it is not there: it was refused, could not be read, or is forgotten"}
		}
		states[id] = is
	}
	return states, nil
}

// look submits what of one schedule has come due, and writes down what became of it.
func (r *Runner) look(ctx context.Context, s operate.Schedule) error {
	now := r.cfg.Now()
	if a := r.again[s.Name]; a != nil && !a.from.Elapsed(core.InstantOf(now), a.wait) {
		return nil
	}
	parsed, err := schedule.Parse(&s.Spec)
	if err != nil {
		r.fails(s.Name, now, now, fmt.Errorf("this node cannot read it: %w", err))
		return nil
	}
	due := parsed.Look(s.Cursor, now)
	if due.Missed > 0 {
		l := looked{at: now, missed: due.Missed, missedTo: due.Last}
		if len(due.Runs) > 0 { // the missed ones are before those that run
			l.missedTo = due.Runs[0].Add(-time.Microsecond)
		}
		l.cursor = l.missedTo
		// It is written down before anything is submitted: what a leader has submitted and not written down is then among the
		// first runs after the cursor, where found looks.
		if err = r.found(ctx, parsed, &s, &l); err != nil {
			_, written := r.write(ctx, s, &l, due.Oldest, err)
			return written
		}
		if s, err = r.write(ctx, s, &l, due.Oldest, nil); err != nil {
			return err
		}
	}
	l := looked{at: now, cursor: due.Last}
	err = r.decide(ctx, parsed, &s, due.Runs, &l)
	_, err = r.write(ctx, s, &l, time.Time{}, err)
	return err
}

// write writes down what a look came to, which failed if err is not nil, and tells of runs that are left out. It returns the row
// as it stands then.
func (r *Runner) write(ctx context.Context, s operate.Schedule, l *looked, oldest time.Time, err error) (operate.Schedule, error) {
	var cut error
	switch {
	case err == nil:
	case ctx.Err() != nil && len(l.submitted) == 0:
		return s, err // it was cut off
	case ctx.Err() != nil: // so that the next round goes on behind what was submitted in this one
		cut = err
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeMax)
		defer cancel()
		ctx = bounded
	default:
		l.failure = core.ShortText(operate.CleanText(err.Error()), operate.ScheduleTextMax)
	}
	told, skipped, is := int64(0), int64(0), &s
	written := operate.ChangeSchedule(ctx, r.store, s, func(to *operate.Schedule) bool {
		was, left := to.Missed, to.Skipped
		changed := l.apply(to)
		told, skipped, is = to.Missed-was, to.Skipped-left, to
		return changed
	})
	if written != nil {
		for _, one := range l.submitted {
			if !slices.ContainsFunc(r.unwritten[s.Name], func(u run) bool { return u.at.Equal(one.at) }) {
				r.unwritten[s.Name] = append(r.unwritten[s.Name], one)
			}
		}
		return s, fmt.Errorf("schedule %s: %w", s.Name, written)
	}
	if own := r.unwritten[s.Name]; len(own) > 0 {
		r.unwritten[s.Name] = slices.DeleteFunc(own, func(u run) bool { return !u.at.After(is.Cursor) })
	}
	r.count(l, told)
	if told > 0 {
		r.log.Warn("runs of a schedule could not be submitted in time, and are left out", "schedule", s.Name, "runs", told, "since", oldest)
		if r.cfg.Missed != nil {
			r.cfg.Missed(s.Name, told, oldest)
		}
	}
	if len(r.skipped) > operate.SchedulesMax { // names of schedules that were deleted
		clear(r.skipped)
	}
	if skipped > 0 && r.skipped[s.Name] != is.LastTask {
		r.skipped[s.Name] = is.LastTask
		r.log.Warn("runs of a schedule are left out, because the task before them has not ended", "schedule", s.Name, "runs", skipped, "task", is.LastTask)
		if r.cfg.Skipped != nil {
			r.cfg.Skipped(s.Name, skipped, l.skipped[0])
		}
	}
	return *is, cut
}

// found takes those for submitted that are too late by now and are there: who submitted them was stopped before it was
// written down. Those that this leader submitted itself may not have been read from the stream yet; whether a leader before
// it submitted one, or a submission of its own whose answer was lost is one, is known once the stream is read so far.
func (r *Runner) found(ctx context.Context, parsed *schedule.Schedule, s *operate.Schedule, l *looked) error {
	var runs []time.Time
	var ids []string
	for run, ok := parsed.Next(s.Cursor); ok && !run.After(l.missedTo) && len(runs) < parsed.CatchUps; run, ok = parsed.Next(run) {
		runs, ids = append(runs, run), append(ids, schedule.ID(s.Name, run))
	}
	tried := r.since
	if a := r.again[s.Name]; a != nil && a.from.Time().After(tried) {
		tried = a.from.Time()
	}
	unread, err := r.tasks.Unread(ctx, ids, tried.Add(submitMax)) // before it is looked what is there
	var there map[string]State
	if err == nil {
		there, err = r.tasks.States(ctx, ids)
	}
	if err != nil {
		*l = looked{at: l.at} // nothing is decided
		return fmt.Errorf("tasks of runs that are too late: %w", err)
	}
	for i, at := range runs {
		_, found := there[ids[i]]
		one := run{at: at}
		if own := slices.IndexFunc(r.unwritten[s.Name], func(u run) bool { return u.at.Equal(at) }); own >= 0 {
			one, found = r.unwritten[s.Name][own], true
		}
		switch {
		case found:
			l.submitted, l.missed = append(l.submitted, one), l.missed-1
		case unread[ids[i]]:
			*l = looked{at: l.at}
			return fmt.Errorf("run %s, which is too late, may have been submitted: the owner of its partition has not read what was submitted then", at.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// decide submits runs as the overlap wants it. Error: the next of them was not taken.
func (r *Runner) decide(ctx context.Context, parsed *schedule.Schedule, s *operate.Schedule, runs []time.Time, l *looked) error {
	busy := false
	if parsed.Overlap != schedule.OverlapAll && len(runs)+len(s.Waiting) > 0 {
		var err error
		if busy, err = r.busy(ctx, s, l); err != nil {
			*l = looked{at: l.at} // nothing is decided
			return err
		}
	}
	queue := runs
	if parsed.Overlap == schedule.OverlapQueue {
		room := max(0, parsed.Queue-len(s.Waiting))
		if !busy && len(s.Waiting) == 0 {
			room++ // the first does not wait
		}
		l.waiting = runs[:min(room, len(runs))]
		l.skipped = append(l.skipped, runs[len(l.waiting):]...)
		queue = append(append([]time.Time(nil), s.Waiting...), l.waiting...)
	}
	for i, at := range queue {
		switch {
		case !busy:
			place, err := r.one(ctx, parsed, s, at)
			if err != nil {
				if parsed.Overlap != schedule.OverlapQueue { // what was not submitted is not decided
					l.cursor = time.Time{}
					if i > 0 {
						l.cursor = queue[i-1]
					}
				}
				return err
			}
			l.submitted = append(l.submitted, run{at, place})
			busy = parsed.Overlap != schedule.OverlapAll
		case parsed.Overlap == schedule.OverlapSkip:
			l.skipped = append(l.skipped, at)
		}
	}
	return nil
}

// busy reports whether the task before has not ended, or the run before that, where an operator has asked for a task beside it.
func (r *Runner) busy(ctx context.Context, s *operate.Schedule, l *looked) (bool, error) {
	if before := schedule.ID(s.Name, s.Last); !s.Last.IsZero() && before != s.LastTask {
		unread, err := r.tasks.Unread(ctx, []string{before}, s.LastAt.Add(submitMax)) // before it is looked whether it is there
		var states map[string]State
		if err == nil {
			states, err = r.tasks.States(ctx, []string{before})
		}
		if err != nil {
			return false, fmt.Errorf("task %s, of the run before: %w", before, err)
		}
		if is, there := states[before]; there && !is.closed() || !there && unread[before] {
			return true, nil
		}
	}
	if s.LastTask == "" || s.Outcome != "" {
		return false, nil
	}
	states, err := r.states(ctx, []operate.ScheduleTask{{Name: s.Name, Task: s.LastTask, Place: s.LastPlace}})
	if err != nil {
		return false, fmt.Errorf("task %s, which was submitted last: %w", s.LastTask, err)
	}
	ended := states[s.LastTask]
	if !ended.closed() {
		return true, nil
	}
	l.task, l.outcome, l.why = s.LastTask, ended.State, core.ShortText(ended.Why, operate.ScheduleTextMax)
	return false, nil
}

// one submits one run.
func (r *Runner) one(ctx context.Context, parsed *schedule.Schedule, s *operate.Schedule, run time.Time) (place uint64, err error) {
	bounded, cancel := context.WithTimeout(ctx, submitMax)
	defer cancel()
	place, err = r.submit.Submit(bounded, operate.TaskOf(s, schedule.ID(s.Name, run)))
	now := r.cfg.Now()
	if refusal, ok := errors.AsType[*operate.Refusal](err); ok && refusal.Taken {
		r.log.Warn("a task of a schedule is there already, with another input", "schedule", s.Name, "task", schedule.ID(s.Name, run))
		err = nil
	}
	if err != nil {
		r.fails(s.Name, now, parsed.Due(run), err)
		return 0, fmt.Errorf("run %s: %w", run.UTC().Format(time.RFC3339), err)
	}
	delete(r.again, s.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Lag = max(0, now.Sub(parsed.Due(run)))
	return place, nil
}

// fails has a schedule wait before it is tried again.
func (r *Runner) fails(name string, now, due time.Time, err error) {
	a := r.again[name]
	if a == nil {
		a = &retry{}
		r.again[name] = a
	}
	a.tries++
	a.from, a.wait, a.why, a.due = core.InstantOf(now), core.Backoff(retryFirst, retryMost, a.tries, 1), err.Error(), due
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Failed++
}

// count adds a look to the stats.
func (r *Runner) count(l *looked, missed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Submitted += int64(len(l.submitted))
	r.stats.Skipped += int64(len(l.skipped))
	r.stats.Missed += missed
}
