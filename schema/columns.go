package schema

import (
	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
)

// Tables are the columns that commits and takeovers write and owners read, of which all statements and digests are made.
// Digests take the numbers of a table in this order, then its texts.
type Tables struct {
	Tasks      []Column[TaskRow]
	Journal    []Column[JournalRow]
	Partitions []Column[PartitionRow]
	Chain      []Column[chain.Link]
	Labels     []Column[LabelRow]
}

// TaskRow is a task as a commit leaves it, and as its row has it.
type TaskRow struct {
	*core.Task
	Commit int64
	open   core.OpenSignals
}

// NewTaskRow is the row that a commit writes of a task.
func NewTaskRow(t *core.Task, commit int64) TaskRow { return TaskRow{t, commit, t.OpenSignals()} }

func (r *TaskRow) isChild() bool { return r.Parent != 0 }

// JournalRow is one record of a task.
type JournalRow struct {
	*core.Record
	Partition int
	Number    int64
	Commit    int64
	Format    int16
	Input     []byte // of the task; nil: not in this row
	Birth     bool   // the task begins with this commit
}

// NewJournalRow is the row that a commit writes of a record.
func NewJournalRow(w *core.TaskWrite, record int, commit int64) JournalRow {
	r, input := &w.Records[record], InputOf(w, record)
	return JournalRow{r, w.Task.Partition, w.Task.Number, commit, FormatOf(w.Task, r, input), input, w.Birth}
}

// PartitionRow is a partition's row.
type PartitionRow struct {
	core.PartitionState
	After       int64 // the commit that the row has to be of
	StoredEpoch int64 // of the owner who wrote when the streams took what is at the cursors
}

// NewPartitionRow is a partition as a commit moves it.
func NewPartitionRow(p *core.PartitionWrite, commit int64) PartitionRow {
	return PartitionRow{PartitionState: core.PartitionState{
		Partition: p.Partition, Epoch: p.Epoch, Cursor: p.Cursor, ControlCursor: p.ControlCursor, CursorStored: p.CursorStored, ControlStored: p.ControlStored,
		NextNumber: p.NextNumber, NextEnd: p.NextEnd, Told: p.Told, LastCommit: commit,
	}, After: p.After}
}

// What a commit says beside the columns: which commit a partition's row has to be of, and whether a record is of a birth.
var (
	FromCommit = Column[PartitionRow]{Name: "after", Type: Int8, Field: number(func(r *PartitionRow) *int64 { return &r.After })}
	OfBirth    = Column[JournalRow]{Name: "birth", Type: Bool, Field: boolean(func(r *JournalRow) *bool { return &r.Birth })}
)

// LabelRow is one label of a new task.
type LabelRow struct {
	core.Label
	Partition int
	Number    int64
}

// Columns are the tables of this version.
func Columns() *Tables {
	return &Tables{Tasks: taskColumns(), Journal: journalColumns(), Partitions: partitionColumns(), Chain: linkColumns(), Labels: labelColumns()}
}

// Chained are the tables whose rows links name.
func (t *Tables) Chained() chain.Tables { return newQueries(t).chained }

