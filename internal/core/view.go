package core

// View is a task as people and programs read it.
type View struct {
	ID          string
	Type        string
	PlanVersion int64
	Partition   int
	Number      int64
	State       State
	Round       int
	Failures    int
	LockedBy    string
	WaitsFor    string
	Input       []byte
	InputHash   []byte
	CompleteBy  Instant // the task's deadline
	CreatedAt   Instant
	UpdatedAt   Instant
	EndedAt     Instant    // 0: not ended
	StartAt     Instant    // nothing of it begins before; 0: at once
	Reason      string     // why it is where it is, from the newest row that says so
	FailedStep  string     // the step whose failure is the reason, if one's is; in a list, of tasks in error or undone alone
	Steps       []StepView // in the plan's order; empty in a list
	Result      []byte     // of a processed task whose plan has one: JSON; empty in a list
	Seq         int64      // number of the newest journal row; 0 where it is not read
	Fingerprint string     // of the failure, of a task in error or undone
	Labels      []Label    // that the submission gave, in its order
	Parent      string     // id of the task that this one is a part of; empty: it is a whole
	ParentType  string     // the type of that task; empty in a list
	Ancestors   []TaskName // from that task up to the root; empty in a list
	// Sentence says in one sentence why the task is where it is and what comes next: see [Task.Sentence]. Empty in a list.
	Sentence string
	// Possible are the requests that the task's owner would take now: see [Task.Possible]. Empty in a list.
	Possible []string

	task *Task // what it was made of; nil: of a row alone
	plan *Plan
}

// TaskName names a task.
type TaskName struct {
	Type string
	ID   string
}

// StepView is one step of a View.
type StepView struct {
	Name  string
	Kind  StepKind
	Agent string // of a call
	Child string // of task and each: the type of the children
	Count int    // of an each that has begun: how many elements
	When  string // CEL: the condition under which it begins; empty: it begins
	// Optional says that the task goes on without the step when it fails.
	Optional bool
	// Children are those of the step in this round, by what became of them.
	Children ChildCounts
	Status   string  // see [Task.StepWord]
	Attempt  int     // of its do, as all to By; see [Tries]
	Code     int     //
	Error    string  //
	At       Instant //
	By       string  //
	Undo     Tries
	Due      Instant
	Result   []byte
	// Ask is, of a signal that has no answer yet, the token of what it asks: see [Task.AskToken]. AskNeeded says that an answer
	// has to have it.
	Ask       string
	AskNeeded bool
	KeyUntil  Instant // until when its service remembers the key of a call that is not over; 0: none was used
}

// Tries are those of the do of a step, or of its undo, in the task's round.
type Tries struct {
	Attempt int     // the newest
	Code    int     // of the newest that ended; 0: it did not fail
	Error   string  // of that one
	At      Instant // of the newest row about them
	By      string  // who the newest row about an end names: <instance>@<agent>, the agent alone, a node, a person
}

// What a View says of some steps instead of a StepStatus's word.
const (
	SignalledWord = "signalled" // its signal has come before it began
	GaveUpWord    = "gave_up"   // nothing tries its undo any more: what it did may be there
)

// StepWord is the status of step i as a View has it.
func (t *Task) StepWord(i int) string {
	switch s := &t.Steps[i]; {
	case s.kind == kindSignal && s.Status == StepWaiting && s.Own().Early:
		return SignalledWord
	case s.Status == StepUndoing && (s.Left != "" || t.State.Ended()):
		return GaveUpWord
	default:
		return s.Status.String()
	}
}

// StepWord is the status of the row's step after it, as a View has it.
func (r *Record) StepWord() string {
	if r.Kind == KindUndoRefused || r.Kind == KindUndoGaveUp || r.StepStatus == StepUndoing && r.State.Ended() {
		return GaveUpWord
	}
	return r.StepStatus.String()
}

// ofUndo reports whether the row is about the undo of its step, and not about its do.
func (r *Record) ofUndo() bool {
	return r.Kind == KindUndone || r.Kind != KindProbed && (r.StepStatus == StepUndoing || r.StepStatus == StepUndone)
}

