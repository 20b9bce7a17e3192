package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/schema"
)

// probeSQL writes a megabyte into a table that ends with the transaction. The server needs new space on disk
// for it at once, while small writes to existing tables may still succeed on a full disk.
var probeSQL = []string{
	`CREATE TEMPORARY TABLE duly_probe (filler TEXT) ON COMMIT DROP`,
	`INSERT INTO duly_probe SELECT repeat(md5(g::TEXT), 60) FROM generate_series(1, 600) AS g`,
}

// ProbeRoom finds out whether the server's disk has room, and leaves nothing behind. Errors:
// schema.ErrNoRoom; schema.ErrNotProbed, also on CockroachDB, see docs/decisions/051-cockroachdb.md.
func (p *Store) ProbeRoom(ctx context.Context) error {
	if p.dialect != "postgres" {
		return fmt.Errorf("%w by SQL: watch CockroachDB's metric capacity_available", schema.ErrNotProbed)
	}
	tx, err := p.asking.Begin(ctx)
	if err != nil {
		return fmt.Errorf("probe of the database's room: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // the table ends with the connection otherwise
	for _, query := range probeSQL {
		if _, err := tx.Exec(ctx, query, pgx.QueryExecModeExec); err != nil {
			switch state := sqlState(err); {
			case state == "53100", strings.HasPrefix(state, "58"): // disk full, input and output
				return fmt.Errorf("%w: %w", schema.ErrNoRoom, redact(err))
			case state == "42501", state == "25006": // no right, read only
				return fmt.Errorf("%w: %w", schema.ErrNotProbed, redact(err))
			}
			return fmt.Errorf("probe of the database's room: %w", err)
		}
	}
	return nil
}
