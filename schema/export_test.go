package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"duly.dev/duly/internal/core"
)

// DB is the database behind a store, for tests that look behind it.
func DB(s Store) *sql.DB {
	if p, ok := s.(*postgres); ok {
		return p.db
	}
	return baseOf(s).db
}

// UpdateSQL is the update of a commit's rows, UpdateParams how many parameters it has.
var UpdateSQL, UpdateParams = updateSQL, len(taskFields)

// WriterDB is the database of a SQLite store that may be written to.
func WriterDB(s Store) *sql.DB { return baseOf(s).writer }

// baseOf is the base of a store whose dialect has a package of its own.
func baseOf(s Store) *Base { return s.(interface{ base() *Base }).base() }


// Reads are the queries that must not walk all tasks, with values for their
// parameters and the indexes they go by.
var Reads = []struct {
	Name, SQL, Values string
	Indexes           []string
}{
	{"active", dollars(qActive), "1, 0, 1000", []string{"tasks_active"}},
	{"overdue", dollars(qOverdue), "1, '2040-01-01', '1970-01-01', 0, 1000", []string{"tasks_active", "tasks_parked"}},
	{"waiting", dollars(qWaiting), "1, 'agent1', 100, 1000", []string{"tasks_waiting"}},
	{"next agent", dollars(qNextAgent), "1, ''", []string{"tasks_waiting"}},
	{"untold", dollars(qUntold), "1, 3, 1000", []string{"tasks_ended"}},
}

// Lists are the statements on the rows of a list, with values for their parameters.
// They change no row that is there.
func Lists() []struct{ Name, SQL, Values string } {
	return []struct{ Name, SQL, Values string }{
		{"journals", dollars(qJournal + amongSQL("journal", "number") + ` ORDER BY number, seq`), `1, '{7,8,9}', ''`},
		{"numbers", dollars(qTasks + amongSQL("tasks", "number")), `1, '{7,8,9}'`},
		{"ids", dollars(qTasks + amongSQL("tasks", "id")), `1, '{a,b,c}'`},
		{"forget rows", forgetRowsSQL, `1, '{7,8,9}', '2020-01-01', 0`},
		{"forget inputs", forgetInputsSQL, `1, '{7,8,9}', '2020-01-01', 0`},
		{"forget", forgetSQL, `1, '{7,8,9}', '2020-01-01', 0`},
		{"born", bornSQL, `'{1,1,1}', '{a,b,c}', '{0,1,2}'`},
		{"ours", oursSQL, `1, '{1,1,1}', '{7,8,9}', '{0,0,0}', '{1}'`},
	}
}

// Passing reports whether an error is the server's or the connection's and may be
// gone the next time.
func Passing(err error) bool {
	if state := sqlState(err); state != "" {
		return again(err)
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}

// migratorOf is what migrates a store, and the database that it writes to.
func migratorOf(s Store) (*goose.Provider, *sql.DB, error) {
	if pg, ok := s.(*postgres); ok {
		p, err := pg.migrator(pg.db)
		return p, pg.db, err
	}
	b := baseOf(s)
	p, err := migrator(b.writer, goose.DialectSQLite3, "sqlite")
	return p, b.writer, err
}

// MigrateTo brings an empty store to an earlier version of the tables, and returns
// its database, which may be written to.
func MigrateTo(ctx context.Context, s Store, version int64) (*sql.DB, error) {
	p, db, err := migratorOf(s)
	if err == nil {
		_, err = p.UpTo(ctx, version)
	}
	return db, err
}

// Versions are those of the tables, the oldest first.
func Versions(s Store) ([]int64, error) {
	p, _, err := migratorOf(s)
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, source := range p.ListSources() {
		all = append(all, source.Version)
	}
	return all, nil
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
func Redacted(err error) error { return redacted(err) }

// MigrationLock is the advisory lock of who migrates.
const MigrationLock = migrationLock

// Says is what the table of errors says of a code.
func Says(code string) string { return verdictOf(&pgconn.PgError{Code: code}).says }

// AskedDB is the database as those who ask see it.
func AskedDB(s Store) *sql.DB { return readerOf(s).db }

func readerOf(s Store) *reader {
	if pg, ok := s.(*postgres); ok {
		return pg.asked.of
	}
	return baseOf(s).asked.of
}

// Question is a query of those who ask.
type Question struct {
	SQL  string
	Args []any
}

// Listing is the query of a list of partition 1, from its beginning or from a place in it.
func Listing(s Store, f core.Filter, from string) (Question, error) {
	r := readerOf(s)
	var after *place
	if from != "" {
		p, err := parsePlace(from)
		if err != nil {
			return Question{}, err
		}
		after = &p
	}
	q, args := r.listQuery(1, f, after)
	return Question{r.params(q), args}, nil
}

// Countings are the queries of counts of partition 1.
func Countings(s Store) (all []Question) {
	for _, g := range countGroups {
		all = append(all, Question{readerOf(s).params(g.query), []any{1, 100}})
	}
	return all
}
