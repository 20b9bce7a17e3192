package group

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrNoTable says that the database has no tables for groups, or not where they were looked for.
	ErrNoTable = errors.New("there are no tables of groups here: make them with group.Setup or group.SQL, or set the search_path")
	// ErrOtherGroup says that the group was first run with another stream, rule or number of partitions.
	ErrOtherGroup = errors.New("the group was first run otherwise: name another group, or group.Forget this one")
	// ErrOtherStream says that the stream was deleted and made again: the cursors are of one that is gone.
	ErrOtherStream = errors.New("the stream is not the one that the group has read: group.Forget lets it begin again")
	// ErrRewound says that the stream went back, as one restored from a backup does: it ends before a cursor, or has other
	// messages there.
	ErrRewound = errors.New("the stream went back behind the group's cursor: group.Forget lets the group begin again")
	// ErrNotStopped says that there is nothing to resume.
	ErrNotStopped = errors.New("the partition is not stopped")

	errTheirs = errors.New("the transaction is the group's: return an error to have it rolled back")
	errLost   = errors.New("another member has the partition")
	errHole   = errors.New("messages were lost between the server and this process: reading them again")
)

// fatal holds for an error that ends Run.
func fatal(err error) bool {
	return errors.Is(err, ErrOtherStream) || errors.Is(err, ErrRewound) || errors.Is(err, ErrNoTable) || errors.Is(err, ErrOtherGroup)
}

// States of SQL.
const (
	undefinedTable     = "42P01"
	abortedTransaction = "25P02"
)

// state is the SQLSTATE of an error, or empty.
func state(err error) string {
	if coded, ok := errors.AsType[*pgconn.PgError](err); ok {
		return coded.Code
	}
	return ""
}

// passing holds for an error of a handler that is the database's condition and not the batch's fault: its connection is
// lost, or the server asks for another try, has no room, or stops.
func passing(conn *pgx.Conn, err error) bool {
	if conn == nil || conn.IsClosed() {
		return true
	}
	switch code := state(err); {
	case code == "":
		return false
	case code == "57014": // cancelled, as by statement_timeout: the batch's own
		return false
	default:
		return code[:2] == "08" || code[:2] == "40" || code[:2] == "53" || code[:2] == "57" || code[:2] == "58" || code == "25006"
	}
}

// lent is a transaction that the handler cannot end.
type lent struct{ pgx.Tx }

func (lent) Commit(context.Context) error   { return errTheirs }
func (lent) Rollback(context.Context) error { return errTheirs }
