package schema

import (
	"encoding/binary"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

var binaryFormat = []int16{pgx.BinaryFormatCode}

// plainStatements are prepared on each connection that commits.
var plainStatements = []struct{ name, sql string }{
	{"duly_fence", fenceSQL}, {"duly_births", copyBirthsSQL}, {"duly_journal", copyJournalSQL}, {"duly_rows", rowsSQL},
}

// What stands before and after the rows of a binary COPY.
const (
	copyHead = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	copyTail = "\xff\xff"
)

// plain appends the messages of a plain commit. The rows of a
// COPY follow its statement at once: where that, or one before it, has failed, the
// server skips them, as it skips all up to the sync.
func (c *columns) plain(to []byte) ([]byte, error) {
	m := messages{buf: to}
	m.execute("duly_fence", c.own())
	m.copy("duly_births", &c.births)
	m.copy("duly_journal", &c.journal)
	if c.rows.rows > 0 {
		m.execute("duly_rows", c.update(c.groups.fence.arrays[0].param()))
	}
	m.add(&pgproto3.Sync{})
	return m.buf, m.err
}

// messages are those of the extended query protocol, one after the other.
type messages struct {
	buf []byte
	err error
}

func (m *messages) add(msg pgproto3.FrontendMessage) {
	buf, err := msg.Encode(m.buf)
	m.buf, m.err = buf, errors.Join(m.err, err)
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
	m.buf = binary.BigEndian.AppendUint32(append(m.buf, 'd'), uint32(4+len(copyHead)+len(t.buf)+len(copyTail)))
	m.buf = append(append(append(m.buf, copyHead...), t.buf...), copyTail...)
	m.add(&pgproto3.CopyDone{})
}
