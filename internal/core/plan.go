package core

import (
	"fmt"
	"slices"
	"time"
)

// Limits of names and plans; the wire and the schema rely on them.
const (
	NameBytesMax   = 64        // type, task id and step name
	agentTokensMax = 4         // dot-separated tokens of an agent's name
	StepsMax       = 1000      // steps of one plan; see StepSet
	AttemptsLimit  = 1000      // largest attempts_max
	InputBytesMax  = 256 << 10 // input of a task
	ResultBytesMax = 64 << 10  // result of a step
	// envelopeBytesMax bounds what a command carries besides input and results, the names of envelopeNames results among it.
	envelopeBytesMax   = 8 << 10
	envelopeNames      = 64
	resultNameBytesMax = NameBytesMax + 8 // the name of a result, and what stands around it
	// ErrorBytesMax bounds the error text kept of one failed attempt; longer text is cut.
	ErrorBytesMax = 4 << 10

	ExpressionBytesMax = 4 << 10  // one expression
	schemaBytesMax     = 64 << 10 // one JSON Schema
	ElementsLimit      = 100_000  // largest elements_max
	ParallelLimit      = 10_000   // largest parallel
)

// Defaults of a plan, used where it is silent.
const (
	DefaultTaskCompleteBy = 60 * time.Second
	DefaultStepCompleteBy = 10 * time.Second
	DefaultAttemptsMax    = 3
	// defaultUndoPatience is how long an undo is tried.
	defaultUndoPatience   = 24 * time.Hour
	defaultUndoBackoffCap = 5 * time.Minute
	defaultBackoff        = 200 * time.Millisecond
	defaultBackoffCap     = 10 * time.Second
	defaultPause          = 5 * time.Minute
	// DefaultKeyLasts is how long services remember keys.
	DefaultKeyLasts = 24 * time.Hour
	// DefaultGrace is how long after its complete-by a silent attempt may still
	// take effect: clock skew plus the longest remote call that ignores its
	// context.
	DefaultGrace = 2 * time.Second

	defaultElementsMax = 10_000
	defaultParallel    = 100
	// DurationMax is the longest time-out a plan may name.
	DurationMax = 365 * 24 * time.Hour
	// QueueForMin and QueueForMax bound Plan.QueueFor: packs and commit cycles take half a second, and what waits for an hour
	// is some ten million submissions, which the disk of the streams must hold.
	QueueForMin = time.Second
	QueueForMax = time.Hour
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
	CompleteBy time.Duration // the whole task, from submission to the last answer; see QueueFor
	Grace      time.Duration // see DefaultGrace
	InputMax   int           // bytes of input a submission may carry, at most InputBytesMax

	Result      string        `json:",omitempty"` // CEL: the task's own result when it is processed; empty: it has none
	InputSchema string        `json:",omitempty"` // JSON Schema 2020-12 of the input; empty: any JSON
	UndoReserve time.Duration `json:",omitempty"` // no do starts so shortly before the deadline: it is the undo's time
	Admission   Admission     `json:",omitempty"`
	QueueFor    time.Duration `json:",omitempty"` // the time counts from the task's turn in the queue, for which it may wait so long; 0: from its submission
}

// DeadlineOf is the deadline of a task of the plan that is born then and names none.
func (p *Plan) DeadlineOf(t *Task, born Instant) Instant {
	from := t.CreatedAt
	if p.QueueFor > 0 {
		from = born
	}
	return max(from, t.StartAt).Add(p.CompleteBy)
}

// MissesTurn reports whether what came then, or was to start then, has waited for its turn longer than the plan lets it.
func (p *Plan) MissesTurn(came, turn Instant) bool {
	return p.QueueFor > 0 && turn.Sub(came) > p.QueueFor
}

// Admission says what happens to a submission whose time is less than its plan takes at p95, after its wait in the queue.
type Admission string

// The admissions.
const (
	AdmissionQueue  Admission = ""    // it is refused if it is the queue that leaves too little
	AdmissionOff    Admission = "off" // it is not looked at
	AdmissionWarn   Admission = "warn"
	AdmissionRefuse Admission = "refuse"
)

// Refuses reports whether a submission may be refused for want of time.
func (a Admission) Refuses() bool { return a == AdmissionQueue || a == AdmissionRefuse }

