package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// Purge implements [schema.Store].
func (p *Store) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	return p.PurgeBy(ctx, partition, detail, row, limit, func(c *schema.Old) (touched int, err error) {
		err = p.run(ctx, func(tx pgx.Tx) error {
			touched, err = forget(ctx, tx, partition, epoch, c, detail, row)
			return err
		})
		return touched, err
	})
}

// forget is the purge itself, in one round trip before that of the transaction's
// end: commits of the partition, ours and a successor's, wait meanwhile, because a
// task that is started again just now would lose the journal it needs.
func forget(ctx context.Context, tx pgx.Tx, partition int, epoch int64, c *schema.Old, detail, row core.Instant) (int, error) {
	gone, forgotten := int64(0), int64(0)
	b := &pgx.Batch{}
	b.Queue(holdSQL, partition, epoch, c.Forgotten)
	if len(c.Rows) > 0 {
		b.Queue(forgetRowsSQL, partition, c.Rows, row.Time(), epoch).Exec(func(tag pgconn.CommandTag) error {
			gone = tag.RowsAffected()
			return nil
		})
	}
	if c.Inputs {
		b.Queue(forgetInputsSQL, partition, c.Details, detail.Time(), epoch)
	}
	if len(c.Details) > 0 {
		b.Queue(countOldSQL, partition, c.Details, detail.Time(), epoch).QueryRow(func(r pgx.Row) error { return r.Scan(&forgotten) })
		b.Queue(forgetSQL, partition, c.Details, detail.Time(), epoch)
	}
	err := tx.SendBatch(ctx, b).Close()
	return int(gone + forgotten), err
}

// The fence of a purge: a successor's takeover waits for the row, or has raised
// the epoch and then nothing is ours to forget.
const (
	holdSQL   = `UPDATE partitions SET forgotten = greatest(forgotten, $3) WHERE partition = $1 AND epoch = $2`
	stillOurs = `EXISTS (SELECT 1 FROM partitions WHERE partition = ?1 AND epoch = ?4)`
)

// The statements on the tasks whose number is in the list ?2, if the partition is ours.
var (
	chosen          = `partition = ?1 AND number ` + inList("number") + ` AND ` + stillOurs
	forgetRowsSQL   = dollars(schema.ForgetRowsSQL + chosen + schema.AndDeadSQL)
	forgetInputsSQL = dollars(schema.ForgetInputsSQL + chosen + schema.AndOldSQL)
	countOldSQL     = dollars(`SELECT count(*) FROM tasks WHERE ` + chosen + schema.AndOldSQL)
	// forgetSQL deletes what the tasks of countOldSQL were made of.
	forgetSQL = dollars(schema.ForgetJournalSQL + chosen +
		` AND EXISTS (SELECT 1 FROM tasks AS t WHERE t.partition = ?1 AND t.number = journal.number` + schema.AndOldSQL + `)`)
)
