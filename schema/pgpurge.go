package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/core"
)

// Purge implements Store.
func (p *postgres) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	c, err := p.choose(ctx, partition, p.purged.get(partition), detail, row, limit)
	if err != nil {
		return 0, err
	}
	touched := 0
	if len(c.rows)+len(c.details) > 0 {
		err = p.run(ctx, func(tx pgx.Tx) (err error) {
			touched, err = p.forget(ctx, tx, partition, epoch, &c, detail, row)
			return err
		})
	}
	if err == nil {
		p.purged.set(partition, c.next)
	}
	return touched, err
}

// forget is the purge itself, in one round trip: commits of the partition, ours
// and a successor's, wait meanwhile, because a task that is started again just now
// would lose the journal it needs.
func (p *postgres) forget(ctx context.Context, tx pgx.Tx, partition int, epoch int64, c *purgeChoice, detail, row core.Instant) (int, error) {
	touched := 0
	count := func(r pgx.Row) error {
		var n int
		err := r.Scan(&n)
		touched += n
		return err
	}
	b := &pgx.Batch{}
	b.Queue(holdSQL, partition, epoch)
	if len(c.rows) > 0 {
		b.Queue(dollars(qForgetRows+p.inInts)+stillSQL, partition, c.rows, row.Time(), epoch).Exec(func(tag pgconn.CommandTag) error {
			touched += int(tag.RowsAffected())
			return nil
		})
	}
	if len(c.details) > 0 {
		b.Queue(forgetSQL(p.dialect), partition, c.details, detail.Time(), epoch).QueryRow(count)
	}
	err := tx.SendBatch(ctx, b).Close()
	return touched, err
}

// The fence of a purge: a successor's takeover waits for the lock, or has raised
// the epoch and then nothing is ours to forget.
const (
	holdSQL  = `SELECT 1 FROM partitions WHERE partition = $1 AND epoch = $2 FOR UPDATE`
	stillSQL = ` AND EXISTS (SELECT 1 FROM partitions WHERE partition = $1 AND epoch = $4)`
)

// forgetSQL purges what tasks were made of and counts them. PostgreSQL reads the
// journal's key by a list of numbers, however little it knows of the tables;
// CockroachDB by a join.
func forgetSQL(dialect string) string {
	in := `= ANY(ARRAY(SELECT number FROM forgotten))`
	if dialect == "cockroach" {
		in = `IN (SELECT number FROM forgotten)`
	}
	return `WITH forgotten AS (` + dollars(qForgetDetails) + `= ANY($2::INT8[])` + stillSQL + qForgotten + `), gone AS (` + dollars(qForgetJournal) + in + ` RETURNING 1)
SELECT count(*) FROM forgotten`
}
