package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"duly.dev/duly/internal/core"
)

// ErrCorrupt is what MemStore answers to a batch that no correct owner writes:
// a gap in a journal, a row without a journal, a row that its journal does not
// replay to. A real store would not notice.
var ErrCorrupt = errors.New("batch breaks the journal")

// MemStore is the state store in memory: the meaning of the SQL, without SQL.
// The other stores are held to it by what they have in common, the roles by
// what it refuses. Safe for concurrent use.
type MemStore struct {
	// RefuseRow, when set, is the database that refuses a row.
	RefuseRow func(w *core.TaskWrite) bool
	// BeforeCommit, when set, may fail a commit before anything is written.
	BeforeCommit func(b *core.Batch) error
	// AfterCommit, when set, sees what was committed; its error cuts the caller
	// off after the fact, as a crash would.
	AfterCommit func(b *core.Batch, res core.CommitResult) error
	// onRecord, when set, sees each journal row that is written; answered is the
	// row that issued the command which it ends by an answer, or 0.
	onRecord func(r *row, j *core.Record, answered int64)
	// when, when set, says what the condition of a step comes to.
	when func(t *core.Task, step int) bool
	// atEnd: a journal is replayed when its task ends, and not at each of its rows.
	atEnd bool

	// OldOwners lets an owner that does not know a stored plan write its tasks.
	OldOwners bool
	// Unreadable are plans that a newer binary has stored.
	Unreadable core.UnreadablePlans
	// Marked are the versions of plans that are deprecated.
	Marked core.Deprecations
	// PlansRead counts the readings of the plans.
	PlansRead int
	// NumbersRead counts the tasks that were read by their numbers.
	NumbersRead int

	mu         sync.Mutex
	plans      []core.Plan
	partitions map[int]*core.PartitionState
	rows       map[rowKey]*row
	ids        map[idKey]*row
	byNumber   map[int][]*row // of each partition, in the order of numbers
	breakers   map[string]core.Breaker
	limits     map[string]core.Limit
	grants     map[grantsOf][]core.Grant // by agent
	counted    map[int]core.Counting     // by partition
	reports    map[[2]string]reported    // by agent and node
	blamed     string                    // the task that the last ErrCorrupt is about
}

type rowKey struct {
	partition int
	number    int64
}

type idKey struct {
	partition int
	id        string
}

// row is one task's row and its journal.
type row struct {
	task    core.Task
	journal []core.Record
	commits []int64 // the commit_id of each journal row
	written int64   // that of the row
	purged  bool    // a tombstone: its input and journal are gone
	past    []int64 // of one that is purged: the commits there were
	ends    []ended // every end it has come to
	referee referee
}

// ended is one end of a task, which a person may have taken up again since.
type ended struct {
	seq   int64
	state core.State
}

// NewMemStore makes an empty store.
func NewMemStore() *MemStore {
	return &MemStore{counted: map[int]core.Counting{}, partitions: map[int]*core.PartitionState{}, rows: map[rowKey]*row{}, ids: map[idKey]*row{}, byNumber: map[int][]*row{}}
}

// TakeOver raises the partition's epoch and makes the claim's owner its owner.
func (m *MemStore) TakeOver(_ context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.partition(partition)
	st.Take(c)
	is := *st
	st.Found = core.Found{}
	return is, nil
}

// partition returns the partition's own row; every partition has one.
func (m *MemStore) partition(id int) *core.PartitionState {
	st := m.partitions[id]
	if st == nil {
		st = &core.PartitionState{Partition: id, NextNumber: 1, NextEnd: 1}
		m.partitions[id] = st
	}
	return st
}

// Release gives the partition up, if the epoch is still the caller's.
func (m *MemStore) Release(_ context.Context, partition int, epoch int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.partition(partition); st.Epoch == epoch {
		st.Owner = ""
	}
	return nil
}

// SetStream puts a partition's cursors where a test wants them.
func (m *MemStore) SetStream(partition int, stream string, cursor, controlCursor uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.partition(partition)
	st.Stream, st.Cursor, st.ControlCursor = stream, cursor, controlCursor
}

// fenced reports whether a partition's row is not as the writer left it.
func (m *MemStore) fenced(w *core.PartitionWrite, commit int64) bool {
	st := m.partition(w.Partition)
	return st.Epoch != w.Epoch || st.LastCommit != w.After && st.LastCommit != commit
}

