package schema

import (
	"database/sql"
	"time"
)

// PoolStat is how one pool of connections stands. Queries, Waits and Waited are totals.
type PoolStat struct {
	Name            string // commits, or asking: that of the people who ask
	Max, Used, Idle int64
	Queries         int64 // statements, or transactions, that went through it
	Waits           int64
	Waited          time.Duration
}

// PoolStatOf is that of a pool of database/sql, through which so many queries went.
func PoolStatOf(name string, db *sql.DB, queries int64) PoolStat {
	s := db.Stats()
	return PoolStat{Name: name, Max: int64(s.MaxOpenConnections), Used: int64(s.InUse), Idle: int64(s.Idle), Queries: queries, Waits: s.WaitCount, Waited: s.WaitDuration}
}
