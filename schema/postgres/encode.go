package postgres

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// sqlType is a type of a column, as a cast names it and as the protocol does.
type sqlType struct {
	name string
	oid  uint32
}

var (
	sqlBool  = sqlType{"BOOL", 16}
	sqlBytes = sqlType{"BYTEA", 17}
	sqlInt8  = sqlType{"INT8", 20}
	sqlInt2  = sqlType{"INT2", 21}
	sqlText  = sqlType{"TEXT", 25}
	sqlTime  = sqlType{"TIMESTAMPTZ", 1184}
)

// field is one column that a commit writes: its name, its type, and how its value is made
// of a row R. The statements of a commit, the rows of a COPY and the arrays of parameters
// all come from lists of these. Package schema says where else a new column goes.
type field[R any] struct {
	name string
	typ  sqlType
	put  func(*cells, *R)
}

// partitionRow is a partition's part of a commit.
type partitionRow struct {
	*core.PartitionWrite
	commit int64
}

// taskRow is a task as a commit leaves it.
type taskRow struct {
	*core.Task
	commit int64
	open   core.OpenSignals
}

// journalRow is one record of a task.
type journalRow struct {
	*core.Record
	task   *core.Task
	input  []byte // of the task; nil: not in this row
	birth  bool   // the task begins with this commit
	commit int64
}

// fenceFields are what a commit compares in a partition's row, cursorFields what it writes.
var (
	fenceFields = []field[partitionRow]{
		{"partition", sqlInt8, func(c *cells, r *partitionRow) { c.int(int64(r.Partition)) }},
		{"epoch", sqlInt8, func(c *cells, r *partitionRow) { c.int(r.Epoch) }},
		{"after", sqlInt8, func(c *cells, r *partitionRow) { c.int(r.After) }},
	}
	cursorFields = []field[partitionRow]{
		{"cursor", sqlInt8, func(c *cells, r *partitionRow) { c.int(int64(r.Cursor)) }},
		{"control_cursor", sqlInt8, func(c *cells, r *partitionRow) { c.int(int64(r.ControlCursor)) }},
		{"next_number", sqlInt8, func(c *cells, r *partitionRow) { c.int(r.NextNumber) }},
		{"next_end", sqlInt8, func(c *cells, r *partitionRow) { c.int(r.NextEnd) }},
		{"told", sqlInt8, func(c *cells, r *partitionRow) { c.int(r.Told) }},
		{"last_commit", sqlInt8, func(c *cells, r *partitionRow) { c.int(r.commit) }},
		{"cursor_stored", sqlTime, func(c *cells, r *partitionRow) { c.time(r.CursorStored) }},
		{"control_stored", sqlTime, func(c *cells, r *partitionRow) { c.time(r.ControlStored) }},
	}
	partitionFields = slices.Concat(fenceFields, cursorFields)
)