// Commit writes the batch as a whole, less the fenced partitions and the new tasks
// whose id is taken. The same batch again changes nothing.
func (m *MemStore) Commit(_ context.Context, b *core.Batch) (core.CommitResult, error) {
	if m.BeforeCommit != nil {
		if err := m.BeforeCommit(b); err != nil {
			return core.CommitResult{}, err
		}
	}
	res, err := m.commit(b)
	if err == nil && m.AfterCommit != nil {
		err = m.AfterCommit(b, res)
	}
	return res, err
}

func (m *MemStore) commit(b *core.Batch) (core.CommitResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var res core.CommitResult
	fenced := map[int]bool{}
	for i := range b.Partitions {
		if w := &b.Partitions[i]; m.fenced(w, b.ID) {
			fenced[w.Partition] = true
			res.Fenced = append(res.Fenced, w.Partition)
		}
	}
	var writes []*core.TaskWrite
	for i := range b.Writes {
		w := &b.Writes[i]
		if !slices.ContainsFunc(b.Partitions, func(p core.PartitionWrite) bool { return p.Partition == w.Task.Partition }) {
			return core.CommitResult{}, fmt.Errorf("%w: task %s without its partition", ErrCorrupt, w.Task.ID)
		}
		if fenced[w.Task.Partition] {
			continue
		}
		if m.RefuseRow != nil && m.RefuseRow(w) {
			return core.CommitResult{}, core.ErrRowRefused
		}
		dup, err := m.check(b.ID, w)
		if err != nil {
			return core.CommitResult{}, err
		}
		if dup != nil {
			res.Duplicates = append(res.Duplicates, *dup)
			continue
		}
		writes = append(writes, w)
	}
	for _, w := range b.Partitions {
		if !fenced[w.Partition] {
			st := m.partition(w.Partition)
			st.Cursor, st.ControlCursor = w.Cursor, w.ControlCursor
			st.CursorStored, st.ControlStored = w.CursorStored, w.ControlStored
			st.NextNumber, st.NextEnd, st.Told, st.LastCommit = w.NextNumber, w.NextEnd, w.Told, b.ID
		}
	}
	for _, w := range writes {
		if err := m.write(b.ID, w); err != nil {
			m.blamed = w.Task.ID
			return core.CommitResult{}, err
		}
	}
	return res, nil
}

// check says whether a write is a duplicate, or why it cannot be.
func (m *MemStore) check(commit int64, w *core.TaskWrite) (*core.Duplicate, error) {
	t := w.Task
	is := m.rows[rowKey{t.Partition, t.Number}]
	if w.Birth {
		if has := m.ids[idKey{t.Partition, t.ID}]; has != nil && (has != is || is.commits[0] != commit) {
			return &core.Duplicate{Partition: t.Partition, Number: t.Number, Existing: m.existing(has)}, nil
		}
		if is != nil && is.commits[0] != commit {
			return nil, fmt.Errorf("%w: number %d of partition %d is task %s, not %s", core.ErrForeignRow, t.Number, t.Partition, is.task.ID, t.ID)
		}
	} else if is == nil {
		return nil, fmt.Errorf("%w: task %s has no row", ErrCorrupt, t.ID)
	}
	have := int64(0)
	if is != nil {
		have = int64(len(is.journal))
	}
	for i := range w.Records {
		seq := w.Records[i].Seq
		if seq <= have && is.commits[seq-1] != commit {
			return nil, fmt.Errorf("%w: row %d of task %s", core.ErrForeignRow, seq, t.ID)
		}
		if seq > have+int64(i)+1 {
			return nil, fmt.Errorf("%w: row %d of task %s follows row %d", ErrCorrupt, seq, t.ID, have)
		}
	}
	return nil, nil
}

func (m *MemStore) existing(r *row) core.Existing {
	reason := ""
	if r.task.State == core.StateUndone || r.task.State == core.StateError {
		reason = m.ending(r).Error
	}
	return core.Existing{
		Partition: r.task.Partition, Number: r.task.Number, ID: r.task.ID, Type: r.task.Type,
		InputHash: r.task.InputHash, State: r.task.State, Reason: reason,
	}
}

