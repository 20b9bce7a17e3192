package schema

import (
	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Tables lists the columns that commits and takeovers write and owners read. Statements and digests are made
// from it. Digests follow this order
// (chain.Table), so a column keeps its place, and a new one has a higher Since than those before it.
type Tables struct {
	Tasks      []Column[TaskRow]
	Journal    []Column[JournalRow]
	Partitions []Column[PartitionRow]
	Chain      []Column[chain.Link]
	Labels     []Column[LabelRow]
}

// TaskRow is a row of tasks: a task as a commit leaves it.
type TaskRow struct {
	*core.Task
	Commit int64
	open   core.OpenSignals
}

// NewTaskRow is the row that a commit writes of a task.
func NewTaskRow(t *core.Task, commit int64) TaskRow { return TaskRow{t, commit, t.OpenSignals()} }

// isChild tells a child's step and index 0, which are values, from those of a task without parent, which are NULL.
func (r *TaskRow) isChild() bool { return r.Parent != 0 }

// JournalRow is a row of journal: a record of a task and where it belongs.
type JournalRow struct {
	*core.Record
	Partition int
	Number    int64
	Commit    int64
	Format    int16
	// Input is the task's input; nil: the row has none. Only the first row and edits have one.
	Input []byte
	// Birth says that the row's commit makes the task.
	Birth bool
}

// NewJournalRow makes the row of a write's record, counted from 0.
func NewJournalRow(w *core.TaskWrite, record int, commit int64) JournalRow {
	r, input := &w.Records[record], inputOf(w, record)
	return JournalRow{r, w.Task.Partition, w.Task.Number, commit, journalFormat, input, w.Birth}
}

// PartitionRow is a partition's row.
type PartitionRow struct {
	core.PartitionState
	// After is the commit that the stored row must have as its last. If it has another, someone else owns the
	// partition: the fence.
	After int64
}

// NewPartitionRow makes the row that a commit gives a partition.
func NewPartitionRow(p *core.PartitionWrite, commit int64) PartitionRow {
	return PartitionRow{PartitionState: core.PartitionState{
		Partition: p.Partition, Epoch: p.Epoch, Cursor: p.Cursor, ControlCursor: p.ControlCursor, CursorStored: p.CursorStored, ControlStored: p.ControlStored,
		NextNumber: p.NextNumber, NextEnd: p.NextEnd, Told: p.Told, LastCommit: commit,
	}, After: p.After}
}

// Parameters of a commit that are no columns: PartitionRow.After for the fence, and JournalRow.Birth for
// leaving out the records of births that turn out to be duplicates.
var (
	FromCommit = Column[PartitionRow]{Name: "after", Type: Int8, Field: Field[PartitionRow]{Int: func(r *PartitionRow) int64 { return r.After }}}
	OfBirth    = Column[JournalRow]{Name: "birth", Type: Bool, Field: Field[JournalRow]{Int: func(r *JournalRow) int64 { return bit(r.Birth) }}}
)

// LabelRow is one label of a new task.
type LabelRow struct {
	core.Label
	Partition int
	Number    int64
}

// Columns returns the tables of this version of the schema.
func Columns() *Tables {
	return &Tables{Tasks: taskColumns(), Journal: journalColumns(), Partitions: partitionColumns(), Chain: linkColumns(), Labels: labelColumns()}
}

// Chained are the tables whose rows links name.
func (t *Tables) Chained() chain.Tables { return newQueries(t).chained }

// taskColumns are the columns of the table tasks, which has a row for each task. The fields of core.Task say what most of them mean.
func taskColumns() []Column[TaskRow] {
	type row = TaskRow
	return []Column[row]{
		{"partition", Int8, Key, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Partition) }, Into: func(r *row) any { return &r.Partition }}},
		{"number", Int8, Key, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Number }, Into: func(r *row) any { return &r.Number }}},
		{"plan_version", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return r.PlanVersion }, Into: func(r *row) any { return &r.PlanVersion }}},
		// seq is the number of the newest journal row when the row was last written. While a task has not ended, its
		// journal may be further on.
		{"seq", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Seq }, Into: func(r *row) any { return &r.Seq }}},
		// round rises when an operator resubmits the task after an undo.
		{"round", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Round) }, Into: func(r *row) any { return &r.Round }}},
		// complete_by is Task.Bound, the next time at which something of the task is due; deadline is the
		// task's own.
		{"complete_by", Time, State, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Bound) }, Into: func(r *row) any { return (*instant)(&r.Bound) }}},
		{"deadline", Time, State, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Deadline) }, Into: func(r *row) any { return (*instant)(&r.Deadline) }}},
		{"failure_count", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Failures) }, Into: func(r *row) any { return &r.Failures }}},
		// origin is the position of the submission in the task stream.
		{"origin", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Origin) }, Into: func(r *row) any { return &r.Origin }}},
		{"created_at", Time, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.CreatedAt) }, Into: func(r *row) any { return (*instant)(&r.CreatedAt) }}},
		{"updated_at", Time, State, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.UpdatedAt) }, Into: func(r *row) any { return (*instant)(&r.UpdatedAt) }}},
		{"ended_at", Time, State, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.EndedAt) }, Into: func(r *row) any { return (*instant)(&r.EndedAt) }}},
		// end_number counts endings in the partition. Endings are told in its order, and a purge walks in it.
		{"end_number", Int8, State, None, 0, Field[row]{Int: func(r *row) int64 { return r.EndNumber }, Into: func(r *row) any { return &r.EndNumber }}},
		// failed_step and fingerprint put a task in error or undone into its failure group. Owners do not read
		// them.
		{"failed_step", Int8, State, minus, 0, Field[row]{Int: func(r *row) int64 { return failedStep(r.Task) }}},
		// commit_id is the last commit that wrote the row, by which a batch that is sent again knows its own.
		{"commit_id", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Commit }}},
		{"id", Text, Birth, Never, 0, Field[row]{Text: func(r *row) string { return r.ID }, Into: func(r *row) any { return &r.ID }}},
		{"type", Text, Birth, Never, 0, Field[row]{Text: func(r *row) string { return r.Type }, Into: func(r *row) any { return &r.Type }}},
		{"state", Text, State, Never, 0, Field[row]{Text: func(r *row) string { return string(r.State) }, Into: func(r *row) any { return &r.State }}},
		{"locked_by", Text, State, None, 0, Field[row]{Text: func(r *row) string { return r.LockedBy }, Into: func(r *row) any { return &r.LockedBy }}},
		// waits_for is the agent, or the plan, that a parked task waits for.
		{"waits_for", Text, State, None, 0, Field[row]{Text: func(r *row) string { return r.WaitsFor }, Into: func(r *row) any { return &r.WaitsFor }}},
		{"reply_to", Text, Birth, None, 0, Field[row]{Text: func(r *row) string { return r.ReplyTo }, Into: func(r *row) any { return &r.ReplyTo }}},
		{"trace", Text, Birth, None, 0, Field[row]{Text: func(r *row) string { return r.Trace }, Into: func(r *row) any { return &r.Trace }}},
		{"labels", Text, Birth, None, 0, Field[row]{Text: func(r *row) string { return core.FormatLabels(r.Labels) }, Into: func(r *row) any { return scanner(func(s string) { r.Labels = labelsIn(s) }) }}},
		{"fingerprint", Text, State, None, 0, Field[row]{Text: func(r *row) string { return FailureFingerprint(r.Task) }, Zero: func(r *row) bool { return ungrouped(r.Task) }}},
		// input_hash is of the submission, also after an edit: by it a second submission of the same id is the
		// same or another.
		{"input_hash", Bytes, Birth, None, 0, Field[row]{Bytes: func(r *row) []byte { return r.InputHash }, Into: func(r *row) any { return &r.InputHash }}},

		// parent, parent_step and child_index name the parent, its step, and which of the step's children this
		// is.
		{"parent", Int8, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return r.Parent }, Into: func(r *row) any { return &r.Parent }}},
		{"parent_step", Int8, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.ParentStep) }, Into: func(r *row) any { return &r.ParentStep }, Zero: (*row).isChild}},
		{"child_index", Int8, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.ChildIndex) }, Into: func(r *row) any { return &r.ChildIndex }, Zero: (*row).isChild}},
		{"start_at", Time, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.StartAt) }, Into: func(r *row) any { return (*instant)(&r.StartAt) }}},

		// The signal columns are for lists of open signals. They follow from the journal, so no digest covers
		// them.
		{"signal_steps", Bytes, State, None, apart, Field[row]{Bytes: func(r *row) []byte { return r.open.Steps.Bytes() }}},
		{"signal_since", Time, State, None, apart, Field[row]{Int: func(r *row) int64 { return int64(r.open.Since) }}},
		{"signal_due", Time, State, None, apart, Field[row]{Int: func(r *row) int64 { return int64(r.open.Due) }}},
	}
}

