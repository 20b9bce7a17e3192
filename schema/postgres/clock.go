package postgres

import (
	"context"
	"fmt"
	"time"
)

// Clock is the database server's time. SQLite has none of its own.
func (p *Store) Clock(ctx context.Context) (time.Time, error) {
	var at time.Time
	if err := p.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
		return at, fmt.Errorf("clock of the database: %w", err)
	}
	return at, nil
}
