package operate

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Limits of what is asked. An error names the field, the value and the limit.
const (
	ConfirmMax    = 100                // tasks of an operation; of more the number must be said
	ListMax       = 1000               // rows of a page
	ListDefault   = 50                 // rows of a page when the request does not say
	CountExactMax = 10_000             // counts are exact up to this many, and "at least" beyond
	LabelBytesMax = core.LabelBytesMax // of a label's key, and of its value
	MembersMax    = 1000000            // tasks of one operation
	PreviewFor    = 15 * time.Minute
	OperationFor  = 30 * 24 * time.Hour // after its end an operation is forgotten, with its members
)

// Count is a number of tasks that is exact, or says that it is not.
type Count struct {
	N       int64 `json:"n"`
	AtLeast bool  `json:"at_least,omitempty" doc:"the count was cut: there may be more than n; with an n of 0 none was counted, and how many there are is not known"`
}

// Unknown reports that the count says nothing.
func (c Count) Unknown() bool { return c.AtLeast && c.N == 0 }

// Actor is who does something: the authenticated one, never the requester's word.
type Actor struct {
	Name string `json:"name"`           // of the token, of the person at the identity provider, or "local" where auth is off
	Role Role   `json:"role"`           //
	From string `json:"from,omitempty"` // address that the request came from
	Via  string `json:"via"`            // http, console, nats, operation
	// Labels are those that what it submits has, as a header has them: those of its token.
	Labels string `json:"-"`
	Open   bool   `json:"-"` // authentication is off: it may be anyone
}

// Role is what an actor may do: a viewer reads, an operator acts on tasks, an admin changes settings and tokens as well.
type Role string

// The roles, each with what those before it may do.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// May reports whether an actor of role r may do what needs the other role.
func (r Role) May(needs Role) bool {
	if needs == RoleClient {
		return r == RoleClient || rank[r] >= rank[RoleOperator]
	}
	return rank[r] >= rank[needs] && rank[needs] > 0
}

var rank = map[Role]int{RoleViewer: 1, RoleOperator: 2, RoleAdmin: 3}

// Action is the name of something that an operator may ask of a task.
type Action string

// The actions. Each says in which states it is allowed.
const (
	ActionCancel   Action = "cancel"   // pending, processing: what it did is undone
	ActionUndo     Action = "undo"     // any state but undone; again after an undo gave up; undone: a step whose effect stands
	ActionResubmit Action = "resubmit" // error: from the failed step on; undone: from the first, in a new round
	ActionEdit     Action = "edit"     // as resubmit, with another input
	ActionAccept   Action = "accept"   // error: the failed step counts as done, with a given result
	ActionResolve  Action = "resolve"  // error: settled by hand, as processed or undone
	ActionExtend   Action = "extend"   // pending, processing: a later deadline
	ActionMigrate  Action = "migrate"  // pending, processing, error: go on by another version of the plan
	ActionSignal   Action = "signal"   // pending, processing: answer a signal step, or refuse it
)

// allActions are all of them.
var allActions = []Action{ActionCancel, ActionUndo, ActionResubmit, ActionEdit, ActionAccept, ActionResolve, ActionExtend, ActionMigrate, ActionSignal}

