package core

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Limits of names and plans; the wire and the schema rely on them.
const (
	NameBytesMax   = 64        // type, task id and step name
	AgentTokensMax = 4         // dot-separated tokens of an agent's name
	StepsMax       = 64        // steps of one plan; the in-flight windows are a 64-bit set
	AttemptsLimit  = 1000      // largest attempts_max
	InputBytesMax  = 256 << 10 // input of a task
	ResultBytesMax = 64 << 10  // result of a step
	// EnvelopeBytesMax bounds what a command carries besides input and results.
	EnvelopeBytesMax = 8 << 10
	// ErrorBytesMax bounds the error text kept of one failed try; longer text is cut.
	ErrorBytesMax = 4 << 10
)

// Defaults of a plan, used where it is silent.
const (
	DefaultTaskCompleteBy = 60 * time.Second
	DefaultStepCompleteBy = 10 * time.Second
	DefaultAttemptsMax    = 3
	// DefaultUndoAttemptsMax stands for no limit but the undo's patience. It is a number
	// because stored plans have it: a plan is the same whether it says so or is silent.
	DefaultUndoAttemptsMax = 10
	// DefaultUndoPatience is how long an undo is tried.
	DefaultUndoPatience   = 24 * time.Hour
	DefaultUndoBackoffCap = 5 * time.Minute
	DefaultBackoff        = 200 * time.Millisecond
	DefaultBackoffCap     = 10 * time.Second
	DefaultPause          = 5 * time.Minute
	// DefaultGrace is how long after its complete-by a silent try may still
	// take effect: clock skew plus the longest remote call that ignores its
	// context.
	DefaultGrace = 2 * time.Second
	// DurationMax is the longest time-out a plan may name.
	DurationMax = 365 * 24 * time.Hour
)

// Policy says what happens to a step whose attempts are exhausted.
type Policy string

// The exhaustion policies.
const (
	PolicyUndo  Policy = "undo"  // undo the whole task; the default
	PolicyWait  Policy = "wait"  // pause for an extended period, then start again
	PolicyError Policy = "error" // stop, keep what was done, call a person
	PolicySkip  Policy = "skip"  // undo what the step may have done, and go on without it
)

// Plan is the shape of a task: immutable once stored, by name and version. A
// task keeps the version it was submitted under for life.
type Plan struct {
	Name       string        // the task type
	Version    int64         // 1 or more; a submission takes the highest
	Steps      []Step        // in an order where After names only earlier steps
	CompleteBy time.Duration // the whole task, from submission to the last answer
	Grace      time.Duration // see DefaultGrace
	InputMax   int           // bytes of input a submission may carry, at most InputBytesMax

	Result      string        `json:",omitempty"` // CEL: the task's own result when it is processed; empty: it has none
	InputSchema string        `json:",omitempty"` // JSON Schema 2020-12 of the input; empty: any JSON
	UndoReserve time.Duration `json:",omitempty"` // no do starts so shortly before the deadline: it is the undo's time
	Admission   Admission     `json:",omitempty"`
}

// Admission says what happens to a submission whose time is less than its plan takes at p95.
type Admission string

// The admissions.
const (
	AdmissionOff    Admission = "" // it is not looked at
	AdmissionWarn   Admission = "warn"
	AdmissionRefuse Admission = "refuse"
)

// StepKind says what a step is.
type StepKind string

// The kinds of step.
const (
	CallStep   StepKind = ""       // a command to an agent
	WaitStep   StepKind = "wait"   // until an instant
	SignalStep StepKind = "signal" // until somebody or something answers
	TaskStep   StepKind = "task"   // a child task
	EachStep   StepKind = "each"   // a child task for each element of a list
)

// Parent reports whether steps of the kind have child tasks.
func (k StepKind) Parent() bool { return k == TaskStep || k == EachStep }

