package duly

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Plan is the shape of a task: its steps, in order, and its limits. A version
// of it never changes once it is stored; a task keeps the version it was
// submitted under for life.
type Plan[In any] struct {
	said  core.Plan            // what NewPlan and With were given
	spec  core.Plan            // with the defaults of what they were not
	steps map[string]*identity // does not change
	err   error
}

// StepOf is a step of a task whose input is In: a [Check], a [Step], a [Wait], a [Signal], a [Child], an [Each], or what
// [With] makes of a step with another input.
type StepOf[In any] interface {
	Named
	takes(In)
}

// NewPlan makes a plan of steps that run in the order of the arguments, each
// after the one before it unless its option [After] says otherwise. name is the
// task type: 1 to 64 of A–Z a–z 0–9 _ -. version is your own number, 1 or more:
// raise it whenever the plan changes, because another content under a stored
// version is refused. A plan that cannot work is reported by [Plan.Apply] and
// [Plan.Submit].
func NewPlan[In any](name string, version int64, steps ...StepOf[In]) *Plan[In] {
	p := &Plan[In]{said: core.Plan{Name: name, Version: version}, steps: map[string]*identity{}}
	var before []definition
	for i, step := range steps {
		if step == nil {
			p.refuse(fmt.Errorf("plan %s: step number %d is nil", name, i+1))
			continue
		}
		def := step.define()
		if def.err != nil {
			p.refuse(fmt.Errorf("plan %s: %w", name, def.err))
		}
		after, err := def.resolve(before, def.after, "after")
		if err != nil {
			p.refuse(fmt.Errorf("plan %s: %w", name, err))
		}
		if !def.afterSet && len(before) > 0 {
			after = []int{len(before) - 1}
		}
		def.step.After = after
		if def.step.Uses, err = def.resolve(before, def.uses, "uses"); err != nil {
			p.refuse(fmt.Errorf("plan %s: %w", name, err))
		}
		p.steps[def.step.Name] = def.self
		before = append(before, def)
		p.said.Steps = append(p.said.Steps, def.step)
	}
	p.spec = p.said.WithDefaults()
	return p
}

// refuse keeps the first thing that is wrong with the plan.
func (p *Plan[In]) refuse(err error) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %w", core.ErrPlan, err)
	}
}

// PlanOption changes a whole plan: see [Plan.With].
type PlanOption func(*planSpec)

// planSpec is a plan before its defaults.
type planSpec struct {
	core.Plan
	refuse func(error)
	in     reflect.Type // of the input
}

// zero refuses an option's zero, which further on would mean that nothing was said.
func (p *planSpec) zero(option string, is bool, want string) {
	if is {
		p.refuse(fmt.Errorf("plan %s: %s(0), want %s", p.Name, option, want))
	}
}

// durationWant is what a time of a plan may be.
var durationWant = fmt.Sprintf("1ms to %v", core.DurationMax)

// TaskCompleteBy is how long a task may take from its submission to the last
// step's answer before it is undone; 60 s unless said. A submission may ask for
// another time: [Deadline], [Within]. With [QueueFor] it counts from the task's turn.
func TaskCompleteBy(d time.Duration) PlanOption {
	return func(p *planSpec) {
		p.zero("TaskCompleteBy", d == 0, durationWant)
		p.CompleteBy = d
	}
}

// Grace is how long after its complete-by a call that was given up may still
// take effect: the clocks' skew plus the longest remote call that ignores its
// context; 2 s unless said. The undo of a silent step waits for it.
func Grace(d time.Duration) PlanOption {
	return func(p *planSpec) {
		p.zero("Grace", d == 0, durationWant)
		p.Grace = d
	}
}

// InputMax is how many bytes of JSON a task's input may have; 256 KiB, the
// most, unless said.
func InputMax(bytes int) PlanOption {
	return func(p *planSpec) {
		p.zero("InputMax", bytes == 0, fmt.Sprintf("1 to %d", core.InputBytesMax))
		p.InputMax = bytes
	}
}

// UndoReserve is how long before the deadline of a task its forward work ends: that time is the undo's, so that it
// finishes by the deadline. None unless said.
func UndoReserve(d time.Duration) PlanOption {
	return func(p *planSpec) {
		p.zero("UndoReserve", d == 0, durationWant)
		p.UndoReserve = d
	}
}

