package core

import (
	"errors"
	"fmt"
	"time"
)

// Errors of the state store that its users tell apart.
var (
	// ErrRowRefused: the database refuses a row of the batch (SQLSTATE classes
	// 22, 23, 54); nothing of the batch is committed. The owner halves the batch.
	ErrRowRefused = errors.New("row refused by the database")
	// ErrBatchRefused: the batch as a whole is too large or too slow for the
	// database; nothing of it is committed, and no row is to blame. The owner splits
	// it. Never said of a batch of one task.
	ErrBatchRefused = errors.New("batch refused by the database as too large or too slow")
	// ErrOvertaken: a partition's row is not as its owner left it. Another node has
	// taken the partition over, or the database went back.
	ErrOvertaken = errors.New("its row is not as this owner left it")
	// ErrForeignRow: a journal row of another commit stands under our epoch;
	// nothing is committed. A bug: stop and report.
	ErrForeignRow = errors.New("foreign journal row under our epoch")
	// ErrNotFound: no such task, plan or partition.
	ErrNotFound = errors.New("not found")
	// ErrCursor is wrapped by the error about a cursor that no page told.
	ErrCursor = errors.New("cursor of a page refused")
	// ErrPlanConflict: this name and version is stored with another content.
	ErrPlanConflict = errors.New("plan version is stored with another content")
)

// UnreadablePlan is a stored plan that this binary cannot read: a newer one stored it.
type UnreadablePlan struct {
	Name       string
	Version    int64
	CompleteBy time.Duration // of its tasks, as far as it can be read; 0: it cannot
	QueueFor   time.Duration // likewise
	Err        error         // what it does not know, by name
}

// Error names the plan and what of it is not known.
func (u UnreadablePlan) Error() string {
	return fmt.Sprintf("plan %s version %d cannot be read by this version of Duly, a newer one stored it: %v", u.Name, u.Version, u.Err)
}

// Unwrap returns what is not known.
func (u UnreadablePlan) Unwrap() error { return u.Err }

// UnreadablePlans are all of them, never none.
type UnreadablePlans []UnreadablePlan

// Error names each.
func (all UnreadablePlans) Error() string {
	text := all[0].Error()
	for _, u := range all[1:] {
		text += "; " + u.Error()
	}
	return text
}

// Newest returns the highest version of a type that cannot be read; 0: none.
func (all UnreadablePlans) Newest(name string) (newest int64) {
	for _, u := range all {
		if u.Name == name {
			newest = max(newest, u.Version)
		}
	}
	return newest
}

// Find returns that version of a type, nil if it is not among them.
func (all UnreadablePlans) Find(name string, version int64) *UnreadablePlan {
	for i := range all {
		if all[i].Name == name && all[i].Version == version {
			return &all[i]
		}
	}
	return nil
}

// BatchBytesMax is how many bytes of tasks a batch should hold at most, by
// [TaskWrite.Size]: CockroachDB takes messages of 16 MiB.
const BatchBytesMax = 8 << 20

// Batch is what one group commit writes: transitions of many tasks of the
// partitions one process owns. It commits as a whole, less the partitions
// whose row is not as this owner left it and the births whose id is taken.
type Batch struct {
	ID         int64  // commit_id, unique; the same when a batch is sent again; rises within an epoch
	Node       string // who commits
	Partitions []PartitionWrite
	Writes     []TaskWrite // at most one per task
}

// PartitionWrite moves one partition's own row. Every partition that has a
// write in the batch has one; one may come alone, to move a cursor.
type PartitionWrite struct {
	Partition     int
	Epoch         int64  // ours; the commit leaves the partition out when the row has another
	After         int64  // the commit before this one, or the takeover: likewise
	Cursor        uint64 // last contiguous committed position of the task stream
	ControlCursor uint64 // the same of the control stream
	// When the streams took the messages at the cursors; 0: not known. A stream that was
	// restored, and has grown since, has others there.
	CursorStored, ControlStored Instant
	NextNumber                  int64 // next task number
	NextEnd                     int64 // next end number
	Told                        int64 // every ending up to this end number is stored in the event stream
}

// TaskWrite is one task's part of a batch.
type TaskWrite struct {
	Task    *Task
	Birth   bool // insert the row; a taken id makes it a Duplicate
	Row     bool // update the row (where its seq is below Task.Seq)
	Records []Record
}

// Size is about how many bytes the write takes on its way to the database.
func (w *TaskWrite) Size() int {
	const row, record, label = 256, 192, 32 // what is as large whatever is in it
	n := 0
	if t := w.Task; w.Birth || w.Row {
		n += row + len(t.ID) + len(t.Type) + len(t.InputHash) + len(t.ReplyTo) + len(t.Trace) + len(t.LockedBy) + len(t.WaitsFor)
		if w.Birth {
			n += len(t.Input)
			for i := range t.Labels {
				n += label + len(t.Labels[i].Key) + len(t.Labels[i].Value)
			}
		}
	}
	for i := range w.Records {
		r := &w.Records[i]
		n += record + len(r.Actor) + len(r.Error) + len(r.Reason) + len(r.Result) + len(r.Input)
	}
	return n
}

