package postgres

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/schema"
)

// walMost is how much of the write-ahead log replicas may keep, in bytes: one that is behind for a while
// needs some.
const walMost = 10 << 30

// qHeld reads the age of the oldest snapshot, in seconds, and how much log replication slots keep. It sees
// only those transactions of others that this user may see.
const qHeld = `SELECT COALESCE((SELECT EXTRACT(EPOCH FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity
	WHERE backend_xmin IS NOT NULL AND backend_type = 'client backend' AND datname = current_database()), 0)::FLOAT8,
	COALESCE((SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) FROM pg_replication_slots), 0)::INT8`

// Held measures what transactions and replicas keep the database from freeing. CockroachDB does not say, so
// there it is zero.
func (p *Store) Held(ctx context.Context) (schema.Held, error) {
	h := schema.Held{WALMost: walMost}
	if p.dialect != "postgres" {
		return h, nil
	}
	var seconds float64
	if err := p.pool.QueryRow(ctx, qHeld).Scan(&seconds, &h.WAL); err != nil {
		return h, fmt.Errorf("what is held of the database: %w", err)
	}
	h.Snapshot = time.Duration(seconds * float64(time.Second))
	return h, nil
}
