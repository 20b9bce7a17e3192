package schema

import (
	"database/sql"
	"time"
)

// PoolStat is how one pool of connections stands. Waits and Waited are totals.
type PoolStat struct {
	Name            string // commits, or asking: that of the people who ask
	Max, Used, Idle int64
	Waits           int64
	Waited          time.Duration
}

// PoolStatOf is that of a pool of database/sql.
func PoolStatOf(name string, db *sql.DB) PoolStat {
	s := db.Stats()
	return PoolStat{Name: name, Max: int64(s.MaxOpenConnections), Used: int64(s.InUse), Idle: int64(s.Idle), Waits: s.WaitCount, Waited: s.WaitDuration}
}