// CommitResult says what a commit left out.
type CommitResult struct {
	Fenced     []int       // partitions whose row is not as this owner left it
	Duplicates []Duplicate // births whose id was taken
}

// Duplicate is a new task that was not stored: its id is a task already.
type Duplicate struct {
	Partition int
	Number    int64 // the number that the new task would have had
	Existing  Existing
}

// Existing is what the store knows of an id that is taken.
type Existing struct {
	Partition int
	Number    int64
	ID        string
	Type      string
	InputHash []byte // nil when the id was cancelled before it was submitted
	State     State
	Reason    string
}

// Claim is what a takeover brings: who takes the partition, and what there is outside
// the database.
type Claim struct {
	Owner  string
	Commit int64   // the row's last commit from now on: no other takeover writes the same
	At     Instant // now
	// Stream names the streams as they are now: tasks/control, the identity of each.
	Stream string
	// RewoundTasks and RewoundControl: the stream ends before the partition's cursor, or
	// has another message there.
	RewoundTasks, RewoundControl bool
	End                          uint64 // position of the partition's last message in it
	// Begin and ControlBegin are where the cursors begin in streams that the row's do not
	// belong to: after what they had of the partition before it came to them.
	Begin, ControlBegin uint64
	Evidence            Evidence // of the owner that recorded last
	Former              Evidence // of an owner that lost the partition
	WentBack            bool     // the database is known to have gone back

	// Provisional: if the database went back the node looks again and takes over once more. Until it has, anything that is
	// submitted may have run: what it has seen of the stream may be old, and it may die before it looks again.
	Provisional bool
	// First is of that second takeover: the row as the first left it, and until when submissions may have run.
	First First
}

// First is what a provisional takeover left: see [Claim.Provisional].
type First struct {
	Epoch, Commit int64
	Until         uint64 // PartitionState.WentBackUntil, by what the node had seen
	Found         int64  // the epoch that it had found
}

// PartitionState is a partition's own row.
type PartitionState struct {
	Partition     int
	Owner         string
	Epoch         int64
	Cursor        uint64
	ControlCursor uint64
	CursorStored  Instant // as in PartitionWrite
	ControlStored Instant
	NextNumber    int64
	NextEnd       int64
	Told          int64
	Stream        string // identity of the task stream the cursors belong to; empty: none yet
	LastCommit    int64  // the id of the last commit, or of the takeover if there was none since
	// WentBackAt is when an owner last found that the database had gone back: it failed
	// over to a stale standby, or was restored. Tasks with numbers below WentBackNumber, and submissions up
	// to WentBackUntil, a position of the task stream, may have run in the life that is
	// lost. 0: never. [ReadNoMore]: what would have been read again is not in the stream any
	// more, and may be submitted again.
	WentBackAt     Instant
	WentBackNumber int64
	WentBackUntil  uint64

	// What a takeover found in the row before it wrote there.
	Found Found
}

// ReadNoMore is past every position of a stream: PartitionState.WentBackUntil when the
// stream, too, has lost what a database that went back would read again.
const ReadNoMore = 1<<63 - 1

// resubmitFor is how long a submitter may take to submit again what database and stream have
// both lost; after it an id counts as new.
const resubmitFor = 24 * time.Hour

// MayHaveRun reports whether steps of a task may have run that its journal does not know. What the lost life knew
// is told by the number of a task that the database still had, and by the place in the stream of one that is born
// again. Where the stream has lost messages as well, a submitter may send its own again, at another place: then
// time alone tells them from new ones.
func (s *PartitionState) MayHaveRun(t *Task) bool {
	switch {
	case t.WentBackAt >= s.WentBackAt: // never, or it is noted
		return false
	case t.Number < s.WentBackNumber:
		return true
	case s.WentBackUntil == ReadNoMore:
		return t.CreatedAt < s.WentBackAt.Add(resubmitFor)
	}
	return t.Origin <= s.WentBackUntil
}

// ChildMayHaveRun reports whether steps of a child that is born now may have run: its parent's may have, whether that is noted
// yet or not, and with them it. The parent's place in the stream, which the child has, says nothing of the child.
func (s *PartitionState) ChildMayHaveRun(parent *Task) bool {
	return s.WentBackAt != 0 && (parent.WentBackAt >= s.WentBackAt || s.MayHaveRun(parent))
}

// Found is what a takeover found in a partition's row.
type Found struct {
	Epoch, Commit int64
	Cursor        uint64
	ControlCursor uint64
	Stream        string
	WentBack      bool // there is evidence of more
	// Until is what WentBackUntil is by this takeover, where a provisional one wrote more.
	Until uint64
}