// Step is one step of a plan.
type Step struct {
	Name            string
	Kind            StepKind      `json:",omitempty"`
	Agent           string        // who performs a call: 1–4 tokens joined by dots
	After           []int         // indexes of the steps that must be done or skipped before
	Undoable        bool          // false for a check, which leaves nothing behind
	CompleteBy      time.Duration // one try of do
	UndoCompleteBy  time.Duration // one try of undo
	AttemptsMax     int           // tries of do before OnExhausted
	UndoAttemptsMax int           // tries of undo before it gives up; DefaultUndoAttemptsMax: as many as UndoPatience allows
	Backoff         time.Duration // before the second try; doubles, full jitter
	BackoffCap      time.Duration // upper bound of the doubling, of do and of waiting for an agent
	OnExhausted     Policy
	Pause           time.Duration // how long PolicyWait parks the task
	ResultMax       int           // bytes of result an agent may answer, at most ResultBytesMax
	// UndoPatience is how long after its first try an undo gives up; 0: DefaultUndoPatience.
	UndoPatience time.Duration `json:",omitempty"`
	// UndoBackoffCap is the upper bound of the doubling between tries of undo; 0: DefaultUndoBackoffCap.
	UndoBackoffCap time.Duration `json:",omitempty"`

	When   string        `json:",omitempty"` // CEL: whether the step begins or is skipped; empty: it begins
	Input  string        `json:",omitempty"` // CEL: the input of the command or the child ("with" in files); empty: the task's
	Uses   []int         `json:",omitempty"` // steps whose results ride on the command, where Narrow
	Narrow bool          `json:",omitempty"` // false: the results of all that the step comes after ride on the command
	Least  time.Duration `json:",omitempty"` // a call does not start with less time than this

	For    time.Duration `json:",omitempty"` // of a wait: how long; 0: Until says until when
	Until  string        `json:",omitempty"` // CEL, of a wait: the instant
	Schema string        `json:",omitempty"` // JSON Schema 2020-12 of a signal's payload; empty: any JSON

	Child       string `json:",omitempty"` // of task and each: the type of the child; its newest version is taken
	Elements    string `json:",omitempty"` // CEL, of each: the list
	ElementsMax int    `json:",omitempty"` // of each: elements that the list may have
	Parallel    int    `json:",omitempty"` // of each: children open at a time
	FailuresMax int    `json:",omitempty"` // of each: children that may be undone before the step fails
}

// ErrPlan is wrapped by every error of [Plan.Validate].
var ErrPlan = errors.New("plan cannot work")

// WithDefaults returns a copy in which every zero field has its default.
func (p Plan) WithDefaults() Plan {
	steps := make([]Step, len(p.Steps))
	copy(steps, p.Steps)
	p.Steps = steps
	p.CompleteBy = cmp.Or(p.CompleteBy, DefaultTaskCompleteBy)
	p.Grace = cmp.Or(p.Grace, DefaultGrace)
	p.InputMax = cmp.Or(p.InputMax, InputBytesMax)
	for i := range steps {
		steps[i].fillDefaults(p.CompleteBy)
	}
	return p
}

// fillDefaults fills in what is silent; task is how long the whole task may take. A default
// never contradicts what was said.
func (s *Step) fillDefaults(task time.Duration) {
	if s.CompleteBy == 0 {
		s.UndoCompleteBy = cmp.Or(s.UndoCompleteBy, DefaultStepCompleteBy) // an undo may take longer than the task
		s.CompleteBy = min(DefaultStepCompleteBy, task)
	}
	s.UndoCompleteBy = cmp.Or(s.UndoCompleteBy, s.CompleteBy)
	switch {
	case s.Backoff == 0 && s.BackoffCap > 0:
		s.Backoff = min(DefaultBackoff, s.BackoffCap)
	case s.BackoffCap == 0 && s.Backoff > 0:
		s.BackoffCap = max(DefaultBackoffCap, s.Backoff)
	}
	s.Backoff = cmp.Or(s.Backoff, DefaultBackoff)
	s.BackoffCap = cmp.Or(s.BackoffCap, DefaultBackoffCap)
	s.Pause = cmp.Or(s.Pause, DefaultPause)
	s.AttemptsMax = cmp.Or(s.AttemptsMax, DefaultAttemptsMax)
	s.UndoAttemptsMax = cmp.Or(s.UndoAttemptsMax, DefaultUndoAttemptsMax)
	s.ResultMax = cmp.Or(s.ResultMax, ResultBytesMax)
	s.OnExhausted = cmp.Or(s.OnExhausted, PolicyUndo)
}

// Validate refuses a plan that cannot work. payloadMax is the largest message
// the server takes in bytes (its max_payload); 0 skips that check. The plan
// must have its defaults filled in.
func (p *Plan) Validate(payloadMax int) error {
	if err := CheckName("type", p.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrPlan, err)
	}
	if p.Version < 1 {
		return fmt.Errorf("%w: plan %s: version %d is below 1", ErrPlan, p.Name, p.Version)
	}
	if n := len(p.Steps); n < 1 || n > StepsMax {
		return fmt.Errorf("%w: plan %s: %d steps, want 1 to %d", ErrPlan, p.Name, n, StepsMax)
	}
	if err := checkDurations(p.Name, "", named{"complete_by", p.CompleteBy}, named{"grace", p.Grace}); err != nil {
		return err
	}
	for i := range p.Steps {
		if err := p.validateStep(i); err != nil {
			return err
		}
	}
	return p.validateSize(payloadMax)
}