func taskColumns() []Column[TaskRow] {
	type row = TaskRow
	return []Column[row]{
		{"partition", Int8, Key, Never, 0, number(func(r *row) *int { return &r.Partition })},
		{"number", Int8, Key, Never, 0, number(func(r *row) *int64 { return &r.Number })},
		{"plan_version", Int8, State, Never, 0, number(func(r *row) *int64 { return &r.PlanVersion })},
		{"seq", Int8, State, Never, 0, number(func(r *row) *int64 { return &r.Seq })},
		{"round", Int8, State, Never, 0, number(func(r *row) *int { return &r.Round })},
		{"complete_by", Time, State, None, 0, when(func(r *row) *core.Instant { return &r.Bound })},
		{"deadline", Time, State, None, 0, when(func(r *row) *core.Instant { return &r.Deadline })},
		{"failure_count", Int8, State, Never, 0, number(func(r *row) *int { return &r.Failures })},
		{"origin", Int8, Birth, Never, 0, number(func(r *row) *uint64 { return &r.Origin })},
		{"created_at", Time, Birth, Never, 0, when(func(r *row) *core.Instant { return &r.CreatedAt })},
		{"updated_at", Time, State, Never, 0, when(func(r *row) *core.Instant { return &r.UpdatedAt })},
		{"ended_at", Time, State, None, 0, when(func(r *row) *core.Instant { return &r.EndedAt })},
		{"end_number", Int8, State, None, 0, number(func(r *row) *int64 { return &r.EndNumber })},
		{"failed_step", Int8, State, Minus, 0, Field[row]{Get: func(r *row) chain.Value { return chain.Value{Int: FailedStep(r.Task)} }}},
		{"commit_id", Int8, State, Never, 0, number(func(r *row) *int64 { return &r.Commit }).only()},
		{"id", Text, Birth, Never, 0, text(func(r *row) *string { return &r.ID })},
		{"type", Text, Birth, Never, 0, text(func(r *row) *string { return &r.Type })},
		{"state", Text, State, Never, 0, text(func(r *row) *core.State { return &r.State })},
		{"locked_by", Text, State, None, 0, text(func(r *row) *string { return &r.LockedBy })},
		{"waits_for", Text, State, None, 0, text(func(r *row) *string { return &r.WaitsFor })},
		{"reply_to", Text, Birth, None, 0, text(func(r *row) *string { return &r.ReplyTo })},
		{"trace", Text, Birth, None, 0, text(func(r *row) *string { return &r.Trace })},
		{"labels", Text, Birth, None, 0, word(func(r *row) string { return core.FormatLabels(r.Labels) }).read(func(r *row, s string) { r.Labels = labelsIn(s) })},
		{"fingerprint", Text, State, None, 0, word(func(r *row) string { return FailureFingerprint(r.Task) }).held(func(r *row) bool { return Ungrouped(r.Task) })},
		{"input_hash", Bytes, Birth, None, 0, blob(func(r *row) *[]byte { return &r.InputHash })},

		{"parent", Int8, Birth, None, 1, number(func(r *row) *int64 { return &r.Parent })},
		{"parent_step", Int8, Birth, None, 1, number(func(r *row) *int { return &r.ParentStep }).held((*row).isChild)},
		{"child_index", Int8, Birth, None, 1, number(func(r *row) *int { return &r.ChildIndex }).held((*row).isChild)},
		{"start_at", Time, Birth, None, 1, when(func(r *row) *core.Instant { return &r.StartAt })},

		{"signal_steps", Int8, State, None, apart, number(func(r *row) *uint64 { return &r.open.Steps }).only()},
		{"signal_since", Time, State, None, apart, when(func(r *row) *core.Instant { return &r.open.Since }).only()},
		{"signal_due", Time, State, None, apart, when(func(r *row) *core.Instant { return &r.open.Due }).only()},
		{"input", Bytes, 0, None, apart, blob(func(r *row) *[]byte { return &r.Input })}, // it is in the journal
	}
}

func journalColumns() []Column[JournalRow] {
	type row = JournalRow
	return []Column[row]{
		{"partition", Int8, Birth, Never, 0, number(func(r *row) *int { return &r.Partition })},
		{"number", Int8, Birth, Never, 0, number(func(r *row) *int64 { return &r.Number })},
		{"seq", Int8, Birth, Never, 0, number(func(r *row) *int64 { return &r.Seq })},
		{"at", Time, Birth, Never, 0, when(func(r *row) *core.Instant { return &r.At })},
		{"commit_id", Int8, Birth, Never, 0, number(func(r *row) *int64 { return &r.Commit })},
		{"format", Int2, Birth, Never, 0, number(func(r *row) *int16 { return &r.Format })},
		{"round", Int8, Birth, Never, 0, number(func(r *row) *int { return &r.Round })},
		{"step", Int8, Birth, Minus, 0, number(func(r *row) *int { return &r.Step })},
		{"attempt", Int8, Birth, Never, 0, number(func(r *row) *int { return &r.Attempt })},
		{"code", Int8, Birth, None, 0, number(func(r *row) *int { return &r.Code })},
		{"quiet", Time, Birth, None, 0, when(func(r *row) *core.Instant { return &r.EffectsPossibleUntil })},
		{"next", Int8, Birth, Minus, 0, number(func(r *row) *int { return &r.Next })},
		{"next_attempt", Int8, Birth, None, 0, number(func(r *row) *int { return &r.NextAttempt })},
		{"undo", Bool, Birth, Never, 0, boolean(func(r *row) *bool { return &r.Undo })},
		{"due", Time, Birth, None, 0, when(func(r *row) *core.Instant { return &r.Due })},
		{"deadline", Time, Birth, None, 0, when(func(r *row) *core.Instant { return &r.Deadline })},
		{"actor", Text, Birth, Never, 0, word(func(r *row) string { return words(r.Actor) }).read(func(r *row, s string) { r.Actor = s })},
		{"kind", Text, Birth, Never, 0, text(func(r *row) *core.Kind { return &r.Kind })},
		{"state", Text, Birth, Never, 0, text(func(r *row) *core.State { return &r.State })},
		{"step_status", Text, Birth, None, 0, word(func(r *row) string { return StatusWord(r.Record) }).read(func(r *row, s string) { r.StepStatus = stepStatus(s) })},
		{"error", Bytes, Birth, None, 0, raw(func(r *row) *string { return &r.Error })},
		{"fingerprint", Text, Birth, None, 0, word(func(r *row) string { return Fingerprint(r.Record) })},
		{"reason", Bytes, Birth, None, 0, raw(func(r *row) *string { return &r.Reason })},
		{"result", Bytes, Birth, None, 0, blob(func(r *row) *[]byte { return &r.Result })},
		{"input", Bytes, Birth, None, 0, blob(func(r *row) *[]byte { return &r.Input })},
	}
}

