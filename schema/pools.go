package schema

import (
	"database/sql"
	"time"
)

// PoolStat shows a pool of connections. Queries, Waits and Waited are totals since the start.
type PoolStat struct {
	// Name is commits, reading, or asking for that of people.
	Name            string
	Max, Used, Idle int64
	// Queries counts statements; a transaction counts once.
	Queries int64
	Waits   int64
	Waited  time.Duration
}

// PoolStatOf is the stat of a pool of database/sql. It does not count queries, so the caller says how many
// there were.
func PoolStatOf(name string, db *sql.DB, queries int64) PoolStat {
	s := db.Stats()
	return PoolStat{Name: name, Max: int64(s.MaxOpenConnections), Used: int64(s.InUse), Idle: int64(s.Idle), Queries: queries, Waits: s.WaitCount, Waited: s.WaitDuration}
}
