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
	Status   string // a StepStatus's word, or SignalledWord
	Attempt  int
	Due      Instant
	Code     int
	Error    string
	Result   []byte
	At       Instant // of its newest row
	// Ask is, of a signal that has no answer yet, the token of what it asks: see [Task.AskToken]. AskNeeded says that an answer
	// has to have it.
	Ask       string
	AskNeeded bool
	KeyUntil  Instant // until when its service remembers the key of a call that is not over; 0: none was used
	By        string  // who the newest row about its end or failure names: <instance>@<agent>, the agent alone, a node, a person
}

// SignalledWord is the status of a signal step in a View whose signal has come before the step began.
const SignalledWord = "signalled"

// StatusWord is the step's status as a View has it.
func (s *StepState) StatusWord() string {
	if s.kind == kindSignal && s.Status == StepWaiting && s.Own().Early {
		return SignalledWord
	}
	return s.Status.String()
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
	v.Sentence, v.Possible = t.Sentence(p, at), t.Possible(p, at)
	if t.State == StateProcessed {
		v.Reason = ""
	} else if p != nil && t.FailedStep > 0 && t.FailedStep <= len(p.Steps) {
		v.FailedStep = p.Steps[t.FailedStep-1].Name
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		v.Steps = append(v.Steps, StepView{
			Name: p.Steps[i].Name, Kind: p.Steps[i].Kind, Agent: p.Steps[i].Agent, Child: p.Steps[i].Child, Count: s.Own().Count,
			When: p.Steps[i].When, Optional: p.Steps[i].OnExhausted == PolicySkip,
			Status: s.StatusWord(), Attempt: s.Attempt, Due: s.Due, Result: s.Result, Ask: t.AskToken(p, i), KeyUntil: t.keyUntil(p, i),
		})
		v.Steps[i].AskNeeded = (v.Steps[i].Ask != "" || t.asksLater(p, i)) && t.AskNeeded(p, i)
		if !t.takesSignal(p, i, at) {
			v.Steps[i].Ask = ""
		}
	}
	for i := range rows {
		rec := &rows[i]
		if rec.Round != t.Round {
			continue
		}
		if rec.Step >= 0 && rec.Step < len(v.Steps) && !rec.Evidence() {
			sv := &v.Steps[rec.Step]
			sv.At, sv.Code, sv.Error, sv.By = rec.At, rec.Code, rec.Error, rec.Actor
		}
		if rec.Next >= 0 && rec.Next < len(v.Steps) {
			v.Steps[rec.Next].At = rec.At
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