func (m *MemStore) write(commit int64, w *core.TaskWrite) error {
	t := w.Task
	r := m.rows[rowKey{t.Partition, t.Number}]
	if r == nil {
		r = &row{task: columns(t), written: commit}
		m.insert(r)
	}
	if w.Row && r.task.Seq < t.Seq {
		input := r.task.Input // an edit's is in its journal row
		r.task, r.written = columns(t), commit
		r.task.Input = input
	}
	for i := range w.Records {
		j := &w.Records[i]
		if j.Seq <= int64(len(r.journal)) {
			continue
		}
		r.journal = append(r.journal, *j)
		r.commits = append(r.commits, commit)
		if endsBy(j) {
			r.ends = append(r.ends, ended{j.Seq, j.State})
		}
		answered, err := r.referee.take(j, m.planOf(r), m.conditions(r))
		if err != nil {
			return fmt.Errorf("%w: task %s, row %d: %w", ErrCorrupt, t.ID, j.Seq, err)
		}
		if m.onRecord != nil {
			m.onRecord(r, j, answered)
		}
	}
	if m.atEnd && !t.State.Ended() {
		return nil
	}
	return m.verify(r, t)
}

// endsBy reports whether a task ends by a row. One that has ended notes that the database went back when a request takes
// it up: the row of that follows.
func endsBy(j *core.Record) bool {
	return j.State.Ended() && (j.Kind != core.KindWentBack || j.Seq == 1)
}

// columns is what the task's row keeps of it.
func columns(t *core.Task) core.Task {
	c := *t
	c.Steps, c.FailedStep, c.Why, c.Earlier, c.Result, c.WentBackAt, c.BornAgain, c.LostUntil, c.TakenUp, c.Reopened, c.Asked = nil, 0, "", nil, nil, 0, false, 0, 0, false, false
	return c
}

// verify holds the row to its journal: the task its owner has in memory is the
// one that a successor would replay, and the bound of the row is not above the
// truth.
func (m *MemStore) verify(r *row, live *core.Task) error {
	plan, t, err := m.replay(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.OldOwners && live.Steps == nil {
		t.Steps = nil
	}
	want := *live
	want.Steps = slices.Clone(live.Steps)
	for i := range want.Steps {
		want.Steps[i], t.Steps[i] = want.Steps[i].Journalled(), t.Steps[i].Journalled()
	}
	if !reflect.DeepEqual(*t, want) {
		return fmt.Errorf("%w: the journal of task %s replays to another task:\n%+v\nlive:\n%+v", ErrCorrupt, t.ID, *t, want)
	}
	if plan != nil && r.task.Bound > t.NextDue(plan) {
		return fmt.Errorf("%w: the bound of task %s, %d, is above the truth, %d", ErrCorrupt, t.ID, r.task.Bound, t.NextDue(plan))
	}
	return nil
}

// planOf is the plan of a row's task, nil if that is not stored.
func (m *MemStore) planOf(r *row) *core.Plan {
	for i := range m.plans {
		if p := &m.plans[i]; p.Name == r.task.Type && p.Version == r.task.PlanVersion {
			return p
		}
	}
	return nil
}

// conditions says what the conditions of a row's task come to, where that is known.
func (m *MemStore) conditions(r *row) func(step int) bool {
	if m.when == nil {
		return nil
	}
	return func(step int) bool { return m.when(&r.task, step) }
}

func (m *MemStore) replay(r *row) (*core.Plan, *core.Task, error) {
	plan := m.planOf(r)
	t, err := core.Replay(plan, &core.Saved{Row: r.task, Journal: r.journal})
	return plan, t, err
}

// insert keeps a new row in the order of its partition.
func (m *MemStore) insert(r *row) {
	p := r.task.Partition
	m.rows[rowKey{p, r.task.Number}], m.ids[idKey{p, r.task.ID}] = r, r
	all := m.byNumber[p]
	at, _ := slices.BinarySearchFunc(all, r, compareRows)
	m.byNumber[p] = slices.Insert(all, at, r)
}

func compareRows(a, b *row) int { return cmp.Compare(a.task.Number, b.task.Number) }

// remove forgets a row.
func (m *MemStore) remove(r *row) {
	p := r.task.Partition
	delete(m.rows, rowKey{p, r.task.Number})
	delete(m.ids, idKey{p, r.task.ID})
	m.byNumber[p] = slices.DeleteFunc(m.byNumber[p], func(o *row) bool { return o == r })
}

// inOrder is the partition's rows by number.
func (m *MemStore) inOrder(partition int, keep func(*row) bool) []*row {
	var rows []*row
	for _, r := range m.byNumber[partition] {
		if keep(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// endedAt is the task that holds an end number, or nil.
func (m *MemStore) endedAt(partition int, end int64) *row {
	for _, r := range m.byNumber[partition] {
		if r.task.EndNumber == end {
			return r
		}
	}
	return nil
}