// Needs is how much of the time that is left tasks of the plan are taken to need, which have taken so long lately.
func (a Admission) Needs(took, left time.Duration) time.Duration {
	if a == AdmissionRefuse {
		return took
	}
	return min(took, max(0, left)/needsPart)
}

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
	CompleteBy      time.Duration // one attempt of do
	UndoCompleteBy  time.Duration // one attempt of undo
	AttemptsMax     int           // attempts of do before OnExhausted
	UndoAttemptsMax int           // attempts of undo before it gives up; 0: as many as UndoPatience allows
	Backoff         time.Duration // before the second attempt; doubles, full jitter
	BackoffCap      time.Duration // upper bound of the doubling, of do and of waiting for an agent
	OnExhausted     Policy
	Pause           time.Duration // how long PolicyWait parks the task
	ResultMax       int           // bytes of result an agent may answer, at most ResultBytesMax
	// KeyLasts is, of a call, how long its service remembers the key of a do or an undo: see keylasts.go.
	KeyLasts time.Duration `json:",omitempty"`
	// UndoPatience is how long after its first attempt an undo gives up; 0: defaultUndoPatience.
	UndoPatience time.Duration `json:",omitempty"`
	// UndoBackoffCap is the upper bound of the doubling between attempts of undo; 0: defaultUndoBackoffCap.
	UndoBackoffCap time.Duration `json:",omitempty"`

	When   string        `json:",omitempty"` // CEL: whether the step begins or is skipped; empty: it begins
	Input  string        `json:",omitempty"` // CEL: the input of the command or the child ("with" in files); empty: the task's
	Uses   []int         `json:",omitempty"` // steps whose results ride on the command, where Narrow
	Narrow bool          `json:",omitempty"` // false: the results of all that the step comes after ride on the command
	Least  time.Duration `json:",omitempty"` // a call does not start with less time than this
	Ask    AskPolicy     `json:",omitempty"` // of a signal: whether its answer must say which ask it is for
	Probe  bool          `json:",omitempty"` // of a call: when a do is silent, the agent is asked what became of it

	For    time.Duration `json:",omitempty"` // of a wait: how long; 0: Until says until when
	Until  string        `json:",omitempty"` // CEL, of a wait: the instant
	Schema string        `json:",omitempty"` // JSON Schema 2020-12 of a signal's payload; empty: any JSON

	Child       string `json:",omitempty"` // of task and each: the type of the child, which is another; its newest version is taken
	Elements    string `json:",omitempty"` // CEL, of each: the list
	ElementsMax int    `json:",omitempty"` // of each: elements that the list may have
	Parallel    int    `json:",omitempty"` // of each: children open at a time
	FailuresMax int    `json:",omitempty"` // of each: children that may be undone before the step fails
}

// Ancestors is the set of the steps that a step comes after, directly or through others. A step
// number that is not an earlier one is left out.
func (p *Plan) Ancestors(step int) StepSet {
	var set StepBuilder
	addEarlier(&set, p.Steps[step].After, step)
	for i := step - 1; i > 0; i-- {
		if set.Has(i) {
			addEarlier(&set, p.Steps[i].After, i)
		}
	}
	return set.Set()
}

// AllAncestors are the Ancestors of each step, in time proportional to what the steps name.
func (p *Plan) AllAncestors() []StepSet {
	all := make([]StepSet, len(p.Steps))
	for i := range all {
		var set StepBuilder
		addEarlier(&set, p.Steps[i].After, i)
		for _, a := range p.Steps[i].After {
			if a >= 0 && a < i {
				set.AddAll(all[a])
			}
		}
		all[i] = set.Set()
	}
	return all
}

// addEarlier adds those of the steps that stand before a step.
func addEarlier(set *StepBuilder, steps []int, before int) {
	for _, a := range steps {
		if a >= 0 && a < before {
			set.Add(a)
		}
	}
}

// Carried is the set of the steps whose results ride on the commands of a step.
func (p *Plan) Carried(step int) StepSet {
	if !p.Steps[step].Narrow {
		return p.Ancestors(step)
	}
	return p.used(step)
}

// AllCarried are the Carried of each step; before are AllAncestors.
func (p *Plan) AllCarried(before []StepSet) []StepSet {
	all := slices.Clone(before)
	for i := range all {
		if p.Steps[i].Narrow {
			all[i] = p.used(i)
		}
	}
	return all
}

// used are the steps of a step's uses.
func (p *Plan) used(step int) StepSet {
	var set StepBuilder
	addEarlier(&set, p.Steps[step].Uses, step)
	return set.Set()
}

// FindPlan returns that version of a plan, nil if it is not among them.
func FindPlan(all []Plan, name string, version int64) *Plan {
	for i := range all {
		if all[i].Name == name && all[i].Version == version {
			return &all[i]
		}
	}
	return nil
}

// UnknownChild is the error of a plan whose step i has children of a type without a plan.
func (p *Plan) UnknownChild(i int) error {
	s := &p.Steps[i]
	return fmt.Errorf("%w: plan %s: step %s: child is %s, and no plan of that name is stored: apply it first", ErrPlan, p.Name, s.Name, QuoteShort(s.Child))
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

// ShortestTimeout is the shortest time that any command of the plan may take. A task's first Bound is so long after its birth
// at most; where a wait until an instant that an expression gives ends sooner, the bound is lowered when the wait begins.
func (p *Plan) ShortestTimeout() time.Duration {
	least := p.CompleteBy
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind == WaitStep {
			if s.For > 0 {
				least = min(least, s.For)
			}
			continue
		}
		least = min(least, s.CompleteBy)
		if s.Kind == CallStep {
			least = min(least, s.KeyLasts)
		}
		if s.Undoable {
			least = min(least, s.UndoCompleteBy)
		}
	}
	return least
}
