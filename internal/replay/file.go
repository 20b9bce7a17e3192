package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// fileFormat names the form of a file. A later form has another number, and is refused by name.
const fileFormat = "duly-task/1"

// fileBytesMax bounds a file: some 20,000 rows.
const fileBytesMax = 64 << 20

// ErrFile is wrapped by every error about a file that cannot be read.
var ErrFile = errors.New("task file refused")

// taskFile is one task with its plan and its journal, as `duly task export` writes it and `duly replay` reads it.
type taskFile struct {
	Format  string          `json:"format"`
	Plan    json.RawMessage `json:"plan,omitempty"` // absent: the plan was not stored
	Task    taskRow         `json:"task"`
	Journal []row           `json:"journal"`
}

// taskRow is what of a task its journal does not have.
type taskRow struct {
	ID          string          `json:"id"`
	Type        string          `json:"type"`
	PlanVersion int64           `json:"plan_version"`
	Partition   int             `json:"partition"`
	Number      int64           `json:"number"`
	State       core.State      `json:"state"`
	WaitsFor    string          `json:"waits_for,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`
	CreatedAt   string          `json:"created_at"`
	StartAt     string          `json:"start_at,omitempty"`
}

// row is one journal row.
type row struct {
	Seq         int64           `json:"seq"`
	Kind        core.Kind       `json:"kind"`
	At          string          `json:"at"`
	Actor       string          `json:"actor,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	State       core.State      `json:"state"`
	Round       int             `json:"round,omitempty"`
	Step        *int            `json:"step,omitempty"` // ordinal, from 0
	StepStatus  core.StepStatus `json:"step_status,omitempty"`
	Attempt     int             `json:"attempt,omitempty"`
	Code        int             `json:"code,omitempty"`
	Error       string          `json:"error,omitempty"`
	ErrorBytes  []byte          `json:"error_bytes,omitempty"` // instead of error, where that is no text
	Result      json.RawMessage `json:"result,omitempty"`
	Until       string          `json:"effects_possible_until,omitempty"`
	Next        *int            `json:"next,omitempty"`
	NextAttempt int             `json:"next_attempt,omitempty"`
	Undo        bool            `json:"undo,omitempty"`
	Due         string          `json:"due,omitempty"`
	Deadline    string          `json:"deadline,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`
	Commit      int64           `json:"commit,omitempty"`
}

// Encode makes a file of a saved task. p is its plan, nil when that is not stored. Error: a value that cannot be JSON.
func Encode(p *core.Plan, saved *core.Saved) ([]byte, error) {
	f := taskFile{Format: fileFormat, Task: taskRow{
		ID: saved.Row.ID, Type: saved.Row.Type, PlanVersion: saved.Row.PlanVersion, Partition: saved.Row.Partition, Number: saved.Row.Number,
		State: saved.Row.State, WaitsFor: saved.Row.WaitsFor, Input: saved.Row.Input, CreatedAt: stamp(saved.Row.CreatedAt), StartAt: stamp(saved.Row.StartAt),
	}}
	if p != nil {
		plan, err := planform.Encode(p)
		if err != nil {
			return nil, fmt.Errorf("task file of %s: plan: %w", saved.Row.ID, err)
		}
		f.Plan = plan
	}
	for i := range saved.Journal {
		f.Journal = append(f.Journal, rowOf(&saved.Journal[i]))
		if i < len(saved.Commits) {
			f.Journal[i].Commit = saved.Commits[i]
		}
	}
	data, err := json.Marshal(&f)
	if err != nil {
		return nil, fmt.Errorf("task file of %s: %w", saved.Row.ID, err)
	}
	return data, nil
}

func rowOf(r *core.Record) row {
	w := row{
		Seq: r.Seq, Kind: r.Kind, At: stamp(r.At), Actor: r.Actor, Reason: r.Reason, State: r.State, Round: r.Round,
		StepStatus: r.StepStatus, Attempt: r.Attempt, Code: r.Code, Error: r.Error, Result: r.Result,
		Until: stamp(r.EffectsPossibleUntil), NextAttempt: r.NextAttempt, Undo: r.Undo, Due: stamp(r.Due), Deadline: stamp(r.Deadline), Input: r.Input,
	}
	if !utf8.ValidString(r.Error) {
		w.Error, w.ErrorBytes = "", []byte(r.Error)
	}
	if r.Step >= 0 {
		w.Step = &r.Step
	}
	if r.Next >= 0 {
		w.Next = &r.Next
	}
	return w
}

