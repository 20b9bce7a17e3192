package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// judge decides what happens after an error of a commit. again: the batch is tried again. Otherwise judged
// wraps core.ErrRowRefused or core.ErrForeignRow where the owner has to act.
func (s *Store) judge(ctx context.Context, b *core.Batch, err error, probed *bool) (again bool, judged error) {
	e, ofSQLite := errors.AsType[*driver.Error](err)
	if !ofSQLite { // the store is closed, ctx has ended, or a row is another commit's
		return false, err
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE: // ids give way to each other: these are numbers that we give
		return false, fmt.Errorf("%w: %w", core.ErrForeignRow, err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH:
		return s.judgeRow(ctx, b, err, probed)
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_AUTH: // any commit would end like this one
		return true, err
	}
	return false, err
}

// judgeRow blames a row only if the database has twice in a row taken one that cannot be wrong. Once is not
// enough: the database may have been in trouble until a moment ago.
func (s *Store) judgeRow(ctx context.Context, b *core.Batch, err error, probed *bool) (again bool, judged error) {
	if len(b.Writes) == 0 {
		return true, err
	}
	if refused := s.probe(ctx, b.Partitions[0].Partition); refused != nil {
		*probed = false
		return true, fmt.Errorf("%w (and of a row without fault: %w)", err, refused)
	}
	if !*probed {
		*probed = true
		return true, err
	}
	return false, fmt.Errorf("%w: %w", core.ErrRowRefused, err)
}

// errProbed rolls back a probe that the database took.
var errProbed = errors.New("the probe was taken")

// probe asks whether the database would take any row: it does to each table what a commit does, with a row
// that cannot be wrong, and rolls it back. The error is what the database has against it.
func (s *Store) probe(ctx context.Context, partition int) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		c := commit{ctx: ctx, tx: tx, b: &core.Batch{}, sql: s.sql, statements: map[string]*sql.Stmt{}}
		if _, err := c.exec(`UPDATE partitions SET cursor = cursor WHERE partition = ?1`, partition); err != nil {
			return err
		}
		birth := schema.Probe(partition)
		if err := c.writeTask(&birth); err != nil {
			return err
		}
		birth.Task.State, birth.Task.Seq = core.StateProcessed, birth.Task.Seq+1
		if err := c.writeTask(&core.TaskWrite{Task: birth.Task, Row: true}); err != nil {
			return err
		}
		return errProbed
	})
	if errors.Is(err, errProbed) {
		return nil
	}
	return err
}
