package schema

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// columns is a batch in the forms of the commit's statements: rows for COPY, and
// arrays where a statement unnests its parameters. Its memory is kept between
// commits.
type columns struct {
	id      [8]byte
	births  tuples
	journal tuples
	rows    tuples // rows to update
	fence   tuples
	groups  struct{ fence, births, journal, born, rows group }
	params  [][]byte
	wire    []byte

	generation int // of the journal, that its rows go to; 0: none
}

func newColumns() *columns {
	c := &columns{}
	c.groups.fence, c.groups.rows = newGroup(partitionColumns), newGroup(stateColumns)
	c.groups.births, c.groups.journal = newGroup(birthColumns), newGroup(journalColumns)
	c.groups.born = newGroup([]field{bornColumn})
	return c
}

func (c *columns) fill(b *core.Batch) {
	binary.BigEndian.PutUint64(c.id[:], uint64(b.ID))
	for i := range b.Partitions {
		c.addPartition(&b.Partitions[i], b.ID)
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		switch {
		case w.Birth:
			c.addBirth(w.Task, b.ID)
		case w.Row:
			c.rows.begin(len(stateColumns))
			c.rows.addState(w.Task)
		}
		for k := range w.Records {
			c.addRecord(w.Task, &w.Records[k], b.ID, inputOf(w, k))
		}
	}
}

// addPartition has the order of partitionColumns.
func (c *columns) addPartition(w *core.PartitionWrite, commit int64) {
	t := &c.fence
	t.begin(len(partitionColumns))
	t.int(int64(w.Partition))
	t.int(w.Epoch)
	t.int(w.After)
	t.int(int64(w.Cursor))
	t.int(int64(w.ControlCursor))
	t.int(w.NextNumber)
	t.int(w.NextEnd)
	t.int(w.Told)
	t.int(commit)
	t.time(w.CursorStored)
	t.time(w.ControlStored)
}

// addState has the order of stateColumns.
func (t *tuples) addState(s *core.Task) {
	t.int(int64(s.Partition))
	t.int(s.Number)
	t.int(s.PlanVersion)
	t.text(string(s.State))
	t.int(s.Seq)
	t.int(int64(s.Round))
	t.someText(s.LockedBy)
	t.someText(s.WaitsFor)
	t.time(s.Bound)
	t.time(s.Deadline)
	t.int(int64(s.Failures))
	t.time(s.UpdatedAt)
	t.time(s.EndedAt)
	t.unless(0, s.EndNumber)
}

// addBirth has the order of birthColumns, and the commit after them.
func (c *columns) addBirth(s *core.Task, commit int64) {
	t := &c.births
	t.begin(len(birthColumns) + 1)
	t.addState(s)
	t.text(s.ID)
	t.text(s.Type)
	t.someBytes(s.InputHash)
	t.someText(s.ReplyTo)
	t.someText(s.Trace)
	t.int(int64(s.Origin))
	t.time(s.CreatedAt)
	t.int(commit)
}

// addRecord has the order of journalColumns, and the commit and the format after them.
func (c *columns) addRecord(s *core.Task, r *core.Record, commit int64, input []byte) {
	t := &c.journal
	t.begin(len(journalColumns) + 2)
	t.int(int64(s.Partition))
	t.int(s.Number)
	t.int(r.Seq)
	t.time(r.At)
	t.text(words(r.Actor))
	t.text(string(r.Kind))
	t.text(string(r.State))
	t.int(int64(r.Round))
	t.unless(-1, int64(r.Step))
	t.someText(statusWord(r))
	t.int(int64(r.Attempt))
	t.unless(0, int64(r.Code))
	t.someText(r.Error)
	t.someText(fingerprint(r))
	t.someText(r.Reason)
	t.someBytes(r.Result)
	t.time(r.Quiet)
	t.unless(-1, int64(r.Next))
	t.unless(0, int64(r.NextAttempt))
	t.bool(r.Undo)
	t.time(r.Due)
	t.time(r.Deadline)
	t.someBytes(input)
	t.int(commit)
	t.int2(formatOf(input))
}

// own are the parameters of the fence, careful and update those of their statements.
func (c *columns) own() [][]byte {
	c.groups.fence.fill(&c.fence)
	return c.groups.fence.params(c.params[:0])
}

func (c *columns) careful(b *core.Batch) [][]byte {
	g := &c.groups
	g.fence.fill(&c.fence)
	g.births.fill(&c.births)
	g.journal.fill(&c.journal)
	g.born.fill(births(b))
	c.params = append(c.params[:0], c.id[:])
	for _, g := range []*group{&g.fence, &g.births, &g.journal, &g.born} {
		c.params = g.params(c.params)
	}
	return c.params
}

func (c *columns) update(own []byte) [][]byte {
	c.groups.rows.fill(&c.rows)
	c.params = c.groups.rows.params(append(c.params[:0], c.id[:]))
	return append(c.params, own)
}

// births says of each journal row whether it begins a task.
func births(b *core.Batch) *tuples {
	var t tuples
	for i := range b.Writes {
		for range b.Writes[i].Records {
			t.begin(1)
			t.bool(b.Writes[i].Birth)
		}
	}
	return &t
}

// statusWord is the status of the row's step; without a step, of the zero
// status nothing is kept.
func statusWord(r *core.Record) string {
	if r.Step < 0 && r.StepStatus == core.StepWaiting {
		return ""
	}
	return r.StepStatus.String()
}

// words makes a name that comes from outside fit for a column of text, so that no
// name can keep a task from being written.
func words(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// reset empties the columns and keeps their memory.
func (c *columns) reset() {
	for _, t := range []*tuples{&c.births, &c.journal, &c.rows, &c.fence} {
		t.reset()
	}
	clear(c.params)
}
