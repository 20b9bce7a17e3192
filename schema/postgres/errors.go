package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// fault is whose fault an error of the database is, and with that what is done
// about it. It is decided here alone.
type fault int

const (
	// faultConnection: the connection is closed, and the same batch goes through a
	// new one, to another host where the URL names several. What became of the
	// first sending is not known.
	faultConnection fault = iota
	// faultTransaction: rolled back to make way for another; the same batch again.
	faultTransaction
	// faultOutcome: the server does not know how the transaction ended; the same
	// batch again, which recognises its own rows by its commit id.
	faultOutcome
	// faultStatement: too large or too slow. The same again would end the same way:
	// the owner splits the batch (core.ErrBatchRefused), and no task is to blame.
	faultStatement
	// faultRow: one of the rows; the owner finds it by halving (core.ErrRowRefused).
	faultRow
	// faultServer: any commit would end like this one. It is sent again until the
	// database takes it, and [Store.Trouble] tells why it waits.
	faultServer
	// faultVague: the error says neither whose fault it is nor whether the commit stands. It is
	// a row's only where it lasts for as long as a server may take to come back, while a probe
	// is taken.
	faultVague
	// faultNumber: a number that we give is taken (core.ErrForeignRow): a bug.
	faultNumber
	// faultCaller: the store is closed.
	faultCaller
)

// verdict is a row of the table of database errors.
type verdict struct {
	code  string // SQLSTATE, or the first two characters of it for the rest of a class; "" is no word from the server
	whose fault
	alone fault  // whose it is when the batch holds one task or none, so that there is nothing to split
	probe bool   // it is a row's or a statement's only if the database takes a row that cannot be wrong
	says  string // what it means for an operator
}

// verdicts is the table of database errors. A code stands before its class.
var verdicts = []verdict{
	{"", faultConnection, faultConnection, false, "the connection broke"},
	{"08P01", faultStatement, faultServer, false, "the message is too large or broken for the server"},
	{"22", faultRow, faultRow, true, "a value is refused"},
	{"23505", faultNumber, faultNumber, false, "a number is taken"},
	{"23", faultRow, faultRow, true, "a constraint refuses a row"},
	{"25", faultConnection, faultConnection, false, "the session is in another state than it should be"},
	{"25006", faultConnection, faultConnection, false, "the server is read-only: a standby, or a primary that was switched over"},
	{"26", faultConnection, faultConnection, false, "a prepared statement is gone: is a pooler in transaction mode between?"},
	{"28", faultServer, faultServer, false, "the database refuses this user or password"},
	{"34", faultConnection, faultConnection, false, "a cursor is gone"},
	{"38", faultRow, faultRow, true, "a function outside refuses a row"},
	{"39", faultRow, faultRow, true, "a trigger refuses a row"},
	{"3D", faultServer, faultServer, false, "the database is not there"},
	{"3F", faultServer, faultServer, false, "the schema is not there"},
	{"09", faultRow, faultRow, true, "a trigger refuses a row"},
	{"0A", faultConnection, faultConnection, false, "the server does not take a statement that it took: its tables have changed"},
	{"27", faultRow, faultRow, true, "a trigger changes the row"},
	{"40003", faultOutcome, faultOutcome, false, "the server does not know whether it has committed"},
	{"40", faultTransaction, faultTransaction, false, "the transaction made way for another"},
	{"42P05", faultConnection, faultConnection, false, "a prepared statement is there already: is a pooler in transaction mode between?"},
	{"42501", faultServer, faultServer, false, "this user may not write"},
	{"42", faultServer, faultServer, false, "the tables are not those of this version"},
	{"44", faultRow, faultRow, true, "a view's condition refuses a row"},
	{"53100", faultServer, faultServer, false, "the database's disk is full"},
	{"53200", faultStatement, faultServer, false, "the database is out of memory"},
	{"53300", faultServer, faultServer, false, "the database has no connection left"},
	{"53", faultServer, faultServer, false, "the database is short of something"},
	{"54", faultStatement, faultRow, true, "something is too large for the database"},
	{"55P03", faultServer, faultServer, false, "another session holds a lock"},
	{"55", faultServer, faultServer, false, "what is needed is in use"},
	{"57014", faultStatement, faultServer, false, "a statement took longer than its time-out, or was cancelled"},
	{"57P01", faultConnection, faultConnection, false, "the server is being shut down, or ended this session"},
	{"57P02", faultConnection, faultConnection, false, "the server crashed"},
	{"57P03", faultConnection, faultConnection, false, "the server takes no connections yet"},
	{"57P05", faultConnection, faultConnection, false, "the session was idle for too long"},
	{"57", faultServer, faultServer, false, "an operator stands in the way"},
	{"58", faultServer, faultServer, false, "the server's system fails"},
	{"72", faultTransaction, faultTransaction, false, "the snapshot is too old"},
	{"08", faultConnection, faultConnection, false, "the connection broke"},
	{"F0", faultServer, faultServer, false, "the server's configuration is broken"},
	{"P0", faultRow, faultRow, true, "a trigger refuses a row"},
	{"XX001", faultServer, faultServer, false, "the server's data are damaged"},
	{"XX002", faultServer, faultServer, false, "an index of the server is damaged: REINDEX it"},
	{"XXC01", faultServer, faultServer, false, "CockroachDB wants its full binary"},
	{"XXC02", faultServer, faultServer, false, "CockroachDB wants a licence"},
	{"XX", faultVague, faultVague, true, "the server has an internal error"},
}