// journalColumns are the columns of journal, which has a row for each core.Record. No row is changed once it is written.
func journalColumns() []Column[JournalRow] {
	type row = JournalRow
	return []Column[row]{
		{"partition", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Partition) }, Into: func(r *row) any { return &r.Partition }}},
		{"number", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Number }, Into: func(r *row) any { return &r.Number }}},
		{"seq", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Seq }, Into: func(r *row) any { return &r.Seq }}},
		{"at", Time, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.At) }, Into: func(r *row) any { return (*instant)(&r.At) }}},
		{"commit_id", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Commit }, Into: func(r *row) any { return &r.Commit }}},
		// format is journalFormat when the row was written.
		{"format", Int2, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Format) }, Into: func(r *row) any { return &r.Format }}},
		{"round", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Round) }, Into: func(r *row) any { return &r.Round }}},
		// step is whose attempt ended or that was reset; next is whose command the row issues.
		{"step", Int8, Birth, minus, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Step) }, Into: func(r *row) any { return &r.Step }}},
		{"attempt", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Attempt) }, Into: func(r *row) any { return &r.Attempt }}},
		{"code", Int8, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Code) }, Into: func(r *row) any { return &r.Code }}},
		// quiet is Record.EffectsPossibleUntil.
		{"quiet", Time, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.EffectsPossibleUntil) }, Into: func(r *row) any { return (*instant)(&r.EffectsPossibleUntil) }}},
		{"next", Int8, Birth, minus, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Next) }, Into: func(r *row) any { return &r.Next }}},
		{"next_attempt", Int8, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.NextAttempt) }, Into: func(r *row) any { return &r.NextAttempt }}},
		{"undo", Bool, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return bit(r.Undo) }, Into: func(r *row) any { return &r.Undo }}},
		// due is the complete-by of next's command; without next, when step's next attempt may leave.
		{"due", Time, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Due) }, Into: func(r *row) any { return (*instant)(&r.Due) }}},
		{"deadline", Time, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Deadline) }, Into: func(r *row) any { return (*instant)(&r.Deadline) }}},
		{"actor", Text, Birth, Never, 0, Field[row]{Text: func(r *row) string { return operate.CleanText(r.Actor) }, Into: func(r *row) any { return scanner(func(s string) { r.Actor = s }) }}},
		{"kind", Text, Birth, Never, 0, Field[row]{Text: func(r *row) string { return string(r.Kind) }, Into: func(r *row) any { return &r.Kind }}},
		{"state", Text, Birth, Never, 0, Field[row]{Text: func(r *row) string { return string(r.State) }, Into: func(r *row) any { return &r.State }}},
		{"step_status", Text, Birth, None, 0, Field[row]{Text: func(r *row) string { return statusWord(r.Record) }, Into: func(r *row) any { return scanner(func(s string) { r.StepStatus = stepStatus(s) }) }}},
		{"error", Bytes, Birth, None, 0, Field[row]{Text: func(r *row) string { return r.Error }, Into: func(r *row) any { return scanner(func(s string) { r.Error = s }) }}},
		{"fingerprint", Text, Birth, None, 0, Field[row]{Text: func(r *row) string { return fingerprint(r.Record) }}},
		{"reason", Bytes, Birth, None, 0, Field[row]{Text: func(r *row) string { return r.Reason }, Into: func(r *row) any { return scanner(func(s string) { r.Reason = s }) }}},
		{"result", Bytes, Birth, None, 0, Field[row]{Bytes: func(r *row) []byte { return r.Result }, Into: func(r *row) any { return &r.Result }}},
		// input is the task's in the first row, and an edit's own in later ones: see inputOf.
		{"input", Bytes, Birth, None, 0, Field[row]{Bytes: func(r *row) []byte { return r.Input }, Into: func(r *row) any { return &r.Input }}},
	}
}

