package duly

import (
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Plan is the shape of a task: its steps, in order, and its limits. A version
// of it never changes once it is stored; a task keeps the version it was
// submitted under for life.
type Plan[In any] struct {
	spec core.Plan
	err  error
}

// StepOf is a step of a task whose input is In: a [Check] or a [Step].
type StepOf[In any] interface {
	Name() string
	takes(In)
	define() definition
}

// NewPlan makes a plan of steps that run in the order of the arguments, each
// after the one before it unless its option [After] says otherwise. name is the
// task type: 1 to 64 of A–Z a–z 0–9 _ -. version is your own number, 1 or more:
// raise it whenever the plan changes, because another content under a stored
// version is refused. A plan that cannot work is reported by [Plan.Apply] and
// [Plan.Submit].
func NewPlan[In any](name string, version int64, steps ...StepOf[In]) *Plan[In] {
	p := &Plan[In]{spec: core.Plan{Name: name, Version: version}}
	for i, step := range steps {
		def := step.define()
		after, err := def.resolve(p.spec.Steps)
		if err != nil && p.err == nil {
			p.err = fmt.Errorf("plan %s: %w", name, err)
		}
		if !def.afterSet && i > 0 {
			after = []int{i - 1}
		}
		def.step.After = after
		p.spec.Steps = append(p.spec.Steps, def.step)
	}
	p.spec = p.spec.WithDefaults()
	return p
}

// PlanOption changes a whole plan: see [Plan.With].
type PlanOption func(*core.Plan)

// TaskCompleteBy is how long a task may take from its submission to the last
// step's answer before it is undone; 60 s unless said. A submission may ask for
// another time: [Deadline], [Within].
func TaskCompleteBy(d time.Duration) PlanOption {
	return func(p *core.Plan) { p.CompleteBy = d }
}

// Grace is how long after its complete-by a call that was given up may still
// take effect: the clocks' skew plus the longest remote call that ignores its
// context; 2 s unless said. The undo of a silent step waits for it.
func Grace(d time.Duration) PlanOption {
	return func(p *core.Plan) { p.Grace = d }
}

// InputMax is how many bytes of JSON a task's input may have; 256 KiB, the
// most, unless said.
func InputMax(bytes int) PlanOption {
	return func(p *core.Plan) { p.InputMax = bytes }
}

// With returns the plan with options applied; the receiver stays as it is.
func (p *Plan[In]) With(options ...PlanOption) *Plan[In] {
	with := *p
	with.spec.Steps = slices.Clone(p.spec.Steps)
	for _, option := range options {
		option(&with.spec)
	}
	return &with
}

// Name is the task type.
func (p *Plan[In]) Name() string { return p.spec.Name }

// Version is the number given to [NewPlan].
func (p *Plan[In]) Version() int64 { return p.spec.Version }

// check reports what makes the plan impossible, as an ErrRefused. payloadMax is
// the server's largest message in bytes; 0: not known.
func (p *Plan[In]) check(payloadMax int) error {
	err := p.err
	if err == nil {
		err = p.spec.Validate(payloadMax)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}