// keyFields are a task's key, stateFields what changes in its row, and birthFields what its
// birth writes for good.
var (
	keyFields = []field[taskRow]{
		{"partition", sqlInt8, func(c *cells, r *taskRow) { c.int(int64(r.Partition)) }},
		{"number", sqlInt8, func(c *cells, r *taskRow) { c.int(r.Number) }},
	}
	stateFields = []field[taskRow]{
		{"plan_version", sqlInt8, func(c *cells, r *taskRow) { c.int(r.PlanVersion) }},
		{"state", sqlText, func(c *cells, r *taskRow) { c.text(string(r.State)) }},
		{"seq", sqlInt8, func(c *cells, r *taskRow) { c.int(r.Seq) }},
		{"round", sqlInt8, func(c *cells, r *taskRow) { c.int(int64(r.Round)) }},
		{"locked_by", sqlText, func(c *cells, r *taskRow) { c.someText(r.LockedBy) }},
		{"waits_for", sqlText, func(c *cells, r *taskRow) { c.someText(r.WaitsFor) }},
		{"complete_by", sqlTime, func(c *cells, r *taskRow) { c.time(r.Bound) }},
		{"deadline", sqlTime, func(c *cells, r *taskRow) { c.time(r.Deadline) }},
		{"failure_count", sqlInt8, func(c *cells, r *taskRow) { c.int(int64(r.Failures)) }},
		{"updated_at", sqlTime, func(c *cells, r *taskRow) { c.time(r.UpdatedAt) }},
		{"ended_at", sqlTime, func(c *cells, r *taskRow) { c.time(r.EndedAt) }},
		{"end_number", sqlInt8, func(c *cells, r *taskRow) { c.unless(0, r.EndNumber) }},
		{"failed_step", sqlInt8, func(c *cells, r *taskRow) { c.unless(-1, schema.FailedStep(r.Task)) }},
		{"fingerprint", sqlText, putFingerprint},
		{"commit_id", sqlInt8, func(c *cells, r *taskRow) { c.int(r.commit) }},
		{"signal_steps", sqlInt8, func(c *cells, r *taskRow) { c.unless(0, int64(r.open.Steps)) }},
		{"signal_since", sqlTime, func(c *cells, r *taskRow) { c.time(r.open.Since) }},
		{"signal_due", sqlTime, func(c *cells, r *taskRow) { c.time(r.open.Due) }},
	}
	birthFields = []field[taskRow]{
		{"id", sqlText, func(c *cells, r *taskRow) { c.text(r.ID) }},
		{"type", sqlText, func(c *cells, r *taskRow) { c.text(r.Type) }},
		{"input_hash", sqlBytes, func(c *cells, r *taskRow) { c.someBytes(r.InputHash) }},
		{"reply_to", sqlText, func(c *cells, r *taskRow) { c.someText(r.ReplyTo) }},
		{"trace", sqlText, func(c *cells, r *taskRow) { c.someText(r.Trace) }},
		{"labels", sqlText, func(c *cells, r *taskRow) { c.someText(core.FormatLabels(r.Labels)) }},
		{"origin", sqlInt8, func(c *cells, r *taskRow) { c.int(int64(r.Origin)) }},
		{"created_at", sqlTime, func(c *cells, r *taskRow) { c.time(r.CreatedAt) }},
		{"start_at", sqlTime, func(c *cells, r *taskRow) { c.time(r.StartAt) }},
		{"parent", sqlInt8, func(c *cells, r *taskRow) { c.ofChild(r, r.Parent) }},
		{"parent_step", sqlInt8, func(c *cells, r *taskRow) { c.ofChild(r, int64(r.ParentStep)) }},
		{"child_index", sqlInt8, func(c *cells, r *taskRow) { c.ofChild(r, int64(r.ChildIndex)) }},
	}
	taskFields = slices.Concat(keyFields, stateFields, birthFields)
)

// labelRow is one label of a new task.
type labelRow struct {
	*core.Label
	task *core.Task
}

// labelFields are the columns of labels.
var labelFields = []field[labelRow]{
	{"partition", sqlInt8, func(c *cells, r *labelRow) { c.int(int64(r.task.Partition)) }},
	{"number", sqlInt8, func(c *cells, r *labelRow) { c.int(r.task.Number) }},
	{"key", sqlText, func(c *cells, r *labelRow) { c.text(r.Key) }},
	{"value", sqlText, func(c *cells, r *labelRow) { c.text(r.Value) }},
}

// linkFields are the columns of chain.
var linkFields = []field[chain.Link]{
	{"partition", sqlInt8, func(c *cells, r *chain.Link) { c.int(int64(r.Partition)) }},
	{"height", sqlInt8, func(c *cells, r *chain.Link) { c.int(r.Height) }},
	{"epoch", sqlInt8, func(c *cells, r *chain.Link) { c.int(r.Epoch) }},
	{"commit_id", sqlInt8, func(c *cells, r *chain.Link) { c.int(r.Commit) }},
	{"linked_at", sqlTime, func(c *cells, r *chain.Link) { c.time(r.At) }},
	{"kind", sqlInt2, func(c *cells, r *chain.Link) { c.int2(int16(r.Kind)) }},
	{"content", sqlBytes, func(c *cells, r *chain.Link) { c.bytes(r.Content) }},
	{"hash", sqlBytes, func(c *cells, r *chain.Link) { c.bytes(r.Hash[:]) }},
}