// Request asks for one action on one task, or on each of many.
type Request struct {
	Action Action          `json:"action"`
	Reason string          `json:"reason,omitempty"` // required for undo, resolve, accept and edit; of a signal without a result: why it is refused
	Step   string          `json:"step,omitempty"`   // of resubmit, edit and accept: the step meant; empty: the failed one; of undo: the step of an undone task whose effect stands
	Input  json.RawMessage `json:"input,omitempty"`  // of edit
	Patch  json.RawMessage `json:"patch,omitempty"`  // of edit of many, instead of an input: JSON Merge Patch (RFC 7386) of each task's own
	Result json.RawMessage `json:"result,omitempty"` // of accept; of signal: the payload, none refuses
	Until  time.Time       `json:"until,omitzero"`   // of extend, resubmit, edit and accept: the new deadline; zero: the plan's time from now, or its own if later
	Ask    string          `json:"ask,omitempty"`    // of signal: the token of the ask that it answers, see core.Task.AskToken
	As     core.State      `json:"as,omitempty"`     // of resolve: processed or undone
	// Found is, of undo, resubmit and edit, what a person has found at the service of a step whose key is too old: done or absent.
	Found   core.ProbeOutcome `json:"found,omitempty"`
	Version int64             `json:"version,omitempty"` // of migrate: of the plan
	IfSeq   int64             `json:"if_seq,omitempty"`  // refuse when the task's newest journal row is another; 0: whatever it is
	Key     string            `json:"-"`                 // Idempotency-Key: the same key is carried out once
}

// Asked begins the outcome of a request that was taken: the task's owner has not decided yet, and the task may change first.
const Asked = "asked: "

// Answer is what became of a request about a task.
type Answer struct {
	Type     string     `json:"type"`
	ID       string     `json:"id"`
	Action   Action     `json:"action"`
	State    core.State `json:"state,omitempty"` // when it was asked
	Outcome  string     `json:"outcome"`         // what will be, in words
	Position string     `json:"control_position"`
	Audit    int64      `json:"audit"`           // number of the entry in the audit trail
	Again    bool       `json:"again,omitempty"` // the key had been used for this before: nothing was done again
}

// GroupKey names a failure group: tasks of one type that failed in one step in the same way.
type GroupKey struct {
	Type        string     `json:"type"`
	State       core.State `json:"state"`       // error or undone
	Step        string     `json:"step"`        // name of the failed step; empty: none failed
	Fingerprint string     `json:"fingerprint"` // of the error's text without numbers and ids
}

// Group is one failure group.
type Group struct {
	GroupKey
	ID      string    `json:"id"` // of the group: a short hash of the key, usable in a URL
	Tasks   Count     `json:"tasks"`
	Example string    `json:"example"` // text of the newest failure
	Task    string    `json:"task"`    // id of that task
	First   time.Time `json:"first"`   // when the oldest of its tasks ended
	Last    time.Time `json:"last"`    // when the newest did
	Notes   int       `json:"notes"`   // that operators wrote
}

// Groups is one page of failure groups, by key.
type Groups struct {
	Groups []Group   `json:"groups"`
	Next   string    `json:"next,omitempty"` // cursor of the next page; empty: this was the last
	At     time.Time `json:"at"`             // when it was read
	// Of the largest: how many groups there are, and how many tasks in them.
	All   Count `json:"-"`
	Tasks Count `json:"-"`
}

// Ranked are the groups of the page as people read them: errors first, and of each state the largest.
func (g *Groups) Ranked() []Group {
	return slices.SortedStableFunc(slices.Values(g.Groups), func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(b.Tasks.N, a.Tasks.N))
	})
}

// GroupFilter selects failure groups. Empty fields select all.
type GroupFilter struct {
	Type  string
	State core.State // error, undone or empty for both
	Limit int
	After string
	// Largest wants those with the most tasks first, of one state. There is no further page.
	Largest bool
}

// Selection is the tasks that an operation is about: one group, or all that match a filter.
type Selection struct {
	Group  string       `json:"group,omitempty"` // id of a failure group
	Filter *core.Filter `json:"filter,omitempty"`
	IDs    []TaskRef    `json:"ids,omitempty"` // at most ListMax
}

