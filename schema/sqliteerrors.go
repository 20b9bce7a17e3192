package schema

import (
	"context"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

// The result codes of SQLite that a commit tells apart.
const (
	litePerm       = 3
	liteBusy       = 5
	liteLocked     = 6
	liteNoMemory   = 7
	liteReadOnly   = 8
	liteIOError    = 10
	liteFull       = 13
	liteCantOpen   = 14
	liteProtocol   = 15
	liteTooBig     = 18
	liteConstraint = 19
	liteMismatch   = 20
	liteAuth       = 23

	// Of liteConstraint.
	litePrimaryKey = liteConstraint | 6<<8
	liteUnique     = liteConstraint | 8<<8
)

// liteFault is what verdictOf is for PostgreSQL.
func liteFault(err error) fault {
	var e *liteError
	if !errors.As(err, &e) {
		return faultCaller
	}
	switch e.code {
	case litePrimaryKey, liteUnique: // ids give way to each other: these are numbers that we give
		return faultNumber
	}
	switch e.code & 0xff {
	case liteTooBig, liteConstraint, liteMismatch:
		return faultRow
	case litePerm, liteBusy, liteLocked, liteNoMemory, liteReadOnly, liteIOError, liteFull, liteCantOpen, liteProtocol, liteAuth:
		return faultServer
	}
	return faultCaller
}

// judge says what is done about an error of a commit, as that of postgres.
func (s *sqlite) judge(ctx context.Context, b *core.Batch, err error, past *sendings) (judged error, send bool) {
	switch liteFault(err) {
	case faultNumber:
		return fmt.Errorf("%w: %w", core.ErrForeignRow, err), false
	case faultServer:
		return err, true
	case faultRow:
		if len(b.Writes) == 0 {
			return err, true
		}
		if doubt := past.doubt(err, s.probe(ctx, b.Partitions[0].Partition)); doubt != nil {
			return doubt, true
		}
		return fmt.Errorf("%w: %w", core.ErrRowRefused, err), false
	}
	return err, false
}

// liteProbe does to each table what a commit does, with a task that is nothing but
// valid.
var liteProbe = []string{
	`UPDATE partitions SET cursor = cursor WHERE partition = ?1`,
	`INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, failure_count, origin, created_at, updated_at, commit_id)
		VALUES (?1, -1, ' probe', 'probe', 0, 'processing', 1, 0, 0, 0, 0, 0, 0)`,
	`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		VALUES (?1, -1, 1, 0, 'probe', 0, 1, 'probe', 'processing', 0, 0, 0)`,
	`UPDATE tasks SET state = 'processed', seq = 2 WHERE partition = ?1 AND number = -1`,
}

// probe reports what the database has against any row.
func (s *sqlite) probe(ctx context.Context, partition int) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	err := s.commit.conn.transact(func() error {
		for _, sql := range liteProbe {
			if _, err := s.commit.conn.run(sql, []liteArg{{kind: liteInt, value: int64(partition)}}); err != nil {
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
