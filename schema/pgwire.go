package schema

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

var binaryFormat = []int16{pgx.BinaryFormatCode}

// statement is one that is prepared on each connection that commits.
type statement struct{ name, sql string }

// plainStatements are those of every plain commit, which also has one of journalCopies.
var plainStatements = []statement{{"duly_fence", fenceSQL}, {"duly_births", copyBirthsSQL}, {"duly_rows", rowsSQL}}

// What stands before and after the rows of a binary COPY.
const (
	copyHead = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	copyTail = "\xff\xff"
)

// Sizes on the wire.
const (
	// A server makes room for each message of a COPY anew; from 128 KiB on that is
	// fresh memory from its kernel every time.
	copyBytes = 32 << 10
	wireBytes = 256 << 10 // of messages that leave together
)

// plain sends the messages of a plain commit. The rows of a
// COPY follow its statement at once: where that, or one before it, has failed, the
// server skips them, as it skips all up to the sync.
func (c *columns) plain(to io.Writer) error {
	m := messages{buf: c.wire[:0], to: to}
	m.execute("duly_fence", c.own())
	m.copy("duly_births", &c.births)
	m.copy(journalCopies[c.generation].name, &c.journal)
	if c.rows.rows > 0 {
		m.execute("duly_rows", c.update(c.groups.fence.arrays[0].param()))
	}
	m.add(&pgproto3.Sync{})
	m.send(0)
	c.wire = m.buf
	return m.err
}

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

// send lets go of what has gathered, if it is that much.
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

func (m *messages) copy(statement string, t *tuples) {
	if t.rows == 0 {
		return
	}
	m.add(&pgproto3.Bind{PreparedStatement: statement})
	m.add(&pgproto3.Execute{})
	data(m, copyHead)
	for rows := range slices.Chunk(t.buf, copyBytes) {
		data(m, rows)
	}
	data(m, copyTail)
	m.add(&pgproto3.CopyDone{})
}

// data is one message of a COPY; where one ends means nothing.
func data[T string | []byte](m *messages, b T) {
	m.buf = append(binary.BigEndian.AppendUint32(append(m.buf, 'd'), uint32(4+len(b))), b...)
	m.send(wireBytes)
}