// journalFields are the columns of the journal.
var journalFields = []field[journalRow]{
	{"partition", sqlInt8, func(c *cells, r *journalRow) { c.int(int64(r.task.Partition)) }},
	{"number", sqlInt8, func(c *cells, r *journalRow) { c.int(r.task.Number) }},
	{"seq", sqlInt8, func(c *cells, r *journalRow) { c.int(r.Seq) }},
	{"at", sqlTime, func(c *cells, r *journalRow) { c.time(r.At) }},
	{"actor", sqlText, func(c *cells, r *journalRow) { c.text(schema.Words(r.Actor)) }},
	{"kind", sqlText, func(c *cells, r *journalRow) { c.text(string(r.Kind)) }},
	{"state", sqlText, func(c *cells, r *journalRow) { c.text(string(r.State)) }},
	{"round", sqlInt8, func(c *cells, r *journalRow) { c.int(int64(r.Round)) }},
	{"step", sqlInt8, func(c *cells, r *journalRow) { c.unless(-1, int64(r.Step)) }},
	{"step_status", sqlText, func(c *cells, r *journalRow) { c.someText(schema.StatusWord(r.Record)) }},
	{"attempt", sqlInt8, func(c *cells, r *journalRow) { c.int(int64(r.Attempt)) }},
	{"code", sqlInt8, func(c *cells, r *journalRow) { c.unless(0, int64(r.Code)) }},
	{"error", sqlBytes, func(c *cells, r *journalRow) { c.someText(r.Error) }},
	{"fingerprint", sqlText, func(c *cells, r *journalRow) { c.someText(schema.Fingerprint(r.Record)) }},
	{"reason", sqlBytes, func(c *cells, r *journalRow) { c.someText(r.Reason) }},
	{"result", sqlBytes, func(c *cells, r *journalRow) { c.someBytes(r.Result) }},
	{"quiet", sqlTime, func(c *cells, r *journalRow) { c.time(r.EffectsPossibleUntil) }},
	{"next", sqlInt8, func(c *cells, r *journalRow) { c.unless(-1, int64(r.Next)) }},
	{"next_attempt", sqlInt8, func(c *cells, r *journalRow) { c.unless(0, int64(r.NextAttempt)) }},
	{"undo", sqlBool, func(c *cells, r *journalRow) { c.bool(r.Undo) }},
	{"due", sqlTime, func(c *cells, r *journalRow) { c.time(r.Due) }},
	{"deadline", sqlTime, func(c *cells, r *journalRow) { c.time(r.Deadline) }},
	{"input", sqlBytes, func(c *cells, r *journalRow) { c.someBytes(r.input) }},
	{"commit_id", sqlInt8, func(c *cells, r *journalRow) { c.int(r.commit) }},
	{"format", sqlInt2, func(c *cells, r *journalRow) { c.int2(schema.JournalFormat) }},
}

// birthField is no column: the fallback leaves out the records of births that it left out.
var birthField = field[journalRow]{"birth", sqlBool, func(c *cells, r *journalRow) { c.bool(r.birth) }}

// names and values are the columns as an INSERT names them, and what they get of a row u.
func names[R any](fields []field[R]) string { return joined(fields, "%[1]s") }

func values[R any](fields []field[R]) string { return joined(fields, "u.%[1]s") }

// assign is the columns as an UPDATE sets them, to those of a row of that name.
func assign[R any](fields []field[R], row string) string {
	return joined(fields, "%[1]s = "+row+".%[1]s")
}

func joined[R any](fields []field[R], format string) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = fmt.Sprintf(format, f.name)
	}
	return strings.Join(list, ", ")
}

// unnest is the columns as the rows u, from an array parameter each. In a select list,
// unnest runs row by row; in a FROM it would first write every column to a store of its own.
func unnest[R any](first int, fields []field[R]) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = fmt.Sprintf("unnest($%d::%s[]) AS %s", first+i, f.typ.name, f.name)
	}
	return "(SELECT " + strings.Join(list, ", ") + ") AS u"
}

