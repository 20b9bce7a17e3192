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

// sqlType is a column's type, by its name in a cast and its number in the protocol.
type sqlType struct {
	name string
	oid  uint32
}

// sqlTypes are by schema.Type. The numbers are PostgreSQL's own and do not change.
var sqlTypes = [...]sqlType{
	schema.Int8: {"INT8", 20}, schema.Int2: {"INT2", 21}, schema.Bool: {"BOOL", 16}, schema.Time: {"TIMESTAMPTZ", 1184}, schema.Text: {"TEXT", 25}, schema.Bytes: {"BYTEA", 17},
}

// values lists the columns of the row u.
func values[R any](columns []schema.Column[R]) string { return schema.Join(columns, "u.%[1]s") }

// assign is the SET list of an UPDATE from the row with a name.
func assign[R any](columns []schema.Column[R], row string) string {
	return schema.Join(columns, "%[1]s = "+row+".%[1]s")
}

// unnest makes rows u from an array parameter for each column, the first being $first. It is in a select
// list, where unnest runs row by row; in a FROM PostgreSQL would first store every column.
func unnest[R any](first int, columns []schema.Column[R]) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = fmt.Sprintf("unnest($%d::%s[]) AS %s", first+i, sqlTypes[c.Type].name, c.Name)
	}
	return "(SELECT " + strings.Join(list, ", ") + ") AS u"
}

// epoch2000 is 2000-01-01, from which PostgreSQL's binary timestamps count, in microseconds.
const epoch2000 = 946_684_800_000_000

// appender appends a row's value of one column in PostgreSQL's binary form, with its length before it.
type appender[R any] func(b []byte, r *R) []byte

// appenders makes the appenders of columns.
func appenders[R any](columns []schema.Column[R]) []appender[R] {
	all := make([]appender[R], len(columns))
	for i := range columns {
		all[i] = appenderOf(&columns[i])
	}
	return all
}

// appenderOf makes a column's appender, once: a commit has some three hundred values for each task. Int2 and
// Bool columns are never NULL.
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

// null is the length that says NULL.
const null = "\xff\xff\xff\xff"

// rows collects rows in the binary form of COPY: for each the number of its columns, and its values.
type rows[R any] struct {
	buf     []byte
	columns []schema.Column[R]
	// puts are made with the first row.
	puts []appender[R]
	// row is the one that is being added; a variable of add would be allocated for each.
	row R
	n   int
	// arrays is what params returned.
	arrays [][]byte
}

// add appends a row.
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

// reset drops the rows and keeps the memory.
func (r *rows[R]) reset() {
	var none R
	r.buf, r.row, r.n = r.buf[:0], none, 0
}

const arrayHead = 20 // bytes before the elements of an array of one dimension

// params turns the rows into an array parameter for each column. They are valid until the next call.
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
			// A value in a row of COPY and in an array has the same form: its length and its bytes. So it is
			// copied as it is.
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

// encoded is a batch in the form that the statements take. One commit after the other uses its memory.
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

// newEncoded makes the memory for batches of the statements' columns.
func newEncoded(s *statements) *encoded {
	return &encoded{
		sql: s, partitions: rows[schema.PartitionRow]{columns: s.partitions},
		births: rows[schema.TaskRow]{columns: s.tasks}, updates: rows[schema.TaskRow]{columns: s.tasks},
		journal: rows[schema.JournalRow]{columns: s.of.Journal}, labels: rows[schema.LabelRow]{columns: s.of.Labels},
		links: rows[chain.Link]{columns: s.of.Chain},
	}
}

// fill takes in the parts of a batch that belong to partitions for which own is true. All moves of partitions
// are in, for the fence to judge.
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

// fillLinks takes in the links of the partitions for which own is true.
func (e *encoded) fillLinks(l schema.Links, own func(partition int) bool) {
	e.links.reset()
	for i := range l.All {
		if own(l.All[i].Partition) {
			e.links.add(l.All[i])
		}
	}
}

// binaryFormat says that all parameters or all results are binary.
var binaryFormat = []int16{pgx.BinaryFormatCode}

// The header and the trailer of a binary COPY.
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

// messages writes messages of the extended query protocol, several at a time.
type messages struct {
	buf []byte
	to  io.Writer
	// err is the first error. Nothing is sent after it.
	err error
}

// add appends a message, and sends what has gathered when that is much.
func (m *messages) add(msg pgproto3.FrontendMessage) {
	buf, err := msg.Encode(m.buf)
	if m.buf = buf; m.err == nil {
		m.err = err
	}
	m.send(wireBytes)
}

// send writes what has gathered if it is least bytes or more.
func (m *messages) send(least int) {
	if m.err != nil || len(m.buf) < least {
		return
	}
	_, m.err = m.to.Write(m.buf)
	m.buf = m.buf[:0]
}

// execute adds the execution of a prepared statement.
func (m *messages) execute(statement string, params [][]byte) {
	m.add(&pgproto3.Bind{PreparedStatement: statement, ParameterFormatCodes: binaryFormat, Parameters: params})
	m.add(&pgproto3.Execute{})
}

// copy adds a COPY and its rows at once, without waiting for the server's word: if the statement or one
// before it failed, the server skips everything up to the sync.
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

// data adds a message of a COPY. A row may continue in the next.
func (m *messages) data(b []byte) {
	m.buf = append(binary.BigEndian.AppendUint32(append(m.buf, 'd'), uint32(4+len(b))), b...)
	m.send(wireBytes)
}
