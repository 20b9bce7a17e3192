package postgres

import (
	"context"
	"fmt"
	"time"
)

// Clock reads the time of the database server. SQLite's store has no Clock: its database has no other
// machine.
func (p *Store) Clock(ctx context.Context) (time.Time, error) {
	var at time.Time
	if err := p.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
		return at, fmt.Errorf("clock of the database: %w", err)
	}
	return at, nil
}