// partitionColumns: Key is what a commit compares, State what it moves.
func partitionColumns() []Column[PartitionRow] {
	type row = PartitionRow
	return []Column[row]{
		{"partition", Int8, Key, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Partition) }, Into: func(r *row) any { return &r.Partition }}},
		// epoch rises with each takeover. A commit that names an older one is fenced.
		{"epoch", Int8, Key | claim, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Epoch }, Into: func(r *row) any { return &r.Epoch }}},
		// cursor and control_cursor are how far the owner has read the task stream and the control stream.
		{"cursor", Int8, State | claim, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Cursor) }, Into: func(r *row) any { return &r.Cursor }}},
		{"control_cursor", Int8, State | claim, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.ControlCursor) }, Into: func(r *row) any { return &r.ControlCursor }}},
		// next_number and next_end are the numbers of the next task and the next ending.
		{"next_number", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return r.NextNumber }, Into: func(r *row) any { return &r.NextNumber }}},
		{"next_end", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return r.NextEnd }, Into: func(r *row) any { return &r.NextEnd }}},
		// told is the end number up to which endings are safe in the event stream.
		{"told", Int8, State, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Told }, Into: func(r *row) any { return &r.Told }}},
		// last_commit is the id of the last commit, or of the takeover if there was none since. With epoch it
		// is the fence.
		{"last_commit", Int8, State | claim, Never, 0, Field[row]{Int: func(r *row) int64 { return r.LastCommit }, Into: func(r *row) any { return &r.LastCommit }}},
		// When the streams took the messages at the cursors. A stream that was restored has others there.
		{"cursor_stored", Time, State | claim, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.CursorStored) }, Into: func(r *row) any { return (*instant)(&r.CursorStored) }}},
		{"control_stored", Time, State | claim, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.ControlStored) }, Into: func(r *row) any { return (*instant)(&r.ControlStored) }}},
		{"owner", Text, claim, Never, 0, Field[row]{Text: func(r *row) string { return r.Owner }, Into: func(r *row) any { return &r.Owner }}},
		{"stream", Text, claim, Never, 0, Field[row]{Text: func(r *row) string { return r.Stream }, Into: func(r *row) any { return &r.Stream }}},
		// When the database was last found to have gone back in time, and up to where tasks may have run that
		// it does not know: see core.PartitionState.
		{"went_back_at", Time, claim, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.WentBackAt) }, Into: func(r *row) any { return (*instant)(&r.WentBackAt) }}},
		{"went_back_number", Int8, claim, Never, 0, Field[row]{Int: func(r *row) int64 { return r.WentBackNumber }, Into: func(r *row) any { return &r.WentBackNumber }}},
		{"went_back_until", Int8, claim, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.WentBackUntil) }, Into: func(r *row) any { return &r.WentBackUntil }}},
	}
}

