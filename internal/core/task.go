package core

import (
	"crypto/sha256"
	"time"
)

// Instant is a point in time in microseconds since the Unix epoch, UTC: the
// resolution that every store keeps, so that a replayed task equals the live
// one. The zero Instant means "none".
type Instant int64

// InstantOf cuts t to microseconds.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time returns the instant as a time.Time in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Add moves the instant by d, cut to microseconds.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d/time.Microsecond) }

// Elapsed reports whether d has passed from i to now. It has if the clock was set back meanwhile: how much has is not known.
func (i Instant) Elapsed(now Instant, d time.Duration) bool { return now >= i.Add(d) || now < i }

// Sub is the duration from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i-j) * time.Microsecond }

// State is where a task is in its life.
type State string

// The states of a task.
const (
	StatePending    State = "pending"    // stored, unclaimed or parked
	StateProcessing State = "processing" // a step runs or waits for its next attempt
	StateProcessed  State = "processed"  // every step is done; the end
	StateUndoing    State = "undoing"    // being undone
	StateUndone     State = "undone"     // nothing of it is left; the end
	StateError      State = "error"      // operator action required; the end unless resubmitted
)

// Ended reports whether the state is one a task rests in: processed, undone or
// error.
func (s State) Ended() bool {
	return s == StateProcessed || s == StateUndone || s == StateError
}

// StepStatus is where a step is in its life.
type StepStatus uint8

// The states of a step.
const (
	StepWaiting StepStatus = iota // not begun, or between two attempts
	StepRunning                   // its do command is out
	StepDone
	StepFailed  // refused, or its attempts are exhausted
	StepUndoing // its undo command is out, or between two attempts of it
	StepUndone
	StepSkipped // never begun in a task that was undone, or not wanted: its condition is false, or it failed and is optional
)

var stepStatusNames = [...]string{"waiting", "running", "done", "failed", "undoing", "undone", "skipped"}

// String is the word for the status that SQL, HTTP and the commands show.
func (s StepStatus) String() string {
	if int(s) < len(stepStatusNames) {
		return stepStatusNames[s]
	}
	return "unknown"
}

// over reports whether what comes after the step need not wait for it: it is done, or not wanted.
func (s StepStatus) over() bool { return s == StepDone || s == StepSkipped }

// Task is one task in memory. Its owner alone changes it, through [Apply].
type Task struct {
	Partition   int
	Number      int64 // given by the partition's owner, in the order in which tasks are made
	ID          string
	Type        string
	PlanVersion int64 // 0: the plan was unknown at submission
	Input       []byte
	Earlier     [][]byte // inputs before the edits of this round, the oldest first; see StepState.Input
	InputHash   []byte   // of the submission, also after an edit; see HashInput
	ReplyTo     string   // the submitter's private status subject; may be empty
	Trace       string   // W3C traceparent; may be empty
	Labels      []Label
	Origin      uint64 // position of the submission in the task stream

	StartAt    Instant // nothing begins before it; 0: at once
	Parent     int64   // number of the task that this one is a part of; 0: none
	ParentStep int     // index of the step of it
	ChildIndex int     // which of the step's children

	State     State
	Seq       int64   // number of the newest journal row
	Round     int     // rises when an operator resubmits after an undo
	Deadline  Instant // the task's own complete-by
	Bound     Instant // the complete_by of its row: never above the truth of NextDue
	Failures  int     // attempts that failed or expired
	LockedBy  string  // the owner, while claimed
	WaitsFor  string  // agent that had no room for the task when it was parked, or its plan: see UnreadablePlan.Awaited
	CreatedAt Instant
	UpdatedAt Instant
	EndedAt   Instant
	EndNumber int64 // partition-wide number of its ending, given by the owner; 0 while unended

	WentBackAt Instant // when it was last noted that steps may have run which the journal does not know; 0: never
	LostUntil  Instant // after this no command of the time that the database has lost can take effect; 0: none was lost

	TakenUp   int64 // the newest journal row that resubmitted it, accepted a step or moved it to another version; 0: none
	Reopened  bool  // a step is to be done again in this round though others that come after it are done
	BornAgain bool  // the database knew nothing of it: its keys may have been used since it was submitted
	Asked     bool  // its undo, or its end, is what a person or its caller asked for, and no failure

	FailedStep int    // 1 + index of the step that failed last in this round; 0: none
	Why        string // text of the newest failure or reason that says why the task is where it is
	Result     []byte // of a processed task whose plan has one: JSON

	Steps []StepState // one per step of the plan; nil when the plan was unknown
}

