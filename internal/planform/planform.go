// Package planform is a plan as JSON: one form for files, the wire and the state
// store, its canonical bytes, its content hash, and what two plans differ in.
package planform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"duly.dev/duly/internal/core"
)

// Version is the version of the form.
const Version = 1

// Plan is a plan as files and the wire show it. A field that is absent has its
// default; one that is there counts, also a zero. A step that does not say whether it is
// undoable is: its agent is asked to undo it, and one that cannot is seen at once, while
// a forgotten undo would leave half a task behind. A check says "undoable": false.
//
// A field that is added later must be omitted at its default (omitempty, with the
// default as the zero value or cleared by Canonical), so that plans stored without
// it keep their content hash, and its default must never change.
type Plan struct {
	V          int    `json:"v,omitempty"` // absent: 1
	Name       string `json:"name"`
	Version    int64  `json:"version"`
	CompleteBy *int64 `json:"complete_by_ms,omitempty"`
	Grace      *int64 `json:"grace_ms,omitempty"`
	InputMax   *int64 `json:"input_max,omitempty"`
	Steps      []Step `json:"steps"`
}

// Step is one step of a Plan.
type Step struct {
	Name            string   `json:"name"`
	Agent           string   `json:"agent"`
	After           []string `json:"after,omitempty"` // names of earlier steps
	Undoable        *bool    `json:"undoable"`        // absent: true
	CompleteBy      *int64   `json:"complete_by_ms,omitempty"`
	UndoCompleteBy  *int64   `json:"undo_complete_by_ms,omitempty"`
	AttemptsMax     *int64   `json:"attempts_max,omitempty"`
	UndoAttemptsMax *int64   `json:"undo_attempts_max,omitempty"`
	Backoff         *int64   `json:"backoff_ms,omitempty"`
	BackoffCap      *int64   `json:"backoff_cap_ms,omitempty"`
	UndoPatience    *int64   `json:"undo_patience_ms,omitempty"`
	UndoBackoffCap  *int64   `json:"undo_backoff_cap_ms,omitempty"`
	OnExhausted     string   `json:"on_exhausted,omitempty"`
	Pause           *int64   `json:"pause_ms,omitempty"`
	ResultMax       *int64   `json:"result_max,omitempty"`
}

// Encode returns the JSON of a plan; the same plan gives the same bytes.
// Errors wrap core.ErrPlan: a duration that is not whole milliseconds, a step
// after one that does not exist.
func Encode(p *core.Plan) ([]byte, error) {
	var m millis
	spec := Plan{V: Version, Name: p.Name, Version: p.Version, InputMax: said(int64(p.InputMax)), Steps: make([]Step, len(p.Steps)),
		CompleteBy: m.of("complete_by", p.CompleteBy), Grace: m.of("grace", p.Grace)}
	for i := range p.Steps {
		s := &p.Steps[i]
		undoable := s.Undoable
		spec.Steps[i] = Step{Name: s.Name, Agent: s.Agent, Undoable: &undoable, AttemptsMax: said(int64(s.AttemptsMax)),
			UndoAttemptsMax: said(int64(s.UndoAttemptsMax)), OnExhausted: string(s.OnExhausted), ResultMax: said(int64(s.ResultMax)),
			CompleteBy: m.of("complete_by", s.CompleteBy), UndoCompleteBy: m.of("undo_complete_by", s.UndoCompleteBy),
			Backoff: m.of("backoff", s.Backoff), BackoffCap: m.of("backoff_cap", s.BackoffCap),
			UndoPatience: m.of("undo_patience", s.UndoPatience), UndoBackoffCap: m.of("undo_backoff_cap", s.UndoBackoffCap), Pause: m.of("pause", s.Pause)}
		for _, a := range s.After {
			if a < 0 || a >= len(p.Steps) {
				return nil, fmt.Errorf("%w: plan %s: step %s comes after step number %d of %d", core.ErrPlan, p.Name, s.Name, a+1, len(p.Steps))
			}
			spec.Steps[i].After = append(spec.Steps[i].After, p.Steps[a].Name)
		}
	}
	if m.err != nil {
		return nil, fmt.Errorf("%w: plan %s: %w", core.ErrPlan, p.Name, m.err)
	}
	return json.Marshal(spec)
}

// millis turns durations into whole milliseconds and keeps the first error.
type millis struct{ err error }

func (m *millis) of(name string, d time.Duration) *int64 {
	if d%time.Millisecond != 0 && m.err == nil {
		m.err = fmt.Errorf("%s is %v, want whole milliseconds", name, d)
	}
	return said(d.Milliseconds())
}

