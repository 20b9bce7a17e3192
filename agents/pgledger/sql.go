package pgledger

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"fmt"
	"strings"

	"duly.dev/duly/internal/core"
)

// Table is the name of the table.
const Table = "duly_ledger"

// SQL makes the table and its index, where they are not there yet: for your own migrations.
//
//go:embed ledger.sql
var SQL string

// What a row says of its key.
const (
	stateWorking = "working" // only the transaction that wrote it sees this
	stateDone    = "done"
	stateUndoing = "undoing" // a tombstone whose work has not succeeded
	stateUndone  = "undone"
)

// statements are the ledger's for its table. The second parameter of claim and hold is how long the transaction may stand
// still, in milliseconds; the third, as bury's second, is the lock of the key.
type statements struct{ claim, read, record, bury, hold, settle, free, forget string }

// takes holds for a transaction that has got the lock of its key. None waits for it: an insert would wait for another one of
// the same key that has not committed, and a row lock with NOWAIT finds only rows that have.
const (
	takes  = `pg_try_advisory_xact_lock($%d::INT8)`
	limits = `set_config('idle_in_transaction_session_timeout', $2::TEXT, true) <> ''`
)

func statementsOf(table string, cockroach bool) statements {
	takesIn := func(parameter int) string {
		if cockroach {
			return "true"
		}
		return fmt.Sprintf(takes, parameter)
	}
	return statements{
		claim: `INSERT INTO ` + table + ` (key, state) SELECT $1::TEXT, '` + stateWorking + `' WHERE ` + takesIn(3) + ` AND ` + limits + `
			ON CONFLICT (key) DO NOTHING`,
		read: `SELECT state, result IS NOT NULL, result FROM ` + table + ` WHERE key = $1`,
		record: `UPDATE ` + table + ` SET state = '` + stateDone + `', result = $2
			WHERE key = $1 AND state = '` + stateWorking + `'`,
		// A row that has its tombstone already is left as it is.
		bury: `INSERT INTO ` + table + ` AS l (key, state) SELECT $1::TEXT, '` + stateUndoing + `' WHERE ` + takesIn(2) + `
			ON CONFLICT (key) DO UPDATE SET state = '` + stateUndoing + `', touched = now()
			WHERE l.state IN ('` + stateDone + `', '` + stateWorking + `')`,
		hold: `SELECT state, result IS NOT NULL, result FROM ` + table + `
			WHERE key = $1 AND ` + takesIn(3) + ` AND ` + limits + ` FOR UPDATE SKIP LOCKED`,
		settle: `UPDATE ` + table + ` SET state = '` + stateUndone + `', result = NULL, touched = now()
			WHERE key = $1 AND state = '` + stateUndoing + `'`,
		free: `SELECT ` + takesIn(1),
		forget: `DELETE FROM ` + table + ` WHERE key IN (SELECT key FROM ` + table + `
			WHERE touched < now() - $1::INT8 * INTERVAL '1 microsecond' ORDER BY touched LIMIT $2 FOR UPDATE SKIP LOCKED)`,
	}
}

// lock is the number of a key's advisory lock. Two keys with the same one only exclude each other for a time.
func (l *Ledger[T]) lock(key string) int64 {
	sum := sha256.Sum256([]byte(l.table + "\x00" + key))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// row is what the table says of a key.
type row struct {
	state  string // empty: there is no row, or another transaction has it
	known  bool   // a do has committed, with result
	result []byte
}

// read reads one.
func (l *Ledger[T]) read(ctx context.Context, tx T, key, text string, args ...any) (row, error) {
	var r row
	if _, err := l.db.row(ctx, tx, text, args, &r.state, &r.known, &r.result); err != nil {
		return row{}, l.refused(key, err)
	}
	return r, nil
}

// probe is what a row says to a probe; free: no transaction of the key is at work.
func (r row) probe(key string, free bool) (core.Probe, error) {
	switch {
	case r.state == stateDone:
		return core.Probe{Outcome: core.ProbeDone, Result: r.result}, nil
	case r.state == stateUndoing, r.state == "" && !free:
		return core.Probe{Outcome: core.ProbeInProgress}, nil
	case r.state == stateUndone, r.state == "":
		return core.Probe{Outcome: core.ProbeAbsent}, nil
	}
	return core.Probe{}, fmt.Errorf("ledger: key %s: its work ended the ledger's transaction, so its result is not known", key)
}

// Setup makes the table where it is not there yet; two may do it at a time. The user needs the right to make tables.
func (l *Ledger[T]) Setup(ctx context.Context) error {
	for text := range strings.SplitSeq(strings.ReplaceAll(SQL, Table+" (", l.table+" ("), ";\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		_, err := l.db.alone(ctx, text)
		if madeByAnother(err) {
			_, err = l.db.alone(ctx, text)
		}
		if err != nil {
			return fmt.Errorf("ledger: make table %s: %w", l.table, err)
		}
	}
	return nil
}