// TaskRef names a task.
type TaskRef struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Member is one task of an operation as it was when the membership was frozen.
type Member struct {
	Operation string  `json:"-"`       // its id
	Ordinal   int64   `json:"ordinal"` // 1, 2, 3 … within the operation
	Partition int     `json:"partition"`
	Number    int64   `json:"number"`
	ID        string  `json:"id"`
	Type      string  `json:"type"`
	Seq       int64   `json:"seq"`  // of its newest journal row then
	Step      string  `json:"step"` // that had failed then
	Wave      int     `json:"wave,omitempty"`
	Outcome   Outcome `json:"outcome"`
	Text      string  `json:"text,omitempty"` // of the new failure, or why it was skipped
	// Fingerprint is of the new failure, of one that failed again.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// Outcome is what became of a member: exactly one at any time, so that the numbers add up to the frozen total.
type Outcome string

// The outcomes.
const (
	OutcomeWaiting     Outcome = "waiting"      // not asked yet
	OutcomeAsked       Outcome = "asked"        // asked, and neither passed nor failed yet
	OutcomeDone        Outcome = "done"         // the failed step has passed, the undo has ended, or the task is of the version, as was asked
	OutcomeFailedAgain Outcome = "failed_again" // asked, and it failed again
	OutcomeSkipped     Outcome = "skipped"      // it had changed since the preview, or what was asked is not allowed any more
)

// Tally counts members by outcome.
type Tally struct {
	Waiting     int64 `json:"waiting"`
	Asked       int64 `json:"asked"`
	Done        int64 `json:"done"`
	FailedAgain int64 `json:"failed_again"`
	Skipped     int64 `json:"skipped"`
}

// Total is the number of members.
func (t Tally) Total() int64 { return t.Waiting + t.Asked + t.Done + t.FailedAgain + t.Skipped }

// Of is where members of an outcome are counted; nil: it is none.
func (t *Tally) Of(o Outcome) *int64 {
	switch o {
	case OutcomeWaiting:
		return &t.Waiting
	case OutcomeAsked:
		return &t.Asked
	case OutcomeDone:
		return &t.Done
	case OutcomeFailedAgain:
		return &t.FailedAgain
	case OutcomeSkipped:
		return &t.Skipped
	}
	return nil
}

// Rehearsal is what an operation would come to if nothing else happened meanwhile, played on the pure core.
type Rehearsal struct {
	Repairable  int64         `json:"repairable"`   // it would be done
	FailedAgain int64         `json:"failed_again"` // it is allowed, and would fail: its deadline leaves no time, or its undo would give up
	Refused     int64         `json:"refused"`      // the task's state forbids it
	Waiting     int64         `json:"waiting"`      // it would wait: its agent is paused or away
	Reasons     []ReasonCount `json:"reasons,omitempty"`
	// Sampled is how many members were played, where those were not all: the numbers above add up to it, and are not
	// made larger. 0: all were.
	Sampled int64 `json:"sampled,omitempty"`
}

// ReasonCount says how many members a sentence is about.
type ReasonCount struct {
	Reason string `json:"reason"`
	Tasks  int64  `json:"tasks"`
}

// Preview is a frozen membership with what an operation over it would do. Its token starts the operation.
type Preview struct {
	Token     string     `json:"token"`
	Selection string     `json:"selection"` // in words
	Action    Action     `json:"action"`
	Tasks     int64      `json:"tasks"`
	Sample    []Member   `json:"sample"` // the first ten
	Rehearsal *Rehearsal `json:"rehearsal,omitempty"`
	// Changes are what a patch makes of the inputs of the first members.
	Changes []InputChange `json:"changes,omitempty"`
	Expires time.Time     `json:"expires"`
}

// InputChange is the input of a task before and after a patch.
type InputChange struct {
	TaskRef
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	Why    string          `json:"why,omitempty"` // it is skipped, or too large to show, so that both are absent
}

// OperationState is where an operation is in its life.
type OperationState string

// The states of an operation.
const (
	OperationPreview OperationState = "preview" // frozen, not started
	OperationRunning OperationState = "running"
	OperationPaused  OperationState = "paused"  // by an operator
	OperationBraked  OperationState = "braked"  // stopped by itself: too many of a wave failed with one fingerprint
	OperationStopped OperationState = "stopped" // by an operator, for good
	OperationDone    OperationState = "done"    // every member has an outcome
)

// StartedOperations are the states of operations that were started: what lists show unless they are asked for previews.
func StartedOperations() []OperationState {
	return []OperationState{OperationRunning, OperationPaused, OperationBraked, OperationStopped, OperationDone}
}

// Operation is one action over many tasks, in waves.
type Operation struct {
	ID        string         `json:"id"`
	Action    Action         `json:"action"`
	Selection string         `json:"selection"` // in words
	Group     string         `json:"group,omitempty"`
	Request   Request        `json:"request"` // what is asked of each
	State     OperationState `json:"state"`
	Why       string         `json:"why,omitempty"` // one sentence: why it is braked, paused or stopped
	Tasks     int64          `json:"tasks"`         // frozen total
	Tally     Tally          `json:"tally"`
	Since     Count          `json:"since"`            // tasks that joined the group after the freeze, and are not touched
	Wave      int            `json:"wave"`             // 1, 2, 3 …
	Rate      int            `json:"rate"`             // tasks a second at most; 0: the pace of all operations that have none
	BrakePct  int            `json:"brake"`            // a wave stops the operation when more than this percentage fails alike
	By        string         `json:"by"`               // the actor
	Reason    string         `json:"reason"`           //
	Created   time.Time      `json:"created"`          //
	Started   time.Time      `json:"started,omitzero"` // zero: not yet
	Ended     time.Time      `json:"ended,omitzero"`   // zero: not yet
	Expires   time.Time      `json:"-"`                // of a preview
	Rehearsal *Rehearsal     `json:"rehearsal,omitempty"`
	Epoch     int64          `json:"-"` // fence of the runner: rises with every change of leader
}

// AuditEntry is one mutation, carried out or refused.
type AuditEntry struct {
	Number  int64           `json:"number"` // rises; not without gaps
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Role    Role            `json:"role"`
	From    string          `json:"from,omitempty"`
	Via     string          `json:"via"`
	Action  string          `json:"action"` // an Action, or operation.start, token.create, pause.set …
	Target  string          `json:"target"` // task/<type>/<id>, operation/<id>, token/<name> …
	Reason  string          `json:"reason,omitempty"`
	Before  json.RawMessage `json:"before,omitempty"`
	After   json.RawMessage `json:"after,omitempty"`
	Outcome string          `json:"outcome" doc:"done, refused: …, failed: … or unknown: …; of a request to a task asked: <partition>.<position> until its owner has answered; asked, or nothing, until it is known"`
	Key     string          `json:"key,omitempty"`
	Request string          `json:"request,omitempty"` // id of the HTTP request
}

// AuditFilter selects entries of the audit trail, newest first. Empty fields select all.
type AuditFilter struct {
	Actor  string
	Action string
	Target string // a prefix
	Whole  bool   // Target is all of it
	From   time.Time
	To     time.Time
	Limit  int
	After  string
}

// AuditPage is one page of the audit trail.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitempty"`
}