// StepState is what the owner knows of one step.
type StepState struct {
	Status  StepStatus
	kind    stepKind
	begun   bool    // it has begun in this round, so that its expressions have been asked
	Input   uint8   // the input of its do: 1 + index of Task.Earlier; 0: the task's present one
	Copy    uint32  // of the command out, or of the next retry: how many copies its owner sent before, under its number; not journalled
	Attempt int     // attempts of the present do or undo
	Out     int64   // number of the command now out, a journal row's; 0: none is out
	Due     Instant // of the command out: its complete-by; otherwise when the next attempt may leave
	Effect  StepEffect
	Result  []byte // what do answered; of a signal that came early: its payload

	// A step that waits for its agent. What its retries come to is not journalled.
	Awaits int64   // journal row by which the wait began, under whose number its retries leave; 0: it does not wait
	Said   int16   // the code by which the wait began, of an agent that could not take the command; 0: none listens
	Tries  int     // retries of the wait; not journalled
	Heard  Instant // when the retry that is out counts as heard; not journalled

	// Its undo.
	Since          Instant // when its first attempt left; 0: none has
	Used, UndoUsed Instant // when the first do, and undo, left that an agent may have acted on; 0: none has; of a signal: since when it is waited for
	Alerted        bool    // an operator knows that it is in trouble
	Left           string  // why it gave up; empty: it has not

	own *StepOwn
}

// undoAwaits reports whether the undo of the step waits for its agent.
func (s *StepState) undoAwaits() bool { return s.Awaits != 0 && s.Status == StepUndoing }

// again reports whether the command out is a retry that the journal does not know of.
func (s *StepState) again() bool { return s.Out != 0 && s.Out == s.Awaits }

// undoOut reports whether an undo of the step is out.
func (s *StepState) undoOut() bool { return s.Out != 0 && s.Status == StepUndoing }

// Out returns the index of the first step whose command is at an agent, or -1.
func (t *Task) Out() int {
	for i := range t.Steps {
		if t.Steps[i].Out != 0 && t.Steps[i].kind == kindCall {
			return i
		}
	}
	return -1
}

// OutSeq returns the index of the step that is out under the number of that journal row, or -1: a command at an agent, a
// wait, a signal, children.
func (t *Task) OutSeq(seq int64) int {
	for i := range t.Steps {
		if t.Steps[i].Out == seq && seq != 0 {
			return i
		}
	}
	return -1
}

// working reports whether a do is at an agent.
func (t *Task) working() bool {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Out != 0 && s.kind == kindCall && s.Status == StepRunning {
			return true
		}
	}
	return false
}

// InputOf is the input that the commands of a step carry: an undo carries that of the do.
func (t *Task) InputOf(step int) []byte {
	if own := t.Steps[step].own; own != nil && own.Given != nil && t.Steps[step].kind != kindEach {
		return own.Given
	}
	if n := t.Steps[step].Input; n > 0 {
		return t.Earlier[n-1]
	}
	return t.Input
}

// Seen is the input that the expressions of a step see: after an edit the one that it began with, unless it begins again.
func (t *Task) Seen(step int) []byte {
	s := &t.Steps[step]
	if again := s.Status == StepWaiting && !s.Effect.lost() && !(s.kind.parent() && s.Effect.Possible()); s.Input == 0 || again {
		return t.Input
	}
	return t.Earlier[s.Input-1]
}

// Inputs are those that expressions may still be asked of: the present one, and what steps that are not done see.
func (t *Task) Inputs() [][]byte {
	all := [][]byte{t.Input}
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Input > 0 && !s.Status.over() {
			all = append(all, t.Seen(i))
		}
	}
	return all
}

// HashInput is the SHA-256 of a task's type and input, by which a submission under
// a taken id is told from the one that took it. White space between values does not count.
func HashInput(taskType string, input []byte) []byte {
	h := sha256.New()
	_, _ = h.Write([]byte(taskType))
	_, _ = h.Write([]byte{0})
	Compact(input, func(part []byte) { _, _ = h.Write(part) })
	return h.Sum(nil)
}

// Compact gives out a JSON text in parts, without the white space between its values. What is no JSON comes out somehow.
func Compact(text []byte, yield func(part []byte)) {
	from, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			if i > from {
				yield(text[from:i])
			}
			from = i + 1
		}
	}
	if from < len(text) {
		yield(text[from:])
	}
}