// Take changes a partition's row as a takeover does, in one transaction with reading it:
// the epoch rises above all there has been; cursors of another stream, or of one that
// ends before them, begin again; and when there is evidence of commits that the row does
// not have, it notes from when on and up to which submission that matters.
func (s *PartitionState) Take(c Claim) {
	s.Found = Found{Epoch: s.Epoch, Commit: s.LastCommit, Cursor: s.Cursor, ControlCursor: s.ControlCursor, Stream: s.Stream}
	s.Found.WentBack = c.WentBack || WentBack(s.Epoch, s.LastCommit, c.Evidence) || WentBack(s.Epoch, s.LastCommit, c.Former)
	known := s.Epoch // by this row, before the node came to it
	if c.First.Epoch == s.Epoch && c.First.Commit == s.LastCommit {
		s.WentBackUntil, known = c.First.Until, c.First.Found
	}
	tasks, control := movedStreams(s.Stream, c.Stream)
	unread := s.Found.WentBack || s.WentBackUntil > s.Cursor
	if s.Found.WentBack {
		// It rises even if the clock did not: a task that has noted the time before must note this one.
		s.WentBackAt, s.WentBackNumber = max(c.At, s.WentBackAt+1), s.NextNumber
		s.WentBackUntil = max(c.End, s.WentBackUntil)
	}
	// A takeover that this row does not know of may have found that the stream had lost messages.
	switch lost := tasks || c.RewoundTasks || max(c.Evidence.Rewound, c.Former.Rewound) > known; {
	case lost && unread:
		s.WentBackUntil = ReadNoMore
	case tasks:
		s.WentBackUntil = 0 // a position of a stream that is no more
	}
	// A provisional takeover takes everything for what may have run; Found keeps the true bound for the second one.
	if s.Found.Until = s.WentBackUntil; c.Provisional && s.Found.WentBack {
		s.WentBackUntil = ReadNoMore
	}
	// Tasks that exist are recognised by their ids. Nothing is ever skipped.
	if tasks || c.RewoundTasks {
		s.Cursor, s.CursorStored = c.Begin, 0
	}
	if control || c.RewoundControl {
		s.ControlCursor, s.ControlStored = c.ControlBegin, 0
	}
	s.Stream = c.Stream
	s.Owner, s.LastCommit = c.Owner, c.Commit
	s.Epoch = max(s.Epoch, c.Evidence.Epoch, c.Former.Epoch) + 1
}

// Evidence is what is known of a partition outside the database.
type Evidence struct {
	Partition int     `json:"partition"`
	Epoch     int64   `json:"epoch"`
	Commit    int64   `json:"commit"` // the last one known of, or the takeover
	At        Instant `json:"at"`
	// Former marks what an owner knew when it lost the partition. Its successor may have
	// found less.
	Former bool `json:"former,omitempty"`
	// Rewound is the epoch of the last takeover that read the task stream from its beginning because it had lost messages;
	// 0: none is known. A database that goes back behind it does not know that they are lost.
	Rewound int64 `json:"rewound,omitempty"`
}

// WentBack reports whether a takeover that found this epoch and commit found less in the
// database than there has been.
func WentBack(epoch, commit int64, e Evidence) bool {
	return e.Newer(Evidence{Epoch: epoch, Commit: commit})
}

// Newer reports whether e is from a later commit than o.
func (e Evidence) Newer(o Evidence) bool {
	return e.Epoch > o.Epoch || e.Epoch == o.Epoch && e.Commit > o.Commit
}

// AsOf names a partition for a read and, of its owner, the epoch and the commit of its row as the owner left it. A read
// of anything newer is refused: what an owner reads, decides and commits rests on one state. Else one that has been
// overtaken could read what its successor wrote, and commit on it when the database goes back behind both.
// Without an epoch it is a read of whatever there is.
type AsOf struct {
	Partition     int
	Epoch, Commit int64
}

// Check returns an error that stops the partition and wraps ErrOvertaken if its row is not as its owner left it.
func (as AsOf) Check(epoch, commit int64) error {
	if as.Epoch == 0 || as.Epoch == epoch && as.Commit == commit {
		return nil
	}
	return StoppingPartition(as.Partition, fmt.Errorf("%w: epoch %d, commit %d instead of epoch %d, commit %d", ErrOvertaken, epoch, commit, as.Epoch, as.Commit))
}

// Saved is a task as stored: its row and its journal rows in order.
type Saved struct {
	Row     Task // Steps is nil
	Journal []Record
	Commits []int64 // of each journal row: the id of the commit that wrote it
	Err     error   // why the row or the journal cannot be read: what is here is not whole; nil: they can
}

// Due is one answer of the supervisor's scan: a task whose complete_by bound
// has passed.
type Due struct {
	Partition int
	Number    int64
	Bound     Instant
	Step      string // whose time is over, the first of several; empty: none, it is the task's own, or not known
}