// tries are the attempts of the do and of the undo of each step, by the rows of its round: what came of one stays beside what came
// of the other.
func (t *Task) tries(rows []Record) (do, undo []Tries) {
	n := len(t.Steps)
	do, undo = make([]Tries, n), make([]Tries, n)
	back := make([]bool, n) // the newest row is about the undo
	of := func(i int, ofUndo bool) *Tries {
		if back[i] = ofUndo; ofUndo {
			return &undo[i]
		}
		return &do[i]
	}
	for k := range rows {
		r := &rows[k]
		if r.Round != t.Round {
			continue
		}
		if i := r.Step; i >= 0 && i < n && !r.Evidence() && r.Kind != KindCancelled && r.Kind != KindUndoAsked {
			to := of(i, r.ofUndo())
			if to.Attempt, to.At, to.By = r.Attempt, r.At, r.Actor; r.Kind != KindStarted {
				to.Code, to.Error = r.Code, r.Error
			}
		}
		if i := r.Next; i >= 0 && i < n {
			to := of(i, r.Undo)
			to.Attempt, to.At = r.NextAttempt, r.At
		}
	}
	for i := range t.Steps {
		of(i, back[i]).Attempt = t.Steps[i].Attempt
	}
	return do, undo
}

// Summary shows what a task's row says, as a list does.
func (t *Task) Summary() View {
	return View{
		ID: t.ID, Type: t.Type, PlanVersion: t.PlanVersion, Partition: t.Partition, Number: t.Number, State: t.State, Round: t.Round,
		Failures: t.Failures, LockedBy: t.LockedBy, WaitsFor: t.WaitsFor, InputHash: t.InputHash, CompleteBy: t.Deadline,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, EndedAt: t.EndedAt, StartAt: t.StartAt, Seq: t.Seq, Labels: t.Labels,
	}
}

// View shows a replayed task with its steps. p is its plan, nil when that is unknown; rows are the journal that led to
// the task; at is the time that its sentence speaks of.
func (t *Task) View(p *Plan, rows []Record, at Instant) View {
	v := t.Summary()
	v.task, v.plan = t, p
	v.Reason, v.Input, v.Result = t.Why, t.Input, t.Result
	v.Sentence, v.Possible = t.Sentence(p, rows, at), t.Possible(p, at)
	if t.State == StateProcessed {
		v.Reason = ""
	} else if p != nil && t.FailedStep > 0 && t.FailedStep <= len(p.Steps) {
		v.FailedStep = p.Steps[t.FailedStep-1].Name
	}
	do, undo := t.tries(rows)
	for i := range t.Steps {
		s, do := &t.Steps[i], &do[i]
		v.Steps = append(v.Steps, StepView{
			Name: p.Steps[i].Name, Kind: p.Steps[i].Kind, Agent: p.Steps[i].Agent, Child: p.Steps[i].Child, Count: s.Count(),
			When: p.Steps[i].When, Optional: p.Steps[i].OnExhausted == PolicySkip,
			Status: t.StepWord(i), Due: s.Due, Result: s.Result, Ask: t.AskToken(p, i), KeyUntil: t.keyUntil(p, i),
		})
		v.Steps[i].Attempt, v.Steps[i].Code, v.Steps[i].Error, v.Steps[i].At, v.Steps[i].By, v.Steps[i].Undo = do.Attempt, do.Code, do.Error, do.At, do.By, undo[i]
		v.Steps[i].AskNeeded = (v.Steps[i].Ask != "" || t.asksLater(p, i)) && t.AskNeeded(p, i)
		if v.Steps[i].Ask != "" && !t.takesSignal(p, i, at) {
			v.Steps[i].Ask = ""
		}
	}
	return v
}

// KnownBy says what is possible for a task whose plan was unknown when it came, where that is stored now: p is the newest
// version, or nil.
func (v *View) KnownBy(p *Plan, at Instant) {
	if v.task != nil && v.PlanVersion == 0 {
		v.Possible = v.task.Possible(p, at)
	}
}

// Filter selects tasks for a list, newest first within a partition's order of
// numbers. Empty fields select everything.
type Filter struct {
	Type  string
	State State
	Step  string // that failed
	// Fingerprint is of a failure, as a failure group has it.
	Fingerprint string
	Label       string  // key=value
	Parent      string  // id of the task whose children are wanted; empty: roots and children alike
	OpenSignal  bool    // it waits for an answer to a signal step
	CreatedFrom Instant // created at or after
	CreatedTo   Instant // created before
	DeadlineTo  Instant // the task's deadline is before
	PlanVersion int64   // of its plan; 0: any
	// MovableTo leaves those that may be moved to that version of their plan, as far as state and version tell; 0: all.
	MovableTo int64
	Limit     int    // 1 to 1000
	After     string // cursor of the page before, opaque
}

// Page is one page of a list.
type Page struct {
	Tasks []View
	Next  string // cursor of the next page; empty: this was the last
	// Partial says that the page is short because the search was cut off, not because there are no more: Next goes on.
	Partial bool
}

// Count is how many tasks of a type are in a state.
type Count struct {
	Type    string
	State   State
	Tasks   int64
	AtLeast bool // there may be more of the state than were counted
}
