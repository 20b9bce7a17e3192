package operate

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/schedule"
)

// Limits of schedules.
const (
	SchedulesMax    = 1000 // of an installation
	ScheduleNext    = 5    // runs that are shown of what comes
	ScheduleTextMax = 1000 // bytes of what is kept of a refusal
)

// Schedule is a schedule with what has become of it. The times of its runs are those of its spec, without jitter.
type Schedule struct {
	schedule.Spec
	Paused   bool      `json:"paused,omitempty"`
	Revision int64     `json:"revision"` // raised by every write
	By       string    `json:"by"`       // who changed it last
	Created  time.Time `json:"created"`
	Changed  time.Time `json:"changed"` // by an operator

	Cursor    time.Time   `json:"cursor"`            // the run up to which all is decided
	Waiting   []time.Time `json:"waiting,omitempty"` // runs before it that wait for the task before them
	Last      time.Time   `json:"last,omitzero"`     // the run that was submitted last
	LastTask  string      `json:"last_task,omitempty"`
	LastAt    time.Time   `json:"last_at,omitzero"`  // when that task was submitted
	LastPlace uint64      `json:"-"`                 // where its submission is in the stream of its partition; 0: not known
	Outcome   core.State  `json:"outcome,omitempty"` // of that task, once it has ended; forgotten: it is closed without an end
	Why       string      `json:"why,omitempty"`     // of an outcome that is not processed
	Submitted int64       `json:"submitted"`         // tasks, also those that were asked for by hand
	Skipped   int64       `json:"skipped"`           // runs whose predecessor had not ended
	Missed    int64       `json:"missed"`            // runs that could not be submitted in time
	Failing   time.Time   `json:"failing,omitzero"`  // since when submissions fail
	Failure   string      `json:"failure,omitempty"` // why the newest one failed
	Due       time.Time   `json:"-"`                 // when the leading supervisor has to look; zero: never
}

// ScheduleForgotten is the outcome of a task that is not there, although its submission has been read, or that an operator
// does not wait for.
const ScheduleForgotten core.State = "forgotten"

// ScheduleView is a schedule as people see it.
type ScheduleView struct {
	Schedule
	Next []time.Time `json:"next"` // runs that come, with their jitter; none while it is paused
}

// ScheduleTask is the task of a schedule whose outcome is not known yet.
type ScheduleTask struct {
	Name, Task string
	Place      uint64 // as Schedule.LastPlace
}

// ScheduleStore keeps schedules.
type ScheduleStore interface {
	// PutSchedule stores a schedule in place of that with the revision was; 0: there is none yet. Errors: ErrFenced when
	// another has written it since, *Refusal when there are SchedulesMax already.
	PutSchedule(ctx context.Context, s Schedule, was int64) error
	// DeleteSchedule deletes the schedule with that revision. Error: ErrFenced.
	DeleteSchedule(ctx context.Context, name string, was int64) error
	// ScheduleByName returns one. Error: core.ErrNotFound.
	ScheduleByName(ctx context.Context, name string) (Schedule, error)
	// Schedules returns up to limit after a name, by name.
	Schedules(ctx context.Context, limit int, after string) ([]Schedule, error)
	// DueSchedules returns up to limit after a name whose Due has come, by name.
	DueSchedules(ctx context.Context, now time.Time, limit int, after string) ([]Schedule, error)
	// ScheduleTasks returns the tasks of schedules whose outcome is not known.
	ScheduleTasks(ctx context.Context) ([]ScheduleTask, error)
}

// Schedules is how operators see schedules and change them. Every change is in the audit trail before it is made.
type Schedules interface {
	// Schedules returns one page, by name.
	Schedules(ctx context.Context, limit int, after string) (page []ScheduleView, next string, err error)
	// Schedule returns one. Error: core.ErrNotFound.
	Schedule(ctx context.Context, name string) (ScheduleView, error)
	// PutSchedule makes or changes one. What it has done is kept. Error: *Refusal.
	PutSchedule(ctx context.Context, by Actor, spec schedule.Spec, reason string) (ScheduleView, error)
	// DeleteSchedule deletes one; its tasks stay. Error: *Refusal.
	DeleteSchedule(ctx context.Context, by Actor, name, reason string) error
	// PauseSchedule pauses or resumes one. Runs of the time between are left out. Error: *Refusal.
	PauseSchedule(ctx context.Context, by Actor, name string, paused bool, reason string) (ScheduleView, error)
	// RunSchedule submits a task of it now, whatever its times and its overlap are. The same key, if one is given, is one task.
	// Error: *Refusal.
	RunSchedule(ctx context.Context, by Actor, name, reason, key string) (ScheduleRun, error)
}

// ScheduleRun is a task that was submitted because someone asked.
type ScheduleRun struct {
	Type  string `json:"type"`
	Task  string `json:"task"`
	Again bool   `json:"again,omitempty" doc:"another request has submitted it within the same second: it is one task"`
}
