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

var sqlTypes = [...]sqlType{
	schema.Int8: {"INT8", 20}, schema.Int2: {"INT2", 21}, schema.Bool: {"BOOL", 16}, schema.Time: {"TIMESTAMPTZ", 1184}, schema.Text: {"TEXT", 25}, schema.Bytes: {"BYTEA", 17},
}

// values are the columns of a row u.
func values[R any](columns []schema.Column[R]) string { return schema.Join(columns, "u.%[1]s") }

// assign is the columns as an UPDATE sets them, to those of a row of that name.
func assign[R any](columns []schema.Column[R], row string) string {
	return schema.Join(columns, "%[1]s = "+row+".%[1]s")
}

// unnest is the columns as the rows u, from an array parameter each. In a select list,
// unnest runs row by row; in a FROM it would first write every column to a store of its own.
func unnest[R any](first int, columns []schema.Column[R]) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = fmt.Sprintf("unnest($%d::%s[]) AS %s", first+i, sqlTypes[c.Type].name, c.Name)
	}
	return "(SELECT " + strings.Join(list, ", ") + ") AS u"
}

// epoch2000 is where PostgreSQL's timestamps begin, 2000-01-01, in microseconds.
const epoch2000 = 946_684_800_000_000

// appender is how the value of a column in a row is appended in PostgreSQL's binary form, with its length before it.
type appender[R any] func(b []byte, r *R) []byte

// appenders are those of columns.
func appenders[R any](columns []schema.Column[R]) []appender[R] {
	all := make([]appender[R], len(columns))
	for i := range columns {
		all[i] = appenderOf(&columns[i])
	}
	return all
}

// appenderOf is made once, because a commit has some three hundred values a task. Small numbers and flags are never NULL.
func appenderOf[R any](c *schema.Column[R]) appender[R] {
	number, text, bytes, none := c.Int, c.Text, c.Bytes, c.None()
	zero := int64(0)
	if c.Type == schema.Time {
		zero = epoch2000
	}
	switch {
	case c.Type == schema.Int2:
		return func(b []byte, r *R) []byte {
			return binary.BigEndian.AppendUint16(append(b, 0, 0, 0, 2), uint16(number(r)))
		}
	case c.Type == schema.Bool:
		return func(b []byte, r *R) []byte { return append(b, 0, 0, 0, 1, byte(number(r))) }
	case number != nil && c.Null == schema.Never:
		return func(b []byte, r *R) []byte {
			return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(number(r)-zero))
		}
	case number != nil:
		return func(b []byte, r *R) []byte {
			v := number(r)
			if v == none && c.IsNull(r) {
				return append(b, null...)
			}
			return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v-zero))
		}
	case text != nil:
		return func(b []byte, r *R) []byte {
			v := text(r)
			if v == "" && c.IsNull(r) {
				return append(b, null...)
			}
			return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		}
	}
	return func(b []byte, r *R) []byte {
		v := bytes(r)
		if len(v) == 0 && c.IsNull(r) {
			return append(b, null...)
		}
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
}

// null is the length of a NULL.
const null = "\xff\xff\xff\xff"

// rows are rows of one table in the binary form of COPY: of each row how many columns it
// has, and its values.
type rows[R any] struct {
	buf     []byte
	columns []schema.Column[R]
	puts    []appender[R]
	row     R // the one that is being added, here so that it is not allocated
	n       int
	arrays  [][]byte
}

func (r *rows[R]) add(row R) {
	r.n++
	r.row = row
	if r.puts == nil {
		r.puts = appenders(r.columns)
	}
	b := binary.BigEndian.AppendUint16(r.buf, uint16(len(r.columns)))
	for i := range r.columns {
		b = r.puts[i](b, &r.row)
	}
	r.buf = b
}

func (r *rows[R]) reset() {
	var none R
	r.buf, r.row, r.n = r.buf[:0], none, 0
}

const arrayHead = 20 // bytes before the elements of an array of one dimension

// params are the columns, each as an array. They are valid until the next call.
func (r *rows[R]) params() [][]byte {
	if r.arrays == nil {
		r.arrays = make([][]byte, len(r.columns))
	}
	nulls := make([]bool, len(r.columns))
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
		binary.BigEndian.PutUint32(a[8:], sqlTypes[r.columns[i].Type].oid)
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
	sql        *statements
	partitions rows[schema.PartitionRow]
	births     rows[schema.TaskRow]
	updates    rows[schema.TaskRow]
	journal    rows[schema.JournalRow]
	labels     rows[schema.LabelRow]
	links      rows[chain.Link]
	wire       []byte
}

func newEncoded(s *statements) *encoded {
	return &encoded{
		sql: s, partitions: rows[schema.PartitionRow]{columns: s.partitions},
		births: rows[schema.TaskRow]{columns: s.tasks}, updates: rows[schema.TaskRow]{columns: s.tasks},
		journal: rows[schema.JournalRow]{columns: s.of.Journal}, labels: rows[schema.LabelRow]{columns: s.of.Labels},
		links: rows[chain.Link]{columns: s.of.Chain},
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
		e.partitions.add(schema.NewPartitionRow(&b.Partitions[i], b.ID))
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		if !own(w.Task.Partition) {
			continue
		}
		switch {
		case w.Birth:
			e.births.add(schema.NewTaskRow(w.Task, b.ID))
			for _, l := range w.Task.Labels {
				e.labels.add(schema.LabelRow{Label: l, Partition: w.Task.Partition, Number: w.Task.Number})
			}
		case w.Row:
			e.updates.add(schema.NewTaskRow(w.Task, b.ID))
		}
		for k := range w.Records {
			e.journal.add(schema.NewJournalRow(w, k, b.ID))
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
