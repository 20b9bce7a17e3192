package sqlite

import (
	"context"
	"database/sql"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// Purge implements [schema.Store].
func (s *Store) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	touched, err := s.PurgeBy(ctx, partition, detail, row, limit, func(old *schema.Old) (touched int, err error) {
		err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			touched, err = forget(ctx, tx, partition, epoch, old, detail, row)
			return err
		})
		return touched, err
	})
	if err != nil {
		return touched, err
	}
	return touched, s.TrimChain(ctx, partition, epoch, detail)
}

// forget deletes what a purge chose, if the epoch is still that one. It returns how many tasks it touched.
func forget(ctx context.Context, tx *sql.Tx, partition int, epoch int64, old *schema.Old, detail, row core.Instant) (int, error) {
	ours, err := affected(tx.ExecContext(ctx, `UPDATE partitions SET forgotten = max(forgotten, ?3) WHERE partition = ?1 AND epoch = ?2`, partition, epoch, old.Forgotten))
	if err != nil || ours == 0 {
		return 0, err
	}
	gone, err := affected(tx.ExecContext(ctx, schema.ForgetRowsSQL+chosen+schema.AndDeadSQL, partition, list(old.Rows), int64(row)))
	if err != nil {
		return 0, err
	}
	if old.Labels && gone > 0 {
		if _, err := tx.ExecContext(ctx, schema.ForgetLabelsSQL+chosen, partition, list(old.Rows)); err != nil {
			return 0, err
		}
	}
	forgotten, err := schema.ScanColumn[int64](tx.QueryContext(ctx, schema.ForgetDetailsSQL+chosen+schema.AndOldSQL, partition, list(old.Details), int64(detail)))
	if err != nil {
		return 0, err
	}
	forgotten = old.Goes(forgotten)
	_, err = tx.ExecContext(ctx, schema.ForgetJournalSQL+chosen, partition, list(forgotten))
	return int(gone) + len(forgotten), err
}

// affected is how many rows a statement changed.
func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