// cells are values in PostgreSQL's binary form, one after the other, each with its length
// before it.
type cells struct{ buf []byte }

func (c *cells) null() { c.buf = append(c.buf, 0xff, 0xff, 0xff, 0xff) }

func (c *cells) int(v int64) {
	c.buf = binary.BigEndian.AppendUint64(append(c.buf, 0, 0, 0, 8), uint64(v))
}

func (c *cells) int2(v int16) {
	c.buf = binary.BigEndian.AppendUint16(append(c.buf, 0, 0, 0, 2), uint16(v))
}

func (c *cells) text(s string) {
	c.buf = append(binary.BigEndian.AppendUint32(c.buf, uint32(len(s))), s...)
}

func (c *cells) bool(v bool) {
	word := byte(0)
	if v {
		word = 1
	}
	c.buf = append(c.buf, 0, 0, 0, 1, word)
}

// unless adds v, or NULL for the value that means none.
func (c *cells) unless(none, v int64) {
	if v == none {
		c.null()
		return
	}
	c.int(v)
}

// putFingerprint adds what groups a failure: an empty text for a task that is in no group whatever failed.
func putFingerprint(c *cells, r *taskRow) {
	if schema.Ungrouped(r.Task) {
		c.text("")
		return
	}
	c.someText(schema.FailureFingerprint(r.Task))
}

// ofChild adds v, or NULL where the task is no child.
func (c *cells) ofChild(r *taskRow, v int64) {
	if r.Parent == 0 {
		c.null()
		return
	}
	c.int(v)
}

func (c *cells) someText(s string) {
	if s == "" {
		c.null()
		return
	}
	c.text(s)
}

func (c *cells) bytes(b []byte) {
	c.buf = append(binary.BigEndian.AppendUint32(c.buf, uint32(len(b))), b...)
}

func (c *cells) someBytes(b []byte) {
	if len(b) == 0 {
		c.null()
		return
	}
	c.bytes(b)
}

// epoch2000 is where PostgreSQL's timestamps begin, 2000-01-01, in microseconds.
const epoch2000 = 946_684_800_000_000

func (c *cells) time(i core.Instant) {
	if i == 0 {
		c.null()
		return
	}
	c.int(int64(i) - epoch2000)
}

// rows are rows of one table in the binary form of COPY: of each row how many columns it
// has, and its cells.
type rows[R any] struct {
	cells
	fields []field[R]
	row    R // the one that is being added, here so that it is not allocated
	n      int
	arrays [][]byte
}

func (r *rows[R]) add(row R) {
	r.n++
	r.row = row
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(len(r.fields)))
	for i := range r.fields {
		r.fields[i].put(&r.cells, &r.row)
	}
	var none R
	r.row = none
}

func (r *rows[R]) reset() { r.buf, r.n = r.buf[:0], 0 }

const arrayHead = 20 // bytes before the elements of an array of one dimension

// params are the columns, each as an array. They are valid until the next call.
func (r *rows[R]) params() [][]byte {
	if r.arrays == nil {
		r.arrays = make([][]byte, len(r.fields))
	}
	nulls := make([]bool, len(r.fields))
	for i := range r.arrays {
		r.arrays[i] = append(r.arrays[i][:0], make([]byte, arrayHead)...)
	}
	for at := 0; at < len(r.buf); {
		at += 2
		for i := range r.arrays {
			size := int(int32(binary.BigEndian.Uint32(r.buf[at:])))
			nulls[i] = nulls[i] || size < 0
			end := at + 4 + max(size, 0)
			r.arrays[i] = append(r.arrays[i], r.buf[at:end]...)
			at = end
		}
	}
	for i, a := range r.arrays {
		binary.BigEndian.PutUint32(a[8:], r.fields[i].typ.oid)
		if r.n == 0 {
			r.arrays[i] = a[:12] // no dimension
			continue
		}
		a[3], a[19] = 1, 1 // dimensions, and the first index
		if nulls[i] {
			a[7] = 1
		}
		binary.BigEndian.PutUint32(a[12:], uint32(r.n))
	}
	return r.arrays
}

