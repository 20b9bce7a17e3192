package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// encodePlan is a plan's stored form. It is canonical: the same plan is the same bytes, whatever the structs
// of a binary look like.
func encodePlan(p *core.Plan) ([]byte, error) {
	spec, err := planform.Canonical(p)
	if err != nil {
		return nil, fmt.Errorf("plan %s version %d: %w", p.Name, p.Version, err)
	}
	return spec, nil
}

// decodePlan reads a stored plan. It refuses a form, a field or a kind of step that this binary does not
// know, rather than guess.
func decodePlan(spec []byte) (core.Plan, error) {
	var form struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(spec, &form); err != nil {
		return core.Plan{}, err
	}
	if form.V != planform.Version {
		return core.Plan{}, fmt.Errorf("it is stored in form version %d, this binary knows %d", form.V, planform.Version)
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

// timesOf reads two times from a plan that decodePlan refused, so that its tasks can still run out of time:
// how long they have, and how long they may wait for their turn. 0: that one is missing or out of range.
func timesOf(spec []byte) (completeBy, queueFor time.Duration) {
	var form struct {
		CompleteBy int64 `json:"complete_by_ms"`
		QueueFor   int64 `json:"queue_for_ms"`
	}
	if json.Unmarshal(spec, &form) != nil {
		return 0, 0
	}
	within := func(ms int64, most time.Duration) time.Duration {
		if ms < 0 || ms > int64(most/time.Millisecond) {
			return 0
		}
		return time.Duration(ms) * time.Millisecond
	}
	return within(form.CompleteBy, core.DurationMax), within(form.QueueFor, core.QueueForMax)
}

// samePlan compares the stored form of a plan version with one that is to be stored, by meaning. Error:
// core.ErrPlanConflict with what differs.
func samePlan(p *core.Plan, stored, want []byte) error {
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
