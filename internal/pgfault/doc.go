// Package pgfault is a proxy between a client and a PostgreSQL server that fails
// as CockroachDB may: 40001 at a statement and at the end of a transaction, 40003
// after a commit that happened and after one that did not, connections lost
// before and after a commit, slow answers. What fails is drawn from a seed and
// counted.
//
// [Proxy.Refuse] makes it answer in the server's place, with any SQLSTATE or not at all.
//
// With [Faults].Cockroach the server also looks like a CockroachDB to its
// clients: it says so, transactions end with RELEASE SAVEPOINT cockroach_restart,
// ROLLBACK TO it begins them again, and SKIP LOCKED passes over more than what is locked. The SQL is still PostgreSQL's: the proxy
// shows how a client takes CockroachDB's answers, not what CockroachDB answers.
//
// It speaks the protocol as far as pgx does: no TLS, no password, and COPY only
// within a pipeline of the extended protocol.
package pgfault
