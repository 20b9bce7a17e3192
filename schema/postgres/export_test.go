package postgres

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/schema"
)

// DB is the database behind a store, for tests that look behind it.
func (p *Store) DB() *sql.DB { return p.db }

// AskDB is the same for people who ask.
func (p *Store) AskDB() *sql.DB { return p.askDB }

// UpdateSQL is the update of a commit's rows, UpdateParams how many parameters it has.
var UpdateSQL, UpdateParams = newStatements(schema.Columns()).update.sql, len(newStatements(schema.Columns()).tasks)

// Lists are the statements on the rows of a list, with values for their parameters.
func Lists() []struct{ Name, SQL, Values string } {
	return []struct{ Name, SQL, Values string }{
		{"journals", dollars(`SELECT seq` + among("journal", "number") + ` ORDER BY number, seq`), `1, '{7,8,9}'`},
		{"numbers", dollars(`SELECT id` + among("tasks", "number")), `1, '{7,8,9}'`},
		{"ids", dollars(`SELECT id` + among("tasks", "id")), `1, '{a,b,c}'`},
		{"ours", oursSQL, `1, '{1,1,1}', '{7,8,9}', '{0,0,0}', '{1}'`},
		{"old", oldSQL, `1, '{7,8,9}', '2030-01-01', 0`},
		{"forget", forgetSQL, `1, '{7,8,9}'`},
		{"forget rows", forgetRowsSQL, `1, '{7,8,9}', '2030-01-01', 0`},
		{"born", bornSQL, `'{1,1,1}', '{a,b,c}', '{0,1,2}'`},
	}
}

// Passing reports whether an error is the server's or the connection's and may be
// gone the next time.
func Passing(err error) bool {
	if state := sqlState(err); state != "" {
		return worthRetrying(err)
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}

// VerdictCodes are the codes and classes in the table of errors.
func VerdictCodes() (codes []string) {
	for _, v := range verdicts {
		codes = append(codes, v.code)
	}
	return codes
}

// Blames is connection, or something else, for an error.
func Blames(err error) string {
	if v := verdictOf(err); v.whose == faultConnection && v.alone == faultConnection {
		return "connection"
	}
	return "something else"
}

// Redacted is an error as Trouble tells it.
func Redacted(err error) error { return redact(err) }

// Says is what the table of errors says of a code.
func Says(code string) string { return verdictOf(&pgconn.PgError{Code: code}).says }

// DeadAfter is after how long a silent connection is given up.
const DeadAfter = deadAfter

// Connections are the network connections of a store.
func (p *Store) Connections() (all []net.Conn) {
	p.sockets.mu.Lock()
	defer p.sockets.mu.Unlock()
	for c := range p.sockets.open {
		all = append(all, c.Conn)
	}
	return all
}