// queueForWant is what [QueueFor] takes.
var queueForWant = fmt.Sprintf("%v to %v", core.QueueForMin, core.QueueForMax)

// QueueFor makes the time of a task that names no deadline count from its turn, when the scheduler begins it, and not from its
// submission; it may wait for its turn so long, 1 s to 1 h. 10 minutes take in most spikes. Beyond, it is refused (429), or
// undone before anything of it has begun. A [StartAt] that is later than its turn counts as its turn.
func QueueFor(d time.Duration) PlanOption {
	return func(p *planSpec) {
		p.zero("QueueFor", d == 0, queueForWant)
		p.QueueFor = d
	}
}

// Admission chooses what happens to a submission whose time is less than its wait in the queue and what its plan takes in 95
// of 100 cases, as the server has measured them.
func Admission(policy AdmissionPolicy) PlanOption {
	return func(p *planSpec) { p.Admission = core.Admission(policy) }
}

// AdmissionPolicy is what [Admission] takes.
type AdmissionPolicy string

// The policies of [Admission].
const (
	AdmissionQueue  AdmissionPolicy = AdmissionPolicy(core.AdmissionQueue)  // if it is the queue that leaves too little, it is refused, code 429; the default
	AdmissionOff    AdmissionPolicy = AdmissionPolicy(core.AdmissionOff)    // it is taken
	AdmissionWarn   AdmissionPolicy = AdmissionPolicy(core.AdmissionWarn)   // it is taken, and the server says so
	AdmissionRefuse AdmissionPolicy = AdmissionPolicy(core.AdmissionRefuse) // it is refused: code 422, or 429 where the queue is why
)

// Result is the result of the plan's tasks, an expression in CEL over input and results: it is made when the task is
// processed. None unless said. [ResultAs] gives it a type, [ResultOf] makes it of a step's result.
func Result(expression string) PlanOption {
	return func(p *planSpec) {
		if strings.TrimSpace(expression) == "" {
			p.refuse(fmt.Errorf("plan %s: Result: the expression is empty", p.Name))
		}
		p.Result = expression
	}
}

// With returns the plan with options applied; the receiver stays as it is.
func (p *Plan[In]) With(options ...PlanOption) *Plan[In] {
	with := *p
	spec := planSpec{Plan: p.said, refuse: with.refuse, in: reflect.TypeFor[In]()}
	spec.Steps = slices.Clone(p.said.Steps)
	for _, option := range options {
		option(&spec)
	}
	with.said, with.spec = spec.Plan, spec.WithDefaults()
	return &with
}

// Name is the task type.
func (p *Plan[In]) Name() string { return p.spec.Name }

// Version is the number given to [NewPlan].
func (p *Plan[In]) Version() int64 { return p.spec.Version }

// Spec is the plan as the server gets it, for package dulytest. Error: it cannot work, an ErrRefused.
func (p *Plan[In]) Spec() (core.Plan, error) {
	if p == nil {
		return core.Plan{}, &refusedPlan{fmt.Errorf("%w: the plan is nil", core.ErrPlan)}
	}
	spec := p.spec
	spec.Steps = slices.Clone(p.spec.Steps)
	return spec, p.check(0)
}

func (p *Plan[In]) takes(In)               {}
func (p *Plan[In]) gives() (none NoResult) { return none }

// check reports what makes the plan impossible, as an ErrRefused. payloadMax is
// the server's largest message in bytes; 0: not known.
func (p *Plan[In]) check(payloadMax int) error {
	err := p.err
	if err == nil {
		err = p.spec.Validate(payloadMax)
	}
	if err != nil {
		return &refusedPlan{err}
	}
	return nil
}

// refusedPlan is an ErrRefused that says no more than why.
type refusedPlan struct{ err error }

// Error is the reason.
func (e *refusedPlan) Error() string { return e.err.Error() }

// Unwrap gives the reason.
func (e *refusedPlan) Unwrap() error { return e.err }

// Is makes it an ErrRefused.
func (e *refusedPlan) Is(target error) bool { return target == ErrRefused }
