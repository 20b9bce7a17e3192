package schema

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/core"
)

// Purge implements Store.
func (p *postgres) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	n, err := p.purge(ctx, partition, detail, row, limit, func(c *purgeChoice) (touched int, err error) {
		err = p.run(ctx, func(tx pgx.Tx) error {
			touched, err = p.forget(ctx, tx, partition, epoch, c, detail, row)
			return err
		})
		return touched, err
	})
	return n, errors.Join(err, p.rotate(ctx, partition, detail))
}

// forget is the purge itself, in one round trip before that of the transaction's
// end: commits of the partition, ours and a successor's, wait meanwhile, because a
// task that is started again just now would lose the journal it needs.
func (p *postgres) forget(ctx context.Context, tx pgx.Tx, partition int, epoch int64, c *purgeChoice, detail, row core.Instant) (int, error) {
	held, gone, forgotten := false, int64(0), int64(0)
	b := &pgx.Batch{}
	b.Queue(holdSQL, partition, epoch, c.forgotten).Exec(func(tag pgconn.CommandTag) error {
		held = tag.RowsAffected() == 1
		return nil
	})
	if len(c.rows) > 0 {
		b.Queue(dollars(qForgetRows+p.chosen(andDead)), partition, c.rows, row.Time(), epoch).Exec(func(tag pgconn.CommandTag) error {
			gone = tag.RowsAffected()
			return nil
		})
	}
	if c.inputs {
		b.Queue(dollars(qForgetInputs+p.chosen(andOld)), partition, c.details, detail.Time(), epoch)
	}
	switch {
	case len(c.details) == 0:
	case p.generational():
		b.Queue(dollars(forgetMovedSQL), partition, c.details, detail.Time(), epoch)
	default:
		b.Queue(p.forgetSQL(), partition, c.details, detail.Time(), epoch).QueryRow(func(r pgx.Row) error { return r.Scan(&forgotten) })
	}
	err := tx.SendBatch(ctx, b).Close()
	if p.generational() && held { // the mark is what forgets
		forgotten = int64(len(c.details))
	}
	return int(gone + forgotten), err
}

// The fence of a purge: a successor's takeover waits for the row, or has raised
// the epoch and then nothing is ours to forget.
const (
	holdSQL   = `UPDATE partitions SET forgotten = greatest(forgotten, $3) WHERE partition = $1 AND epoch = $2`
	stillOurs = `EXISTS (SELECT 1 FROM partitions WHERE partition = ?1 AND epoch = ?4)`
)

// forgetMovedSQL purges the few rows that are in no generation; the others go with theirs.
var forgetMovedSQL = `DELETE FROM ONLY journal WHERE ` +
	placed("ONLY journal AS j", ` AND EXISTS (SELECT 1 FROM tasks AS t WHERE t.partition = ?1 AND t.number = j.number`+andOld+`)`, stillOurs)

// forgetSQL purges what tasks were made of and counts them, where the journal is in no
// generations. PostgreSQL reads its key by a list of numbers once it knows that it is large,
// CockroachDB by a join.
func (p *postgres) forgetSQL() string {
	in := `= ANY(ARRAY(SELECT number FROM forgotten))`
	if p.dialect == "cockroach" {
		in = `IN (SELECT number FROM forgotten)`
	}
	return dollars(`WITH forgotten AS (` + qForgetDetails + p.chosen(andOld) + `), gone AS (` + qForgetJournal + `partition = ?1 AND number ` + in + ` RETURNING 1)
SELECT count(*) FROM forgotten`)
}