// encoded is a batch as the statements of a commit take it. Its memory serves one commit
// after the other.
type encoded struct {
	partitions rows[partitionRow]
	births     rows[taskRow]
	updates    rows[taskRow]
	journal    rows[journalRow]
	labels     rows[labelRow]
	links      rows[chain.Link]
	wire       []byte
}

func newEncoded() *encoded {
	return &encoded{
		partitions: rows[partitionRow]{fields: partitionFields},
		births:     rows[taskRow]{fields: taskFields}, updates: rows[taskRow]{fields: taskFields},
		journal: rows[journalRow]{fields: journalFields}, labels: rows[labelRow]{fields: labelFields},
		links: rows[chain.Link]{fields: linkFields},
	}
}

// fill takes the parts of a batch that are of partitions for which own is true.
func (e *encoded) fill(b *core.Batch, own func(partition int) bool) {
	e.partitions.reset()
	e.births.reset()
	e.updates.reset()
	e.journal.reset()
	e.labels.reset()
	for i := range b.Partitions {
		e.partitions.add(partitionRow{&b.Partitions[i], b.ID})
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		if !own(w.Task.Partition) {
			continue
		}
		switch {
		case w.Birth:
			e.births.add(taskRow{w.Task, b.ID, w.Task.OpenSignals()})
			for k := range w.Task.Labels {
				e.labels.add(labelRow{&w.Task.Labels[k], w.Task})
			}
		case w.Row:
			e.updates.add(taskRow{w.Task, b.ID, w.Task.OpenSignals()})
		}
		for k := range w.Records {
			e.journal.add(journalRow{&w.Records[k], w.Task, schema.InputOf(w, k), w.Birth, b.ID})
		}
	}
}

// fillLinks takes the links of partitions for which own is true.
func (e *encoded) fillLinks(l schema.Links, own func(partition int) bool) {
	e.links.reset()
	for i := range l.All {
		if own(l.All[i].Partition) {
			e.links.add(l.All[i])
		}
	}
}

var binaryFormat = []int16{pgx.BinaryFormatCode}

// What stands before and after the rows of a binary COPY.
const (
	copyHead = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	copyTail = "\xff\xff"
)

// Sizes on the wire.
const (
	// A server allocates room for each message of a COPY; from 128 KiB on that is fresh
	// memory from its kernel every time.
	copyBytes = 32 << 10
	wireBytes = 256 << 10 // of messages that leave together
)

// messages are those of the extended query protocol, one after the other.
type messages struct {
	buf []byte
	to  io.Writer
	err error // the first; nothing is sent after it
}

func (m *messages) add(msg pgproto3.FrontendMessage) {
	buf, err := msg.Encode(m.buf)
	if m.buf = buf; m.err == nil {
		m.err = err
	}
	m.send(wireBytes)
}

// send sends what has gathered, if it is that much.
func (m *messages) send(least int) {
	if m.err != nil || len(m.buf) < least {
		return
	}
	_, m.err = m.to.Write(m.buf)
	m.buf = m.buf[:0]
}

func (m *messages) execute(statement string, params [][]byte) {
	m.add(&pgproto3.Bind{PreparedStatement: statement, ParameterFormatCodes: binaryFormat, Parameters: params})
	m.add(&pgproto3.Execute{})
}

// copy sends rows to a COPY. They follow its statement at once: where that, or one before
// it, has failed, the server skips them, as it skips all up to the sync.
func (m *messages) copy(statement string, rows []byte) {
	if len(rows) == 0 {
		return
	}
	m.add(&pgproto3.Bind{PreparedStatement: statement})
	m.add(&pgproto3.Execute{})
	m.data([]byte(copyHead))
	for part := range slices.Chunk(rows, copyBytes) {
		m.data(part)
	}
	m.data([]byte(copyTail))
	m.add(&pgproto3.CopyDone{})
}

// data is one message of a COPY; a row may go on in the next.
func (m *messages) data(b []byte) {
	m.buf = append(binary.BigEndian.AppendUint32(append(m.buf, 'd'), uint32(4+len(b))), b...)
	m.send(wireBytes)
}
