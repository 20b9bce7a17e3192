package postgres

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/schema"
)

// Pools are the pools of the store: that of commits, and that of people who ask.
func (p *Store) Pools() []schema.PoolStat {
	return []schema.PoolStat{statOf("commits", p.pool), statOf("asking", p.asking)}
}

// statOf is the stat of a pool. Each statement, or transaction, acquires a connection once.
func statOf(name string, pool *pgxpool.Pool) schema.PoolStat {
	s := pool.Stat()
	return schema.PoolStat{Name: name, Max: int64(s.MaxConns()), Used: int64(s.AcquiredConns()), Idle: int64(s.IdleConns()),
		Queries: s.AcquireCount(), Waits: s.EmptyAcquireCount(), Waited: s.EmptyAcquireWaitTime()}
}
