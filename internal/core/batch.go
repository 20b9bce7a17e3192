package core

import "errors"

// Errors of the state store that its users tell apart.
var (
	// ErrRowRefused: the database refuses a row of the batch (SQLSTATE classes
	// 22, 23, 54); nothing of the batch is committed. The owner halves the batch.
	ErrRowRefused = errors.New("row refused by the database")
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

// Batch is what one group commit writes: transitions of many tasks of the
// partitions one process owns. It commits as a whole, less the partitions
// whose epoch is no longer ours and the births whose id is taken.
type Batch struct {
	ID         int64  // commit_id, unique; the same when a batch is sent again
	Node       string // who commits
	Partitions []PartitionWrite
	Writes     []TaskWrite // at most one per task
}

// PartitionWrite moves one partition's own row. Every partition that has a
// write in the batch has one; one may come alone, to move a cursor.
type PartitionWrite struct {
	Partition     int
	Epoch         int64  // ours; the commit leaves the partition out when the row has another
	Cursor        uint64 // last contiguous committed position of the task stream
	ControlCursor uint64 // the same of the control stream
	NextNumber    int64  // next task number
	NextEnd       int64  // next end number
	Told          int64  // every ending up to this end number is stored in the event stream
}

// TaskWrite is one task's part of a batch.
type TaskWrite struct {
	Task    *Task
	Birth   bool // insert the row; a taken id makes it a Duplicate
	Row     bool // update the row (where its seq is below Task.Seq)
	Records []Record
}

// CommitResult says what a commit left out.
type CommitResult struct {
	Fenced     []int       // partitions whose epoch is no longer ours
	Duplicates []Duplicate // births whose id was taken
}

// Duplicate is a birth that was not: its id is a task already.
type Duplicate struct {
	Partition int
	Number    int64 // the number our birth would have had
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

// PartitionState is what a takeover finds.
type PartitionState struct {
	Partition     int
	Owner         string
	Epoch         int64
	Cursor        uint64
	ControlCursor uint64
	NextNumber    int64
	NextEnd       int64
	Told          int64
	Stream        string // identity of the task stream the cursors belong to; empty: none yet
}

// Saved is a task as stored: its row and its journal rows in order.
type Saved struct {
	Row     Task // Steps is nil
	Journal []Record
}

// Due is one answer of the supervisor's scan: a task whose complete_by bound
// has passed.
type Due struct {
	Partition int
	Number    int64
	Bound     Instant
}
