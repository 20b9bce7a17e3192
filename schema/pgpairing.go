package schema

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Pairing is which NATS the database of an installation is used with. SQLite's is used by
// one process, which has its NATS inside.
type Pairing struct {
	NATS   string // the identity of the bucket of the live nodes there; empty: none yet
	UsedBy string // the node that wrote this, for people to read
	Beat   string // the last beats, the newest first: no other call of Pair has written the same
}

const (
	qPairing = `SELECT nats, used_by, beat FROM installation`
	qPair    = `UPDATE installation SET nats = $1, used_by = $2, beat = $3 WHERE beat = $4`
	qRenewPG = `UPDATE installation SET id = $1, namespace = '', nats = '', used_by = '', beat = '' WHERE id = $2`
)

// Pairing reads it.
func (p *postgres) Pairing(ctx context.Context) (Pairing, error) {
	var all Pairing
	if err := p.pool.QueryRow(ctx, qPairing).Scan(&all.NATS, &all.UsedBy, &all.Beat); err != nil {
		return all, fmt.Errorf("pairing of this database: %w", err)
	}
	return all, nil
}

// Pair writes it anew if the last beat is still that one, and reports whether it was.
func (p *postgres) Pair(ctx context.Context, to Pairing, last string) (bool, error) {
	var rows int64
	err := p.run(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, qPair, to.NATS, to.UsedBy, to.Beat, last)
		rows = tag.RowsAffected()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("pairing of this database: %w", err)
	}
	return rows > 0, nil
}