// said is a number of a spec; 0 is not said, so that it has its default.
func said(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// numbers reads the numbers of a spec, whose zero in a plan would mean that nothing was
// said, and keeps the first error.
type numbers struct{ err error }

// said is the number that a spec names; 0: it names none.
func (r *numbers) said(name string, n *int64) int64 {
	if n == nil {
		return 0
	}
	if *n == 0 && r.err == nil {
		r.err = fmt.Errorf("%s is 0, want 1 or more, or nothing said", name)
	}
	return *n
}

// number reads a count; what no int holds is kept out of range, so that Validate refuses it.
func (r *numbers) number(name string, n *int64) int {
	return int(max(-1<<31, min(r.said(name, n), 1<<31-1)))
}

// ms reads milliseconds, in the same way.
func (r *numbers) ms(name string, n *int64) time.Duration {
	return Milliseconds(r.said(name, n))
}

// Milliseconds is so many of them; what overflows is kept out of range, so that a check
// refuses it.
func Milliseconds(n int64) time.Duration {
	const most = int64(core.DurationMax/time.Millisecond) + 1
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}

// Decode reads the JSON of a plan. It neither fills in defaults nor
// validates: see core.Plan. Errors wrap core.ErrPlan: an unknown field, another
// version of the form, a step after one that is not there, a number that is 0.
func Decode(data []byte) (core.Plan, error) {
	var spec Plan
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		return core.Plan{}, fmt.Errorf("%w: %w", core.ErrPlan, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return core.Plan{}, fmt.Errorf("%w: more than one JSON value", core.ErrPlan)
	}
	if spec.V != 0 && spec.V != Version {
		return core.Plan{}, fmt.Errorf("%w: form version %d, want %d", core.ErrPlan, spec.V, Version)
	}
	// Names are looked up step by step: a flood of them is refused first.
	if n := len(spec.Steps); n > core.StepsMax {
		return core.Plan{}, fmt.Errorf("%w: plan %q: %d steps, want 1 to %d", core.ErrPlan, short(spec.Name), n, core.StepsMax)
	}
	var read numbers
	p := core.Plan{Name: spec.Name, Version: spec.Version, CompleteBy: read.ms("complete_by_ms", spec.CompleteBy), Grace: read.ms("grace_ms", spec.Grace),
		InputMax: read.number("input_max", spec.InputMax), Steps: make([]core.Step, len(spec.Steps))}
	if read.err != nil {
		return core.Plan{}, fmt.Errorf("%w: plan %q: %w", core.ErrPlan, short(p.Name), read.err)
	}
	for i := range spec.Steps {
		if err := decodeStep(&p, &spec.Steps[i], i); err != nil {
			return core.Plan{}, fmt.Errorf("%w: plan %q: %w", core.ErrPlan, short(p.Name), err)
		}
	}
	return p, nil
}

func decodeStep(p *core.Plan, s *Step, i int) error {
	var read numbers
	step := core.Step{
		Name: s.Name, Agent: s.Agent, Undoable: s.Undoable == nil || *s.Undoable,
		CompleteBy: read.ms("complete_by_ms", s.CompleteBy), UndoCompleteBy: read.ms("undo_complete_by_ms", s.UndoCompleteBy),
		AttemptsMax: read.number("attempts_max", s.AttemptsMax), UndoAttemptsMax: read.number("undo_attempts_max", s.UndoAttemptsMax),
		Backoff: read.ms("backoff_ms", s.Backoff), BackoffCap: read.ms("backoff_cap_ms", s.BackoffCap),
		UndoPatience: read.ms("undo_patience_ms", s.UndoPatience), UndoBackoffCap: read.ms("undo_backoff_cap_ms", s.UndoBackoffCap),
		OnExhausted: core.Policy(s.OnExhausted), Pause: read.ms("pause_ms", s.Pause), ResultMax: read.number("result_max", s.ResultMax),
	}
	if read.err != nil {
		return fmt.Errorf("step %q: %w", short(s.Name), read.err)
	}
	if n := len(s.After); n > core.StepsMax {
		return fmt.Errorf("step %q: after names %d steps, the limit is %d", short(s.Name), n, core.StepsMax)
	}
	for _, name := range s.After {
		// Only earlier steps are filled in, so a later one is not found either.
		a := p.StepIndex(name)
		if a < 0 || a >= i {
			return fmt.Errorf("step %q comes after %q, which is not an earlier step", short(s.Name), short(name))
		}
		step.After = append(step.After, a)
	}
	p.Steps[i] = step
	return nil
}

// short keeps a stranger's name from filling an error text.
func short(s string) string { return core.ShortText(s, 128) }
