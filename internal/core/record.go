package core

// Kind says what a journal row records.
type Kind string

// The kinds of journal rows. A row may also issue a command: see Record.Next.
const (
	KindSubmitted    Kind = "submitted"     // the task was born
	KindStarted      Kind = "started"       // a waiting attempt left, a parked task was claimed, or the agent that Step waited for is there
	KindDone         Kind = "done"          // do answered
	KindRefused      Kind = "refused"       // do answered: final
	KindFailed       Kind = "failed"        // do answered: may be tried again
	KindOverdue      Kind = "overdue"       // do did not answer by its complete-by
	KindUnserved     Kind = "unserved"      // no agent takes the command, and the step waits for one; not an attempt
	KindUndone       Kind = "undone"        // undo answered
	KindUndoRefused  Kind = "undo_refused"  // undo answered: final
	KindUndoFailed   Kind = "undo_failed"   // undo answered: may be tried again
	KindUndoOverdue  Kind = "undo_overdue"  // undo did not answer by its complete-by
	KindUndoUnserved Kind = "undo_unserved" // no agent takes the undo, and it waits for one; not an attempt
	KindUndoGaveUp   Kind = "undo_gave_up"  // the undo of the step has used its attempts or its time
	KindExpired      Kind = "expired"       // the task's deadline passed between two attempts
	KindCancelled    Kind = "cancelled"
	KindUndoAsked    Kind = "undo_asked"
	KindResubmitted  Kind = "resubmitted" // with Input: an edit
	KindAccepted     Kind = "accepted"    // an operator says that the step is done, and with which result
	KindResolved     Kind = "resolved"
	KindExtended     Kind = "extended"
	KindPoisoned     Kind = "poisoned"
	KindAsked        Kind = "asked"     // the supervisor asked too early: the task's bound was raised
	KindSkipped      Kind = "skipped"   // the condition of the step is false
	KindSignalled    Kind = "signalled" // a signal came before its step began: its payload is kept
	KindResult       Kind = "result"    // every step is done or skipped, and this is the task's own result
	KindMigrated     Kind = "migrated"  // from now on the task is of another version of its plan; see migrate.go
	KindLate         Kind = "late"      // do answered after its complete-by: its effect is known, or that there is none
	KindUndoLate     Kind = "undo_late" // undo answered after its complete-by: undone
	KindProbed       Kind = "probed"    // what became of a do that was not answered; with a status other than done it is evidence; see probe.go
	KindWentBack     Kind = "went_back" // the database went back: steps may have run that are not in the journal
)

// rowKinds are all kinds, and which of them say nothing of how long steps take: what a person or a fault did.
var rowKinds = []struct {
	kind     Kind
	disturbs bool
}{
	{KindSubmitted, false}, {KindStarted, false}, {KindDone, false}, {KindRefused, false}, {KindFailed, false}, {KindOverdue, false},
	{KindUnserved, false}, {KindUndone, false}, {KindUndoRefused, false}, {KindUndoFailed, false}, {KindUndoOverdue, false},
	{KindUndoUnserved, false}, {KindUndoGaveUp, false}, {KindExpired, false}, {KindCancelled, true}, {KindUndoAsked, true},
	{KindResubmitted, true}, {KindAccepted, true}, {KindResolved, true}, {KindExtended, true}, {KindPoisoned, true}, {KindAsked, false},
	{KindSkipped, false}, {KindSignalled, false}, {KindResult, false}, {KindMigrated, true}, {KindLate, false}, {KindUndoLate, false},
	{KindProbed, false}, {KindWentBack, true},
}

// Kinds are all kinds of journal rows. A test of each place that tells kinds apart goes through them.
func Kinds() []Kind {
	all := make([]Kind, len(rowKinds))
	for i := range rowKinds {
		all[i] = rowKinds[i].kind
	}
	return all
}

// Disturbs reports whether a row of the kind says that a person or a fault stepped in, so that what follows says nothing of
// how long steps take by themselves. A kind that is not known does.
func (k Kind) Disturbs() bool {
	for i := range rowKinds {
		if rowKinds[i].kind == k {
			return rowKinds[i].disturbs
		}
	}
	return true
}

// Record is one journal row: what one event changed in one task, enough to
// change a replayed task in the same way.
type Record struct {
	Seq    int64 // 1, 2, 3 … within the task
	Kind   Kind
	At     Instant
	Actor  string
	Reason string
	State  State // of the task, after this row
	Round  int   // of the task, after this row

	Step                 int        // step whose attempt ended or that was reset; -1: none
	StepStatus           StepStatus // of Step, after this row
	Attempt              int        // of Step, after this row; of Next when Step is -1
	Code                 int        // of the failure
	Error                string     // text of the failure, as bytes in SQL
	Result               []byte     // of a do that is done, also late, or was accepted; of a signal; of the task
	EffectsPossibleUntil Instant    // of Step, after this row, when it changed; of WentBack: of all steps

	Next        int     // step whose command this row issues; -1: none
	NextAttempt int     // attempt number of that command
	Undo        bool    // the command is an undo
	Due         Instant // complete-by of that command; without Next, when the next attempt of Step may leave, or, of one that is running, until when its agent is asked
	Deadline    Instant // of the task, when this row set it
	Input       []byte  // of the task from this row on, when an edit changed it; of a row that begins Next: its own input, or the list of its children
}