// anyOther is the verdict on a code that is not in the table.
var anyOther = verdict{whose: faultVague, alone: faultVague, probe: true, says: "the database refuses"}

// verdictOf finds an error in the table.
func verdictOf(err error) verdict {
	if errors.Is(err, puddle.ErrClosedPool) {
		return verdict{whose: faultCaller, alone: faultCaller, says: "the store is closed"}
	}
	v, severity := anyOther, ""
	state := ""
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		state, severity = pg.Code, pg.Severity
	}
	if i := slices.IndexFunc(verdicts, func(v verdict) bool { return v.code == state }); i >= 0 {
		v = verdicts[i]
	} else if i := slices.IndexFunc(verdicts, func(v verdict) bool { return len(v.code) == 2 && strings.HasPrefix(state, v.code) }); i >= 0 {
		v = verdicts[i]
	}
	// With the session went the word on the transaction: a pooler ends one like that
	// whatever happened behind it.
	if (severity == "FATAL" || severity == "PANIC") && (v.whose == faultStatement || v.whose == faultRow || v.whose == faultVague) {
		v.whose, v.alone = faultConnection, faultConnection
	}
	return v
}

// unclear reports whether an error leaves open what became of the commit.
func (v verdict) unclear() bool {
	return v.whose == faultConnection || v.whose == faultOutcome || v.whose == faultServer || v.whose == faultVague
}

// usableAfter reports whether the connection may be used after an error: pgx asks at each.
func usableAfter(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.Severity != "FATAL" && err.Severity != "PANIC" && verdictOf(err).whose != faultConnection
}

// serverIsLeaving reports whether an error says that the server is none to write to any more,
// so that no connection to it is.
func serverIsLeaving(err error) bool {
	switch sqlState(err) {
	case "25006", "57P01", "57P02":
		return true
	}
	return false
}

// sqlState is the code of a server's error, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// redact is an error as it may be shown to everyone who asks whether all is well: without
// any value of a task, user or password.
func redact(err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &pg):
		return fmt.Errorf("%s: SQLSTATE %s", verdictOf(err).says, pg.Code)
	case errors.As(err, &connect):
		return fmt.Errorf("no connection to the database: %w", errors.Unwrap(connect))
	}
	return err
}

// retryable: rolled back, may succeed the next time.
func retryable(err error) bool {
	return sqlState(err) != "" && verdictOf(err).whose == faultTransaction
}

// again: worth asking once more, where there is nothing to split and no row to blame.
func worthRetrying(err error) bool {
	switch verdictOf(err).whose {
	case faultConnection, faultTransaction, faultOutcome, faultStatement, faultServer, faultVague:
		return true
	}
	return false
}

// sendings are what is known of a batch's earlier ones.
type sendings struct {
	tries   int
	unknown bool      // one may have been committed
	probed  bool      // the last was refused while a row without fault was taken
	since   time.Time // the first of those that were refused so in a row
}

// whySendAgain is why a refused batch is sent again although a row or the statement seems to be
// at fault; refused is what the probe of a row without fault came to, lasts how long it has
// to be refused for. nil: there is none.
func (past *sendings) whySendAgain(err, refused error, lasts time.Duration) error {
	if refused != nil {
		past.probed = false
		return fmt.Errorf("%w (and of a row without fault: %w)", err, refused)
	}
	if !past.probed { // the database may have been in trouble until a moment ago
		past.probed, past.since = true, time.Now()
		return err
	}
	if time.Since(past.since) < lasts {
		return err
	}
	return nil
}

