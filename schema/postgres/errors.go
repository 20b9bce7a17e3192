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

// fault says what is at fault for an error of the database, and with that what happens to the batch. What
// the fast path of commit.go takes for the fallback's is judged once that has failed too.
type fault int

const (
	// faultConnection: close the connection and send the batch again over a new one, to another host where
	// the URL names several. The first sending may have been committed.
	faultConnection fault = iota
	// faultTransaction: it was rolled back in favour of another. Send the batch again.
	faultTransaction
	// faultOutcome: the server does not know how the transaction ended. Send the batch again; it recognises
	// its own rows by the commit id.
	faultOutcome
	// faultStatement: the batch is too large or too slow, and sending it again would end the same way. Its
	// owner splits it (core.ErrBatchRefused); no task is to blame.
	faultStatement
	// faultRow: the database refuses one of the rows. The owner finds it by halving (core.ErrRowRefused).
	faultRow
	// faultServer: any commit would fail like this one. The batch is sent until the database takes it, and
	// [Store.Trouble] says why it waits.
	faultServer
	// faultVague: the error does not say what is at fault, nor whether the commit stands. A row is blamed
	// only if it goes on for as long as a server may take to come back, while the database takes a probe.
	faultVague
	// faultNumber: a number that Duly gives is taken, which is a bug of ours (core.ErrForeignRow).
	faultNumber
	// faultCaller: the store is closed.
	faultCaller
)

// verdict is a row of the table of errors.
type verdict struct {
	// code is a SQLSTATE, or the two characters of its class for the rest of that class; "" means that the
	// server said nothing.
	code  string
	whose fault
	// alone is the fault when the batch has one task or none, and so cannot be split.
	alone fault
	// probe says that a row or a statement is blamed only if the database takes a row that cannot be wrong.
	probe bool
	// says explains the error to an operator.
	says string
}

// verdicts is the table of errors. The order does not matter: a whole code wins over its class.
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

// verdictOf looks an error up.
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
	// The end of a session says nothing about the transaction: a pooler ends one like this whatever happened
	// behind it.
	if (severity == "FATAL" || severity == "PANIC") && (v.whose == faultStatement || v.whose == faultRow || v.whose == faultVague) {
		v.whose, v.alone = faultConnection, faultConnection
	}
	return v
}

// unclear reports whether the commit may stand in spite of the error.
func (v verdict) unclear() bool {
	return v.whose == faultConnection || v.whose == faultOutcome || v.whose == faultServer || v.whose == faultVague
}

// usableAfter tells pgx, which asks after each error of a server, whether the connection may be used again: not if the session
// has ended, or the server takes no more writes.
func usableAfter(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.Severity != "FATAL" && err.Severity != "PANIC" && verdictOf(err).whose != faultConnection
}

// serverIsLeaving reports whether an error says that this server takes no more writes, so that all
// connections to it must go.
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

// redact is an error without any value of a task, user or password, for everyone who may ask whether all is
// well.
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

// retryable reports whether a transaction was rolled back and may succeed the next time.
func retryable(err error) bool {
	return sqlState(err) != "" && verdictOf(err).whose == faultTransaction
}

// worthRetrying reports whether a read may succeed the next time. A read cannot be split, and has no row to
// blame.
func worthRetrying(err error) bool {
	switch verdictOf(err).whose {
	case faultConnection, faultTransaction, faultOutcome, faultStatement, faultServer, faultVague:
		return true
	}
	return false
}

// sendings is what is known of a batch's earlier sendings.
type sendings struct {
	tries int
	// unknown says that one of them may have been committed.
	unknown bool
	// probed says that the last one was refused while the database took a probe.
	probed bool
	// since is the first of those in a row.
	since time.Time
}

// whySendAgain decides whether a refused batch is sent again although a row or the statement seems to be at
// fault: the error to report, or nil to accept the refusal. refused is the error of a probe; lasts is for how
// long the batch must have been refused while probes were taken.
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

// judge decides what happens after an error of a commit. again: the batch is sent again. Otherwise judged
// wraps core.ErrRowRefused, core.ErrBatchRefused or core.ErrForeignRow where the owner has to act.
func (p *Store) judge(ctx context.Context, b *core.Batch, err error, past *sendings) (again bool, judged error) {
	// A probe and a look for the commit may wait for locks.
	ctx, cancel := context.WithTimeout(ctx, p.tryMax)
	defer cancel()
	if errors.Is(err, core.ErrForeignRow) {
		return false, err
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
		return false, err
	case faultNumber: // ids give way to each other: these are numbers that we give
		return false, fmt.Errorf("%w: %w", core.ErrForeignRow, err)
	case faultRow:
		refusal = core.ErrRowRefused
	case faultStatement:
		refusal = core.ErrBatchRefused
	case faultVague:
		lasts, refusal = p.tryMax, core.ErrRowRefused
	default:
		return true, err
	}
	if len(b.Writes) == 0 { // no row to blame
		return true, err
	}
	if v.probe {
		if doubt := past.whySendAgain(err, p.probe(ctx, b.Partitions[0].Partition), lasts); doubt != nil {
			return true, doubt
		}
	}
	if past.unknown { // its parts would have other ids, and take the rows of this one for another's
		if stands, look := p.wasCommitted(ctx, b); look != nil || stands {
			return true, errors.Join(err, look)
		}
	}
	return false, fmt.Errorf("%w: %w", refusal, err)
}

// The statements of a probe, beside statements.probeTask and probeRecord. Together they do to each table what
// a commit does.
const (
	probePartitionSQL = `UPDATE partitions SET cursor = cursor WHERE partition = $1`
	probeRowSQL       = `UPDATE tasks SET state = 'processed', seq = 2 WHERE partition = $1 AND number = -1`
	probeEndSQL       = `SET CONSTRAINTS ALL IMMEDIATE` // what a trigger would say at the end of the transaction
)

// errProbed rolls back a probe that the database took.
var errProbed = errors.New("the probe was taken")

// probe asks whether the database would take any row: it writes one that cannot be wrong, and rolls it back.
// The error is what the database has against it.
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

// lockSQL waits for commits and purges of a partition that are under way, and makes later ones wait.
const lockSQL = `SELECT partition FROM partitions WHERE partition = $1 FOR UPDATE`

// wasCommitted reports whether an earlier sending of the batch was committed. It waits for one that is still
// under way, which holds the partitions.
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