// linkColumns are the columns of chain, which has a row for each link.
func linkColumns() []Column[chain.Link] {
	type row = chain.Link
	return []Column[row]{
		{"partition", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Partition) }, Into: func(r *row) any { return &r.Partition }}},
		// height is the number of the link in its chain, from 1 on. content names the rows of the commit by
		// their digests; hash covers that and the hash before.
		{"height", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Height }, Into: func(r *row) any { return &r.Height }}},
		{"epoch", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Epoch }, Into: func(r *row) any { return &r.Epoch }}},
		{"commit_id", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Commit }, Into: func(r *row) any { return &r.Commit }}},
		{"linked_at", Time, Birth, None, 0, Field[row]{Int: func(r *row) int64 { return int64(r.At) }, Into: func(r *row) any { return (*instant)(&r.At) }}},
		{"kind", Int2, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Kind) }, Into: func(r *row) any { return &r.Kind }}},
		{"content", Bytes, Birth, Never, 0, Field[row]{Bytes: func(r *row) []byte { return r.Content }, Into: func(r *row) any { return &r.Content }}},
		{"hash", Bytes, Birth, Never, 0, Field[row]{
			Bytes: func(r *row) []byte { return r.Hash[:] },
			Into:  func(r *row) any { return scanner(func(s string) { r.Hash = chain.Hash{}; copy(r.Hash[:], s) }) }, // of another length it fits nothing
		}},
	}
}

// labelColumns are the columns of labels, by which tasks are found. labels in the task's own row is what is shown.
func labelColumns() []Column[LabelRow] {
	type row = LabelRow
	return []Column[row]{
		{"partition", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return int64(r.Partition) }, Into: func(r *row) any { return &r.Partition }}},
		{"number", Int8, Birth, Never, 0, Field[row]{Int: func(r *row) int64 { return r.Number }, Into: func(r *row) any { return &r.Number }}},
		{"key", Text, Birth, Never, 0, Field[row]{Text: func(r *row) string { return r.Key }, Into: func(r *row) any { return &r.Key }}},
		{"value", Text, Birth, Never, 0, Field[row]{Text: func(r *row) string { return r.Value }, Into: func(r *row) any { return &r.Value }}},
	}
}
