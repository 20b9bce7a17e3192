package core

import (
	"fmt"
	"time"
)

// Submission is one request to run a task, as ingest took it.
type Submission struct {
	Type        string
	ID          string  // the caller's; unique across types
	PlanVersion int64   // fixed by ingest; 0: the owner takes the highest
	Unchecked   bool    // it came by the stream endpoint: no door has looked at its PlanVersion, or at its time
	Input       []byte  // JSON, passed through as bytes
	CompleteBy  Instant // of the whole task; 0: the plan's time, see Plan.DeadlineOf
	StartAt     Instant // nothing of it begins before; 0: at once
	ReplyTo     string  // private status subject; may be empty
	Trace       string  // W3C traceparent; may be empty
	Labels      []Label // see CheckLabels; no part of the input's hash
	At          Instant // when ingest took it
}

// Command is one call to an agent.
type Command struct {
	Undo       bool
	Agent      string
	Partition  int
	Number     int64 // of the task in its partition
	Seq        int64 // journal row that issued it; with Partition, Number and Commit it is the fence of the reply
	Commit     int64 // the commit that wrote that row: another life of the database wrote it in another
	Copy       uint32
	Task       string
	Type       string
	Step       string
	Attempt    int
	Round      int
	CompleteBy Instant
	Left       time.Duration // time left when it was sent; the agent uses the earlier of both
	Input      []byte        // JSON
	Results    []StepResult  // of earlier steps that are done, in the plan's order
	Result     []byte        // of an undo: what do answered, if it did
	Trace      string
}

// Key names the effect of a step: the same on every attempt of do and undo.
func (c *Command) Key() string { return Key(c.Task, c.Step, c.Round) }

// Key is the idempotency key of a step: <task>/<step>/<round>.
func Key(task, step string, round int) string {
	if round >= 0 && round < 10 { // nearly always; fmt costs ten times as much
		return task + "/" + step + "/" + string(rune('0'+round))
	}
	return fmt.Sprintf("%s/%s/%d", task, step, round)
}

// AppendResults appends the results of those steps of a set that are done, in the plan's order: see [Plan.Carried].
func (t *Task) AppendResults(results []StepResult, p *Plan, steps StepSet) []StepResult {
	for i := range t.Steps {
		if t.Steps[i].Status == StepDone && steps.Has(i) {
			results = append(results, StepResult{Step: p.Steps[i].Name, Result: t.Steps[i].Result})
		}
	}
	return results
}

// StepResult is what one step answered.
type StepResult struct {
	Step   string
	Result []byte // JSON
}

// Reply is an agent's answer to one command.
type Reply struct {
	Partition int
	Number    int64
	Seq       int64
	Token     Token  // what the command's reply subject carried
	Code      int    // 0 = success, else as Nats-Service-Error-Code
	Error     string // as Nats-Service-Error
	Result    []byte // JSON
	From      string // the instance of the agent that answers, as it says; may be empty
}

// Token shows that a reply answers one copy of one command as one commit issued it. The adapter
// that sends the command makes it; the owner of the task has it checked. It begins with the number of the copy.
type Token [12]byte

// TokenOf is the token of the nth copy of a command, without a proof.
func TokenOf(nth uint32) Token {
	return Token{byte(nth >> 24), byte(nth >> 16), byte(nth >> 8), byte(nth)}
}

// Copy is which copy of its command the token is of.
func (t *Token) Copy() uint32 {
	return uint32(t[0])<<24 | uint32(t[1])<<16 | uint32(t[2])<<8 | uint32(t[3])
}

