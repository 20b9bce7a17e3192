package schema

// Pairing says which NATS an installation's database is used with, so that two installations cannot share one
// database by mistake. Only PostgreSQL and CockroachDB have it: SQLite's one process has its NATS inside.
type Pairing struct {
	// NATS is the identity of the bucket of live nodes there; empty: none yet.
	NATS string
	// UsedBy is the node that wrote this, for people to read.
	UsedBy string
	// Beat holds the last beats, the newest first. Each call of Pair writes another one.
	Beat string
}
