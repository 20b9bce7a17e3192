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
	return p.purge(ctx, partition, detail, row, limit, func(c *purgeChoice) (touched int, err error) {
		err = p.run(ctx, func(tx pgx.Tx) error {
			touched, err = p.forget(ctx, tx, partition, epoch, c, detail, row)
			return err
		})
		if errors.Is(err, errTakenOver) {
			return 0, nil // nothing of it is ours to forget
		}
		return touched, err
	})
}

// errTakenOver undoes a purge that a takeover came before.
var errTakenOver = errors.New("the partition was taken over")

// forget is the purge itself, in one round trip before that of the transaction's
// end. It holds the partition, and commits of the partition wait for that, because a
// successor must find all of a task's journal or none. Where each statement sees what
// was committed before it, the hold is the last one and short: either somebody
// has taken over before, and everything is undone, or whoever does reads what is left.
// Where the transaction sees one moment, it holds the partition first: any
// commit in between would make it begin anew.
func (p *postgres) forget(ctx context.Context, tx pgx.Tx, partition int, epoch int64, c *purgeChoice, detail, row core.Instant) (int, error) {
	gone, forgotten, held := int64(0), int64(0), int64(0)
	b := &pgx.Batch{}
	hold := func() {
		b.Queue(holdSQL, partition, epoch).Exec(func(tag pgconn.CommandTag) error {
			held = tag.RowsAffected()
			return nil
		})
	}
	last := p.dialect != "cockroach" && p.tx.IsoLevel == pgx.ReadCommitted
	if !last {
		hold()
	}
	if len(c.rows) > 0 {
		b.Queue(dollars(qForgetRows+p.inInts), partition, c.rows, row.Time()).Exec(func(tag pgconn.CommandTag) error {
			gone = tag.RowsAffected()
			return nil
		})
	}
	if len(c.details) > 0 {
		b.Queue(p.forgetSQL(), partition, c.details, detail.Time()).QueryRow(func(r pgx.Row) error { return r.Scan(&forgotten) })
	}
	if last {
		hold()
	}
	err := tx.SendBatch(ctx, b).Close()
	if err == nil && held == 0 {
		err = errTakenOver
	}
	return int(gone + forgotten), err
}

// holdSQL is the fence of a purge: it finds the partition while it is ours.
const holdSQL = `SELECT 1 FROM partitions WHERE partition = $1 AND epoch = $2 FOR UPDATE`

// forgetSQL purges what tasks were made of and counts them. PostgreSQL reads the
// journal's key by a list of numbers, however little it knows of the tables;
// CockroachDB by a join.
func (p *postgres) forgetSQL() string {
	in := `= ANY(ARRAY(SELECT number FROM forgotten))`
	if p.dialect == "cockroach" {
		in = `IN (SELECT number FROM forgotten)`
	}
	return `WITH forgotten AS (` + dollars(qForgetDetails+p.inInts) + qForgotten + `), gone AS (` + dollars(qForgetJournal) + in + ` RETURNING 1)
SELECT count(*) FROM forgotten`
}