// Token is a bearer token of the HTTP API. Its secret is shown once and stored as a SHA-256.
type Token struct {
	ID       string    `json:"id"` // its public part
	Name     string    `json:"name"`
	Role     Role      `json:"role"`
	Labels   string    `json:"labels,omitempty" doc:"key=value, joined by commas: what it submits has these, and no other values of their keys; of a client, it knows of no other tasks; duly-ids=… says what its ids begin with"`
	Hash     []byte    `json:"-"`
	Created  time.Time `json:"created"`
	By       string    `json:"by"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
	Revoked  time.Time `json:"revoked,omitzero"` // zero: not
	LastUsed time.Time `json:"last_used,omitzero"`
}

// IDsLabel is the key of a label of a token that says what the ids begin with that it submits: those of others it can neither
// take nor, as a client, know. It is no label of tasks.
const IDsLabel = "duly-ids"

// IDsBytesMax bounds its value, so that what Duly makes behind it is an id.
const IDsBytesMax = 20

// Note is what an operator wrote about a task, a failure group or an operation.
type Note struct {
	Number int64     `json:"number"`
	Target string    `json:"target"` // as in AuditEntry, or group/<id>
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Text   string    `json:"text"`
}

// Pause holds back new commands of what it names, until it is lifted. Fields that are empty match everything.
type Pause struct {
	ID     string    `json:"id"`
	Type   string    `json:"type,omitempty"`
	Step   string    `json:"step,omitempty"` // with Type only
	Agent  string    `json:"agent,omitempty"`
	Label  string    `json:"label,omitempty"` // key=value
	Until  time.Time `json:"until,omitzero"`  // it lifts itself then; zero: never
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`

	EvenIfUnknown bool   `json:"-"` // set it although no stored plan has its names
	Key           string `json:"-"` // Idempotency-Key: the same key is carried out once
}

