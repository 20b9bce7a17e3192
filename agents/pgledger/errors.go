package pgledger

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/agents"
)

var (
	// ErrUnknown says that a commit was not answered: it may have happened. Do or Undo of the same key finds out.
	ErrUnknown = errors.New("it is not known whether the transaction was committed: the same key again finds out")
	// ErrNoTable says that the database has no ledger, or not where it was looked for.
	ErrNoTable = errors.New("there is no table " + Table + " here: make it with Ledger.Setup or pgledger.SQL, or name its schema in Options")
	errTheirs  = errors.New("the transaction is the ledger's: return an error to have it rolled back")
)

// States of SQL.
const (
	undefinedTable    = "42P01"
	undefinedFunction = "42883"
	lockNotAvailable  = "55P03"
	notInOrder        = "40001" // with other transactions
	deadlock          = "40P01"
	completionUnknown = "40003"
)

// state is the SQLSTATE of a driver's error: pgx and others have the method.
func state(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// mayRunAgain holds for an error that says that the transaction was rolled back for its order with others. What work has
// refused stays refused, whatever it wraps.
func mayRunAgain(err error) bool {
	if _, said := errors.AsType[*agents.Error](err); said || errors.Is(err, ErrUnknown) {
		return false
	}
	code := state(err)
	return code == notInOrder || code == deadlock
}

// refused is the error of a statement that takes or looks at a key.
func (l *Ledger[T]) refused(key string, err error) error {
	switch state(err) {
	case lockNotAvailable: // by the connection's lock_timeout
		return agents.ErrInProgress
	case undefinedTable:
		return fmt.Errorf("ledger: key %s: %w (%w)", key, ErrNoTable, err)
	case undefinedFunction:
		return fmt.Errorf("ledger: key %s: is this a CockroachDB? Options.CockroachDB says so: %w", key, err)
	}
	return fmt.Errorf("ledger: key %s: %w", key, err)
}

// commitError is that of a commit. Only an answer of the server says that there was none, and not every one does: one that
// shuts down, or lost its own connection to others, may have committed.
func commitError(key string, err error) error {
	code := state(err)
	if errors.Is(err, pgx.ErrTxCommitRollback) { // work went on after a statement had failed
		return fmt.Errorf("ledger: key %s: %w", key, err)
	}
	if code == "" || code == completionUnknown || code[:2] == "08" || code[:2] == "57" || code[:2] == "58" || code[:2] == "XX" {
		return fmt.Errorf("ledger: key %s: %w: %w", key, ErrUnknown, err)
	}
	return fmt.Errorf("ledger: key %s: commit: %w", key, err)
}

// madeByAnother holds for the error of making what another makes at the same time.
func madeByAnother(err error) bool {
	switch state(err) {
	case "23505", "42P07", "42710", notInOrder, deadlock:
		return true
	}
	return false
}
