package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"duly.dev/duly/internal/core"
)

// judge says what is done about an error of a commit: what it returns wraps
// core.ErrRowRefused or core.ErrForeignRow where the owner has to act, and the same batch
// goes again where again is true.
func (s *Store) judge(ctx context.Context, b *core.Batch, err error, probed *bool) (again bool, judged error) {
	e, ofSQLite := errors.AsType[*driver.Error](err)
	if !ofSQLite { // the store is closed, ctx has ended, or a row is another commit's
		return false, err
	}
	switch e.Code() {
	case lib.SQLITE_CONSTRAINT_PRIMARYKEY, lib.SQLITE_CONSTRAINT_UNIQUE: // ids give way to each other: these are numbers that we give
		return false, fmt.Errorf("%w: %w", core.ErrForeignRow, err)
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_TOOBIG, lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH:
		return s.judgeRow(ctx, b, err, probed)
	case lib.SQLITE_PERM, lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_NOMEM, lib.SQLITE_READONLY, lib.SQLITE_IOERR, lib.SQLITE_FULL,
		lib.SQLITE_CANTOPEN, lib.SQLITE_PROTOCOL, lib.SQLITE_AUTH: // any commit would end like this one
		return true, err
	}
	return false, err
}

// judgeRow blames a row only if the database has twice taken one that cannot be wrong: it
// may have been in trouble until a moment ago.
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

// probeSQL does to each table what a commit does, with a task that is nothing but valid.
// Its number and id are none that a task has.
var probeSQL = []string{
	`UPDATE partitions SET cursor = cursor WHERE partition = ?1`,
	`INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, failure_count, origin, created_at, updated_at, commit_id)
		VALUES (?1, -1, ' probe', 'probe', 0, 'processing', 1, 0, 0, 0, 0, 0, 0)`,
	`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		VALUES (?1, -1, 1, 0, 'probe', 0, 1, 'probe', 'processing', 0, 0, 0)`,
	`UPDATE tasks SET state = 'processed', seq = 2 WHERE partition = ?1 AND number = -1`,
}

var errProbed = errors.New("the probe was taken")

// probe reports what the database has against any row: it writes one that cannot be wrong,
// and rolls it back.
func (s *Store) probe(ctx context.Context, partition int) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, query := range probeSQL {
			if _, err := tx.ExecContext(ctx, query, partition); err != nil {
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