// Decode reads a file. Errors wrap ErrFile: too large, no JSON, another format, a plan that this version cannot read,
// or a field that is out of its bounds.
func Decode(data []byte) (*core.Plan, *core.Saved, error) {
	if len(data) > fileBytesMax {
		return nil, nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrFile, len(data), fileBytesMax)
	}
	var f taskFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if f.Format != fileFormat {
		return nil, nil, fmt.Errorf("%w: format is %s, this version reads %s", ErrFile, core.QuoteShort(f.Format), fileFormat)
	}
	plan, err := f.plan()
	if err != nil {
		return nil, nil, err
	}
	saved := &core.Saved{Row: core.Task{
		ID: f.Task.ID, Type: f.Task.Type, PlanVersion: f.Task.PlanVersion, Partition: f.Task.Partition, Number: f.Task.Number,
		State: f.Task.State, WaitsFor: f.Task.WaitsFor, Input: f.Task.Input,
	}}
	times := reader{}
	saved.Row.CreatedAt, saved.Row.StartAt = times.read("task.created_at", f.Task.CreatedAt), times.read("task.start_at", f.Task.StartAt)
	for i := range f.Journal {
		w := &f.Journal[i]
		saved.Journal = append(saved.Journal, times.record(w))
		saved.Commits = append(saved.Commits, w.Commit)
	}
	if times.err != nil {
		return nil, nil, times.err
	}
	if len(saved.Journal) == 0 {
		return nil, nil, fmt.Errorf("%w: journal is empty", ErrFile)
	}
	if _, err := core.Replay(plan, saved); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return plan, saved, nil
}

func (f *taskFile) plan() (*core.Plan, error) {
	if len(f.Plan) == 0 {
		return nil, nil
	}
	plan, err := planform.Decode(f.Plan)
	if err != nil {
		return nil, fmt.Errorf("%w: plan: %w", ErrFile, err)
	}
	plan = plan.WithDefaults()
	if err := plan.Validate(0); err != nil {
		return nil, fmt.Errorf("%w: plan: %w", ErrFile, err)
	}
	return &plan, nil
}

// reader reads rows and keeps the first error.
type reader struct{ err error }

func (r *reader) record(w *row) core.Record {
	rec := core.Record{
		Seq: w.Seq, Kind: w.Kind, At: r.read("at", w.At), Actor: w.Actor, Reason: w.Reason, State: w.State, Round: w.Round,
		Step: -1, StepStatus: w.StepStatus, Attempt: w.Attempt, Code: w.Code, Error: w.Error, Result: w.Result,
		EffectsPossibleUntil: r.read("effects_possible_until", w.Until), Next: -1, NextAttempt: w.NextAttempt, Undo: w.Undo,
		Due: r.read("due", w.Due), Deadline: r.read("deadline", w.Deadline), Input: w.Input,
	}
	if len(w.ErrorBytes) > 0 {
		rec.Error = string(w.ErrorBytes)
	}
	rec.Step, rec.Next = r.ordinal("step", w.Step), r.ordinal("next", w.Next)
	return rec
}

func (r *reader) ordinal(field string, n *int) int {
	if n == nil {
		return -1
	}
	if *n < 0 || *n >= core.StepsMax {
		r.fail("%s is %d, want 0 to %d", field, *n, core.StepsMax-1)
		return -1
	}
	return *n
}

func (r *reader) read(field, value string) core.Instant {
	if value == "" {
		return 0
	}
	at, err := time.Parse(core.TimeLayout, value)
	if err != nil {
		r.fail("%s is %s, want a time as %s", field, core.QuoteShort(value), core.TimeLayout)
		return 0
	}
	return core.InstantOf(at)
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrFile}, args...)...)
	}
}

// stamp is an instant in a file; none is empty.
func stamp(i core.Instant) string {
	if i == 0 {
		return ""
	}
	return i.Time().Format(core.TimeLayout)
}