func (p *Plan) validateStep(i int) error {
	s := &p.Steps[i]
	if err := CheckName("step", s.Name); err != nil {
		return fmt.Errorf("%w: plan %s: step %d: %w", ErrPlan, p.Name, i+1, err)
	}
	if err := CheckAgent(s.Agent); err != nil {
		return fmt.Errorf("%w: plan %s: step %s: %w", ErrPlan, p.Name, s.Name, err)
	}
	if j := p.StepIndex(s.Name); j != i {
		return fmt.Errorf("%w: plan %s: steps %d and %d are both named %s", ErrPlan, p.Name, j+1, i+1, s.Name)
	}
	if len(s.After) > i {
		return fmt.Errorf("%w: plan %s: step %s: after names %d steps, but %d are earlier", ErrPlan, p.Name, s.Name, len(s.After), i)
	}
	for _, a := range s.After {
		if a < 0 || a >= i {
			return fmt.Errorf("%w: plan %s: step %s comes after step number %d, which is not an earlier step (a cycle cannot run)", ErrPlan, p.Name, s.Name, a+1)
		}
	}
	for _, n := range []struct {
		what       string
		value, max int
	}{{"attempts_max", s.AttemptsMax, AttemptsLimit}, {"undo_attempts_max", s.UndoAttemptsMax, AttemptsLimit}, {"result_max", s.ResultMax, ResultBytesMax}} {
		if n.value < 1 || n.value > n.max {
			return fmt.Errorf("%w: plan %s: step %s: %s is %d, want 1 to %d", ErrPlan, p.Name, s.Name, n.what, n.value, n.max)
		}
	}
	switch s.OnExhausted {
	case PolicyUndo, PolicyWait, PolicyError:
	default:
		return fmt.Errorf("%w: plan %s: step %s: on_exhausted is %s, want undo, wait or error", ErrPlan, p.Name, s.Name, QuoteShort(string(s.OnExhausted)))
	}
	for _, d := range []named{{"undo_patience", s.UndoPatience}, {"undo_backoff_cap", s.UndoBackoffCap}} {
		if d.value == 0 {
			continue // the default
		}
		if err := checkDurations(p.Name, s.Name, d); err != nil {
			return err
		}
	}
	err := checkDurations(p.Name, s.Name,
		named{"complete_by", s.CompleteBy}, named{"undo_complete_by", s.UndoCompleteBy},
		named{"backoff", s.Backoff}, named{"backoff_cap", s.BackoffCap}, named{"pause", s.Pause})
	switch {
	case err != nil:
		return err
	case s.Backoff > s.BackoffCap:
		return fmt.Errorf("%w: plan %s: step %s: backoff is %v, want at most its cap of %v", ErrPlan, p.Name, s.Name, s.Backoff, s.BackoffCap)
	case s.CompleteBy > p.CompleteBy:
		return fmt.Errorf("%w: plan %s: step %s: complete_by is %v, want at most the task's of %v", ErrPlan, p.Name, s.Name, s.CompleteBy, p.CompleteBy)
	}
	return nil
}

// validateSize makes sure that the last command of a task, with its input and
// every earlier result at their limits, still fits one message.
func (p *Plan) validateSize(payloadMax int) error {
	if p.InputMax < 1 || p.InputMax > InputBytesMax {
		return fmt.Errorf("%w: plan %s: input_max is %d, want 1 to %d", ErrPlan, p.Name, p.InputMax, InputBytesMax)
	}
	worst := p.InputMax + EnvelopeBytesMax
	for i := range p.Steps {
		worst += p.Steps[i].ResultMax
	}
	if payloadMax > 0 && worst > payloadMax {
		return fmt.Errorf("%w: plan %s: input_max, %d times result_max and the envelope could reach %d bytes, over the server's max_payload of %d",
			ErrPlan, p.Name, len(p.Steps), worst, payloadMax)
	}
	return nil
}

// StepIndex returns the index of the step of that name, or -1.
func (p *Plan) StepIndex(name string) int {
	for i := range p.Steps {
		if p.Steps[i].Name == name {
			return i
		}
	}
	return -1
}

// ShortestTimeout is the shortest complete-by any command of the plan can have.
// It is the first lower bound of a task's complete_by column.
func (p *Plan) ShortestTimeout() time.Duration {
	least := p.CompleteBy
	for i := range p.Steps {
		least = min(least, p.Steps[i].CompleteBy)
		if p.Steps[i].Undoable {
			least = min(least, p.Steps[i].UndoCompleteBy)
		}
	}
	return least
}

type named struct {
	name  string
	value time.Duration
}

func checkDurations(plan, step string, ds ...named) error {
	for _, d := range ds {
		if d.value < time.Millisecond || d.value > DurationMax {
			return fmt.Errorf("%w: plan %s: step %q: %s is %v, want 1ms to %v", ErrPlan, plan, step, d.name, d.value, DurationMax)
		}
	}
	return nil
}