// Codes of failed replies with a meaning of their own; they are HTTP's.
const (
	CodeTimeout    = 408 // tried again
	CodeAbsent     = 404 // of a probe: there is no effect
	CodeGone       = 410 // the key carries a tombstone; final
	CodeRefused    = 422 // what Refuse answers; final
	CodeTooEarly   = 425 // the same key is at work elsewhere; see BusyCode
	CodeTooMany    = 429 // the agent is full; see BusyCode
	CodeFailed     = 512 // the same would fail again, and an effect is not ruled out: undone
	CodeAgentError = 500 // any other error of a handler; tried again

	CodeUnable      = 501 // the agent does not serve the step or cannot read the command; see BusyCode
	CodeUnavailable = 503 // the agent stops; see BusyCode
)

// FinalCode reports whether a failed reply is final: 4xx but not 408, 425, 429.
func FinalCode(code int) bool {
	return code >= 400 && code < 500 && code != CodeTimeout && code != CodeTooEarly && code != CodeTooMany
}

// LastCode reports whether a do that failed so is not tried again: FinalCode, or failed for good.
func LastCode(code int) bool { return FinalCode(code) || code == CodeFailed }

// BusyCode reports whether a failed reply says that the agent cannot take the command
// now: an earlier one is at work (425), it is full (429), it does not know how (501), or it stops (503). No service has
// judged the command, so that is no attempt: the step waits for an agent that can. An
// effect is not ruled out: a handler may have tried before it answered so.
func BusyCode(code int) bool {
	return code == CodeTooEarly || code == CodeTooMany || code == CodeUnable || code == CodeUnavailable
}

// Ending is the news that a task ended, told durably at least once.
type Ending struct {
	Partition int
	EndNumber int64
	ID        string
	Type      string
	State     State  // processed, undone or error
	Seq       int64  // journal row that ended it
	Step      string // step that failed, if one did
	Error     string // text of that failure or the reason given
	Labels    string // as FormatLabels has them
	CreatedAt Instant
	At        Instant
	ReplyTo   string // where the submitter hears of it; only for what a takeover tells again, not on the wire
}

// StatusReceived, StatusCreated and StatusRefused are told besides the states of a task.
const (
	StatusReceived = "received" // stored; will end
	StatusCreated  = "created"  // the event of that, where labels ask for it
	StatusRefused  = "refused"  // never became a task: bad input, or the id is taken by another input
)

// Status is one message to a submitter's private subject, or about a refused
// submission.
type Status struct {
	ID     string
	Type   string
	Status string // StatusReceived, StatusRefused or a State
	Error  string
	Code   int // of a refusal, as HTTP: 400, 409, 413
	At     Instant
}

// ControlNumbersMax bounds the tasks that one control message names by number.
const ControlNumbersMax = 1000

// Control is one request about a task that exists, from the supervisor or a
// person.
type Control struct {
	Kind EventKind // Overdue, Cancel, Undo, Resubmit, Edit, Accept, Resolve, Extend, Signal
	// Numbers are of Overdue, and of a request about many tasks of the partition at once (Undo, Resubmit, Edit, Accept,
	// Resolve, Migrate): then Seqs has the IfSeq of each, and there is no ID. Of Migrate there are no Seqs: a task that
	// runs moves on before it is asked, and one that is asked twice is of the version already.
	Numbers []int64
	Seqs    []int64
	// Steps are of Overdue: of each task the step whose time is over, as its sender saw it; empty: the task's own is. There
	// may be none: an owner looks at all of a task by its own clock.
	Steps  []string
	ID     string // of one task
	Type   string // the task's, or that of an id that is not known yet
	Actor  string
	Reason string
	Step   string
	Until  Instant
	As     State
	IfSeq  int64  // of one task: refuse when its newest journal row is another; 0: whatever it is
	Input  []byte // of Edit: JSON
	Result []byte // of Accept and Signal: JSON
	Ask    string // of Signal: the token of the ask that it answers, see [Task.AskToken]; empty: the only one

	Found ProbeOutcome // see Event
	// Asked is when it was asked first: what its sender says of a service is no younger, however often it is sent
	// again. 0: when it was stored.
	Asked Instant

	EvenIfUnknown bool // of Cancel: also of an id that is not known yet

	Version int64 // of Migrate: of the plan
}