// Covers reports whether the pause holds the do commands of an agent for a step of a task.
func (p *Pause) Covers(typ, step, agent string, labels []core.Label) bool {
	return (p.Type == "" || p.Type == typ) && (p.Step == "" || p.Step == step) && (p.Agent == "" || p.Agent == agent) &&
		(p.Label == "" || slices.ContainsFunc(labels, func(l core.Label) bool { return l.String() == p.Label }))
}

// Partition is one partition as an operator sees it.
type Partition struct {
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`
	Epoch     int64  `json:"epoch"`
	Lag       uint64 `json:"lag"` // messages of the task stream not committed yet
	Pinned    string `json:"pinned,omitempty"`
	InFlight  Count  `json:"in_flight"`

	LagUnknown       bool      `json:"lag_unknown,omitempty"`  // no reader has been seen within the hour
	OwnerGone        bool      `json:"owner_gone,omitempty"`   // the owner is not live, and no other has taken it over yet
	PinIgnored       bool      `json:"pin_ignored,omitempty"`  // it is pinned to a node that is not live
	SteppedDown      string    `json:"stepped_down,omitempty"` // node that has stepped down from it
	SteppedDownUntil time.Time `json:"stepped_down_until,omitzero"`

	MayUnpin    bool `json:"-"` // it is pinned, or a node has stepped down from it
	MayStepDown bool `json:"-"` // another node would take it

	Chain ChainEnd `json:"chain,omitzero"`
}

// ChainEnd is how far the hash chain of a partition's commits is.
type ChainEnd struct {
	Height int64     `json:"height"`         // of its last link
	Head   int64     `json:"head,omitempty"` // height of the newest head that is kept outside the database; 0: there is none
	HeadAt time.Time `json:"head_at,omitzero"`
	Signed bool      `json:"signed,omitempty"` // that head is signed
}

// Agent is one agent as an operator sees it.
type Agent struct {
	Name      string    `json:"name"`
	Instances int       `json:"instances"` // that answer now; -1: not known
	Gone      bool      `json:"gone" doc:"no instance takes its commands: tasks in flight wait for one, or all that had announced themselves have left; an agent that announces none may work"`
	Waiting   Count     `json:"waiting"` // tasks that are parked until it has room, is let go on, or its breaker lets one through
	Paused    bool      `json:"paused"`
	Breaker   Breaker   `json:"breaker"`
	Calls     int64     `json:"calls"`  // that its instances count since their start
	Errors    int64     `json:"errors"` // of these
	LatencyMS float64   `json:"latency_ms,omitempty" doc:"of a call, in the mean; absent: none was answered"`
	Since     time.Time `json:"since,omitzero"` // start of its oldest instance
	// InstancesMore says that not all instances were asked.
	InstancesMore bool `json:"instances_more,omitempty" doc:"there may be more instances, calls and errors"`

	// What waits because no instance takes commands, beside what is parked. None of these attempts is spent.
	Unserved  Count     `json:"unserved" doc:"tasks in flight whose command no instance takes"`
	AwaySince time.Time `json:"away_since,omitzero" doc:"since when an owner of such tasks has seen that; absent: none of them waits"`

	// Of all that wait for it, parked or in flight.
	FirstDeadline time.Time     `json:"first_deadline,omitzero" doc:"the earliest of those that were counted: until then none of them is undone for waiting"`
	Steps         []WaitingStep `json:"steps" doc:"that wait for it, the most first, 32 at most"`
	StepsMore     bool          `json:"steps_more,omitempty" doc:"others may wait for it, too"`
}

// WaitingStepsMax bounds the steps that an agent's view names.
const WaitingStepsMax = 32

// WaitingStep is a step of a plan that tasks wait at.
type WaitingStep struct {
	Type  string `json:"type"`
	Step  string `json:"step" doc:"of parked tasks whose plan has several steps at the agent: all of these"`
	Tasks int64  `json:"tasks"`
	// AtLeast is of those that were counted up to a bound.
	AtLeast   bool `json:"at_least,omitempty" doc:"there may be more than tasks"`
	NotServed bool `json:"not_served,omitempty" doc:"instances have answered that they do not serve the step"`
}

// Word is the step with its type, and whether the agent serves it.
func (s WaitingStep) Word() string {
	if s.NotServed {
		return say.Of("agents.not-served", "type", s.Type, "step", s.Step)
	}
	return s.Type + "/" + s.Step
}

// Overview is the first screen: what needs an operator, and how the engine does.
type Overview struct {
	At         time.Time   `json:"at"` // when it was last looked
	Errors     Count       `json:"errors"`
	Groups     Count       `json:"groups"`     // of them
	AtRisk     Count       `json:"at_risk"`    // unfinished tasks whose deadline is within 5 minutes
	Needs      []Need      `json:"needs"`      // what holds tasks up first, then what has come of it, each by how many tasks it concerns
	Operations []Operation `json:"operations"` // that are braked, paused or running
	// OperationsMore says that Operations are not all.
	OperationsMore bool         `json:"operations_more,omitempty" doc:"there are others that are not over"`
	Troubles       []Trouble    `json:"troubles"` // of this node, as /readyz has them
	Signals        Signals      `json:"signals"`
	Counts         []StateCount `json:"counts"`
}

// Signals are the signal steps that wait for an answer, of a person or of a system.
type Signals struct {
	Tasks Count        `json:"tasks"` // that have such a step
	Steps Count        `json:"steps"`
	Since *time.Time   `json:"since"` // since when the one that waits longest; null: none waits
	Near  Count        `json:"near"`  // tasks whose answer has to come within the time that makes a task at risk
	Next  []OpenSignal `json:"next"`  // those whose answer has to come first
}

// OpenSignal is a task that waits for an answer.
type OpenSignal struct {
	Type  string    `json:"type"`
	ID    string    `json:"id"`
	Steps []string  `json:"steps"` // that wait
	Since time.Time `json:"since"` // since when the first of them
	Due   time.Time `json:"due"`   // until when the first answer has to come
}

// Sample is what the partitions' rows say about throughput, for plots: totals, of which the reader takes differences.
type Sample struct {
	At      time.Time `json:"at"`
	Created int64     `json:"created"` // tasks ever created
	Ended   int64     `json:"ended"`   // endings ever: a task that is resubmitted ends again
	Backlog Count     `json:"backlog"` // unfinished tasks, counted
	P50MS   float64   `json:"p50_ms"`  // creation to end, of the newest endings; 0: there are none
	P99MS   float64   `json:"p99_ms"`
	Gap     bool      `json:"gap,omitempty"` // nothing was looked at for a while before it
}

// StateCount is how many tasks are in a state.
type StateCount struct {
	State core.State `json:"state"`
	Tasks Count      `json:"tasks"`
}

// Trouble is a condition of a node that does not hold.
type Trouble struct {
	Name  string    `json:"name"`
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
}
