package schema

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// columns is a batch turned into the array parameters of the commit's
// statements. Its memory is kept between commits.
type columns struct {
	id        [8]byte
	partition group
	births    group
	journal   group
	born      group // one column: journal rows of births
	rows      group // rows to update
	params    [][]byte
}

func newColumns() *columns {
	return &columns{
		partition: newGroup(partitionColumns), births: newGroup(birthColumns), journal: newGroup(journalColumns),
		born: newGroup([]field{bornColumn}), rows: newGroup(stateColumns),
	}
}

func (c *columns) fill(b *core.Batch) {
	binary.BigEndian.PutUint64(c.id[:], uint64(b.ID))
	for i := range b.Partitions {
		c.addPartition(&b.Partitions[i])
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		switch {
		case w.Birth:
			c.addBirth(w.Task)
		case w.Row:
			c.rows.addState(w.Task)
		}
		for k := range w.Records {
			c.addRecord(w, &w.Records[k])
		}
	}
}

// addPartition has the order of partitionColumns.
func (c *columns) addPartition(w *core.PartitionWrite) {
	g := &c.partition
	g.begin()
	g.int(int64(w.Partition))
	g.int(w.Epoch)
	g.int(int64(w.Cursor))
	g.int(int64(w.ControlCursor))
	g.int(w.NextNumber)
	g.int(w.NextEnd)
	g.int(w.Told)
}

// addState has the order of stateColumns.
func (g *group) addState(t *core.Task) {
	g.begin()
	g.int(int64(t.Partition))
	g.int(t.Number)
	g.someInt(t.PlanVersion)
	g.text(string(t.State))
	g.int(t.Seq)
	g.someInt(int64(t.Round))
	g.someText(t.LockedBy)
	g.someText(t.WaitsFor)
	g.time(t.Bound)
	g.time(t.Deadline)
	g.someInt(int64(t.Failures))
	g.time(t.UpdatedAt)
	g.time(t.EndedAt)
	g.someInt(t.EndNumber)
}

// addBirth has the order of birthColumns.
func (c *columns) addBirth(t *core.Task) {
	g := &c.births
	g.addState(t)
	g.text(t.ID)
	g.text(t.Type)
	g.someBytes(t.Input)
	g.someBytes(t.InputHash)
	g.someText(t.ReplyTo)
	g.someText(t.Trace)
	g.someInt(int64(t.Origin))
	g.time(t.CreatedAt)
}

// addRecord has the order of journalColumns.
func (c *columns) addRecord(w *core.TaskWrite, r *core.Record) {
	g := &c.journal
	g.begin()
	g.int(int64(w.Task.Partition))
	g.int(w.Task.Number)
	g.int(r.Seq)
	g.time(r.At)
	g.text(words(r.Actor))
	g.text(string(r.Kind))
	g.text(string(r.State))
	g.someInt(int64(r.Round))
	g.place(r.Step)
	g.someText(statusWord(r))
	g.someInt(int64(r.Attempt))
	g.someInt(int64(r.Code))
	g.someBytes(text(r.Error))
	g.someText(fingerprint(r))
	g.someBytes(text(r.Reason))
	g.someBytes(r.Result)
	g.time(r.Quiet)
	g.place(r.Next)
	g.someInt(int64(r.NextAttempt))
	if r.Undo {
		g.bool(true)
	} else {
		g.null()
	}
	g.time(r.Due)
	g.time(r.Deadline)
	c.born.begin()
	if w.Birth {
		c.born.bool(true)
	} else {
		c.born.null()
	}
}

// plain, careful and update are the parameters of the three statements.
func (c *columns) plain() [][]byte {
	c.params = append(c.params[:0], c.id[:])
	for _, g := range []*group{&c.partition, &c.births, &c.journal} {
		c.params = g.params(c.params)
	}
	return c.params
}

func (c *columns) careful() [][]byte { return c.born.params(c.plain()) }

func (c *columns) update(own []byte) [][]byte {
	c.params = c.rows.params(append(c.params[:0], c.id[:]))
	return append(c.params, own)
}

// statusWord is the status of the row's step; without a step, of the zero
// status nothing is kept.
func statusWord(r *core.Record) string {
	if r.Step < 0 && r.StepStatus == core.StepWaiting {
		return ""
	}
	return r.StepStatus.String()
}

// text is a person's or an agent's words as bytes; none is NULL.
func text(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// words makes a name that comes from outside fit for a column of text, so that no
// name can keep a task from being written.
func words(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// size is more than the bytes of all statements.
func (c *columns) size() int {
	n := 4096
	for _, g := range []*group{&c.partition, &c.births, &c.journal, &c.born, &c.rows} {
		for i := range g.arrays {
			n += len(g.arrays[i].buf)
		}
	}
	return n
}

// reset empties the columns and keeps their memory.
func (c *columns) reset() {
	for _, g := range []*group{&c.partition, &c.births, &c.journal, &c.born, &c.rows} {
		g.reset()
	}
	clear(c.params)
}
