package schema

// Pairing is which NATS the database of an installation is used with. SQLite's is used by
// one process, which has its NATS inside.
type Pairing struct {
	NATS   string // the identity of the bucket of the live nodes there; empty: none yet
	UsedBy string // the node that wrote this, for people to read
	Beat   string // the last beats, the newest first: no other call of Pair has written the same
}
