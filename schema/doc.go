// Package schema is the state store: its contract, the reading that all dialects share, and
// the migrations of each.
//
// [Store] is the contract. It is implemented by schema/postgres (PostgreSQL, and CockroachDB
// by the common subset of SQL) and schema/sqlite (for one process), which both pass
// schema/storetest; package dialects opens the one that a URL names. Rules about tasks stay
// in package core; SQL compares epochs and sequence numbers and moves bytes.
//
// The commit is the heart of each dialect. It moves the partitions' rows where their epoch
// is still ours and the last commit is the one that their owner knows, which is the fence;
// everything else happens in those partitions alone: births where the id is free, the
// journal rows of what was born or lives already, and the rows of tasks whose state changed.
//
// A new column is a line in postgres/encode.go, its place in read.go and in sqlite/commit.go,
// and a migration for each dialect.
package schema
