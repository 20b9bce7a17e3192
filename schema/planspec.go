package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// EncodePlan is the stored form of a plan: canonical, so that the same plan is the
// same bytes whatever this binary's structs look like.
func EncodePlan(p *core.Plan) ([]byte, error) {
	spec, err := planform.Canonical(p)
	if err != nil {
		return nil, fmt.Errorf("plan %s version %d: %w", p.Name, p.Version, err)
	}
	return spec, nil
}

// decodePlan reads a stored plan, in the canonical form or in the one of before. Of a
// field or kind of step that this binary does not know it does not guess: it is an error that names it.
func decodePlan(spec []byte) (core.Plan, error) {
	var form struct {
		V *int `json:"v"` // the form of before has none
	}
	if err := json.Unmarshal(spec, &form); err != nil {
		return core.Plan{}, err
	}
	if form.V == nil {
		return decodeOldPlan(spec)
	}
	p, err := planform.Decode(spec)
	if err != nil {
		return core.Plan{}, err
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; !s.Kind.Known() {
			return core.Plan{}, fmt.Errorf("step %q: kind %q is not known to this binary", s.Name, s.Kind)
		}
	}
	return planform.Normal(&p), nil
}

// oldPlan is core.Plan as it was while it was stored as it is in memory, durations in
// nanoseconds. It never changes.
type oldPlan struct {
	Name       string
	Version    int64
	Steps      []oldStep
	CompleteBy time.Duration
	Grace      time.Duration
	InputMax   int
}

type oldStep struct {
	Name            string
	Agent           string
	After           []int
	Undoable        bool
	CompleteBy      time.Duration
	UndoCompleteBy  time.Duration
	AttemptsMax     int
	UndoAttemptsMax int
	Backoff         time.Duration
	BackoffCap      time.Duration
	OnExhausted     string
	Pause           time.Duration
	ResultMax       int
}

func decodeOldPlan(spec []byte) (core.Plan, error) {
	var old oldPlan
	d := json.NewDecoder(bytes.NewReader(spec))
	d.DisallowUnknownFields()
	if err := d.Decode(&old); err != nil {
		return core.Plan{}, err
	}
	p := core.Plan{Name: old.Name, Version: old.Version, CompleteBy: old.CompleteBy, Grace: old.Grace, InputMax: old.InputMax, Steps: make([]core.Step, len(old.Steps))}
	for i := range old.Steps {
		s := &old.Steps[i]
		for _, a := range s.After {
			if a < 0 || a >= i {
				return core.Plan{}, fmt.Errorf("step %s comes after step number %d of %d", s.Name, a+1, len(old.Steps))
			}
		}
		p.Steps[i] = core.Step{
			Name: s.Name, Agent: s.Agent, After: s.After, Undoable: s.Undoable, CompleteBy: s.CompleteBy, UndoCompleteBy: s.UndoCompleteBy,
			AttemptsMax: s.AttemptsMax, UndoAttemptsMax: s.UndoAttemptsMax, Backoff: s.Backoff, BackoffCap: s.BackoffCap,
			OnExhausted: core.Policy(s.OnExhausted), Pause: s.Pause, ResultMax: s.ResultMax,
		}
	}
	return planform.Normal(&p), nil
}

// completeByOf is how much time the tasks of a plan have that cannot be read; 0: that cannot be read either.
func completeByOf(spec []byte) time.Duration {
	var form struct {
		CompleteBy int64 `json:"complete_by_ms"`
	}
	if json.Unmarshal(spec, &form) != nil || form.CompleteBy < 0 || form.CompleteBy > int64(core.DurationMax/time.Millisecond) {
		return 0
	}
	return time.Duration(form.CompleteBy) * time.Millisecond
}

// SamePlan compares a stored plan with one to be stored, in its canonical bytes, by
// what they mean.
func SamePlan(p *core.Plan, stored, want []byte) error {
	if bytes.Equal(stored, want) {
		return nil
	}
	is, err := decodePlan(stored)
	if err != nil { // a field of a newer version is not in the plan at hand, so they differ
		unreadable := core.UnreadablePlan{Name: p.Name, Version: p.Version, Err: err}
		return fmt.Errorf("%w: %w", core.ErrPlanConflict, unreadable)
	}
	have, err := planform.Canonical(&is)
	if err != nil {
		return fmt.Errorf("plan %s version %d: %w: %w", p.Name, p.Version, core.ErrPlanConflict, err)
	}
	if difference := planform.Difference(have, want); difference != "" {
		return fmt.Errorf("plan %s version %d: %w: %s (stored %.12s, given %.12s); give the change a new version",
			p.Name, p.Version, core.ErrPlanConflict, difference, planform.Hash(have), planform.Hash(want))
	}
	return nil
}
