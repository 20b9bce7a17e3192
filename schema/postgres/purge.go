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
	touched, err := p.PurgeBy(ctx, partition, detail, row, limit, func(c *schema.Old) (touched int, err error) {
		err = p.run(ctx, func(tx pgx.Tx) error {
			touched, err = forget(ctx, tx, partition, epoch, c, detail, row)
			return err
		})
		return touched, err
	})
	if err != nil {
		return touched, err
	}
	return touched, p.TrimChain(ctx, partition, epoch, detail)
}

// forget deletes what a purge chose. Its first statement locks the partition, so that commits wait, of this
// owner and of a successor: a task that is started again just then would lose the journal that it needs. The
// statements check once more whether each task may go. All are sent together but for the deletion of
// journals, which needs their answer.
func forget(ctx context.Context, tx pgx.Tx, partition int, epoch int64, c *schema.Old, detail, row core.Instant) (int, error) {
	gone := int64(0)
	var forgotten []int64
	b := &pgx.Batch{}
	// Of another owner's partition this changes no row, and the statements after it find nothing that is
	// ours.
	b.Queue(holdSQL, partition, epoch, c.Forgotten)
	if len(c.Rows) > 0 {
		b.Queue(forgetRowsSQL, partition, c.Rows, row.Time(), epoch).Exec(func(tag pgconn.CommandTag) error {
			gone = tag.RowsAffected()
			return nil
		})
	}
	if c.Labels {
		b.Queue(forgetLabelsSQL, partition, c.Rows)
	}
	if len(c.Details) > 0 {
		b.Queue(oldSQL, partition, c.Details, detail.Time(), epoch).Query(func(rows pgx.Rows) (err error) {
			forgotten, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	}
	err := tx.SendBatch(ctx, b).Close()
	forgotten = c.Goes(forgotten)
	if err == nil && len(forgotten) > 0 {
		_, err = tx.Exec(ctx, forgetSQL, partition, forgotten)
	}
	return int(gone) + len(forgotten), err
}

// The fence of a purge. A takeover waits for the partition's row; or it was there before and raised the
// epoch, and then this purge deletes nothing.
const (
	holdSQL   = `UPDATE partitions SET forgotten = greatest(forgotten, $3) WHERE partition = $1 AND epoch = $2`
	stillOurs = `EXISTS (SELECT 1 FROM partitions WHERE partition = ?1 AND epoch = ?4)`
)

// Statements on the tasks of partition ?1 with numbers in the list ?2. stillOurs is their fence.
var (
	chosen          = `partition = ?1 AND number ` + inList("number") + ` AND ` + stillOurs
	forgetRowsSQL   = dollars(schema.ForgetRowsSQL + chosen + schema.AndDeadSQL)
	oldSQL          = dollars(schema.ForgetDetailsSQL + chosen + schema.AndOldSQL)
	forgetLabelsSQL = dollars(schema.ForgetLabelsSQL + `partition = ?1 AND number ` + inList("number"))
	// forgetSQL deletes the journals of tasks.
	forgetSQL = dollars(schema.ForgetJournalSQL + `partition = ?1 AND number ` + inList("number"))
)