// judge says what is done about an error of a commit: what it returns wraps
// core.ErrRowRefused, core.ErrBatchRefused or core.ErrForeignRow where its owner has to
// act, and the batch is sent again where send is true.
func (p *Store) judge(ctx context.Context, b *core.Batch, err error, past *sendings) (judged error, send bool) {
	ctx, cancel := context.WithTimeout(ctx, p.tryMax)
	defer cancel()
	if errors.Is(err, core.ErrForeignRow) {
		return err, false
	}
	v := verdictOf(err)
	whose := v.whose
	if len(b.Writes) <= 1 {
		whose = v.alone
	}
	var refusal error
	lasts := time.Duration(0)
	switch whose {
	case faultCaller:
		return err, false
	case faultNumber: // ids give way to each other: these are numbers that we give
		return fmt.Errorf("%w: %w", core.ErrForeignRow, err), false
	case faultRow:
		refusal = core.ErrRowRefused
	case faultStatement:
		refusal = core.ErrBatchRefused
	case faultVague:
		lasts, refusal = p.tryMax, core.ErrRowRefused
	default:
		return err, true
	}
	if len(b.Writes) == 0 { // no row to blame
		return err, true
	}
	if v.probe {
		if doubt := past.whySendAgain(err, p.probe(ctx, b.Partitions[0].Partition), lasts); doubt != nil {
			return doubt, true
		}
	}
	if past.unknown { // its parts would have other ids, and take the rows of this one for another's
		if stands, look := p.wasCommitted(ctx, b); look != nil || stands {
			return errors.Join(err, look), true
		}
	}
	return fmt.Errorf("%w: %w", refusal, err), false
}

// The statements of a probe beside those of its rows (statements.probeTask): it does to each table what a commit does.
const (
	probePartitionSQL = `UPDATE partitions SET cursor = cursor WHERE partition = $1`
	probeRowSQL       = `UPDATE tasks SET state = 'processed', seq = 2 WHERE partition = $1 AND number = -1`
	probeEndSQL       = `SET CONSTRAINTS ALL IMMEDIATE` // what a trigger would say at the end of the transaction
)

var errProbed = errors.New("the probe was taken")

// probe reports what the database has against any row: it writes one that cannot be
// wrong, and rolls it back.
func (p *Store) probe(ctx context.Context, partition int) error {
	err := pgx.BeginTxFunc(ctx, p.pool, p.tx, func(tx pgx.Tx) error {
		w := schema.Probe(partition)
		task, record := schema.NewTaskRow(w.Task, 0), schema.NewJournalRow(&w, 0, 0)
		for _, s := range []struct {
			sql  string
			args []any
		}{
			{probePartitionSQL, []any{partition}},
			{p.sql.probeTask, schema.Args(nil, p.sql.tasks, &task, shared.Time)},
			{p.sql.probeRecord, schema.Args(nil, p.sql.of.Journal, &record, shared.Time)},
			{probeRowSQL, []any{partition}},
		} {
			if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
				return err
			}
		}
		if p.dialect == "postgres" {
			if _, err := tx.Exec(ctx, probeEndSQL); err != nil {
				return err
			}
		}
		return errProbed
	})
	if errors.Is(err, errProbed) {
		return nil
	}
	return err
}

// lockSQL makes others' commits and purges of a partition wait, and waits for theirs.
const lockSQL = `SELECT partition FROM partitions WHERE partition = $1 FOR UPDATE`

// wasCommitted reports whether an earlier sending of the batch was committed. One that is
// still under way holds the partitions, and is waited for.
func (p *Store) wasCommitted(ctx context.Context, b *core.Batch) (bool, error) {
	own, ours := make([]int64, len(b.Partitions)), 0
	for i := range b.Partitions {
		own[i] = int64(b.Partitions[i].Partition)
	}
	slices.Sort(own) // one order for all processes, so that no two wait for each other
	err := pgx.BeginTxFunc(ctx, p.pool, p.tx, func(tx pgx.Tx) error {
		for _, partition := range own {
			if _, err := tx.Exec(ctx, lockSQL, partition); err != nil {
				return err
			}
		}
		var err error
		ours, err = countOurs(ctx, tx, b, own)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("whether commit %d stands: %w", b.ID, err)
	}
	return ours > 0, nil
}