// partitionColumns: Key is what a commit compares, State what it moves.
func partitionColumns() []Column[PartitionRow] {
	type row = PartitionRow
	return []Column[row]{
		{"partition", Int8, Key, Never, 0, number(func(r *row) *int { return &r.Partition })},
		{"epoch", Int8, Key | Claim, Never, 0, number(func(r *row) *int64 { return &r.Epoch })},
		{"cursor", Int8, State | Claim, Never, 0, number(func(r *row) *uint64 { return &r.Cursor })},
		{"control_cursor", Int8, State | Claim, Never, 0, number(func(r *row) *uint64 { return &r.ControlCursor })},
		{"next_number", Int8, State, Never, 0, number(func(r *row) *int64 { return &r.NextNumber })},
		{"next_end", Int8, State, Never, 0, number(func(r *row) *int64 { return &r.NextEnd })},
		{"told", Int8, State, Never, 0, number(func(r *row) *int64 { return &r.Told })},
		{"last_commit", Int8, State | Claim, Never, 0, number(func(r *row) *int64 { return &r.LastCommit })},
		{"cursor_stored", Time, State | Claim, None, 0, when(func(r *row) *core.Instant { return &r.CursorStored })},
		{"control_stored", Time, State | Claim, None, 0, when(func(r *row) *core.Instant { return &r.ControlStored })},
		{"stored_epoch", Int8, Claim, Never, 0, number(func(r *row) *int64 { return &r.StoredEpoch })},
		{"owner", Text, Claim, Never, 0, text(func(r *row) *string { return &r.Owner })},
		{"stream", Text, Claim, Never, 0, text(func(r *row) *string { return &r.Stream })},
		{"went_back_at", Time, Claim, None, 0, when(func(r *row) *core.Instant { return &r.WentBackAt })},
		{"went_back_number", Int8, Claim, Never, 0, number(func(r *row) *int64 { return &r.WentBackNumber })},
		{"went_back_until", Int8, Claim, Never, 0, number(func(r *row) *uint64 { return &r.WentBackUntil })},
	}
}

func linkColumns() []Column[chain.Link] {
	type row = chain.Link
	return []Column[row]{
		{"partition", Int8, Birth, Never, 0, number(func(r *row) *int { return &r.Partition })},
		{"height", Int8, Birth, Never, 0, number(func(r *row) *int64 { return &r.Height })},
		{"epoch", Int8, Birth, Never, 0, number(func(r *row) *int64 { return &r.Epoch })},
		{"commit_id", Int8, Birth, Never, 0, number(func(r *row) *int64 { return &r.Commit })},
		{"linked_at", Time, Birth, None, 0, when(func(r *row) *core.Instant { return &r.At })},
		{"kind", Int2, Birth, Never, 0, number(func(r *row) *chain.Kind { return &r.Kind })},
		{"content", Bytes, Birth, Never, 0, blob(func(r *row) *[]byte { return &r.Content })},
		{"hash", Bytes, Birth, Never, 0, Field[row]{
			Get:  func(r *row) chain.Value { return chain.Value{Bytes: r.Hash[:]} },
			Into: func(r *row) any { return scanner(func(s string) { r.Hash = chain.Hash{}; copy(r.Hash[:], s) }) }, // of another length it fits nothing
		}},
	}
}

func labelColumns() []Column[LabelRow] {
	type row = LabelRow
	return []Column[row]{
		{"partition", Int8, Birth, Never, 0, number(func(r *row) *int { return &r.Partition })},
		{"number", Int8, Birth, Never, 0, number(func(r *row) *int64 { return &r.Number })},
		{"key", Text, Birth, Never, 0, text(func(r *row) *string { return &r.Key })},
		{"value", Text, Birth, Never, 0, text(func(r *row) *string { return &r.Value })},
	}
}
