package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/schema"
)

const (
	qPairing = `SELECT nats, used_by, beat FROM installation`
	qPair    = `UPDATE installation SET nats = $1, used_by = $2, beat = $3 WHERE beat = $4`
)

// Pairing reads the pairing of this database.
func (p *Store) Pairing(ctx context.Context) (schema.Pairing, error) {
	var all schema.Pairing
	if err := p.pool.QueryRow(ctx, qPairing).Scan(&all.NATS, &all.UsedBy, &all.Beat); err != nil {
		return all, fmt.Errorf("pairing of this database: %w", err)
	}
	return all, nil
}

// Pair replaces the pairing if its last beat is still the one in the argument. false: another node was
// faster.
func (p *Store) Pair(ctx context.Context, to schema.Pairing, last string) (bool, error) {
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
