// Package schema is the state store: the only package that knows SQL.
//
// [Store] has two implementations that pass one conformance suite: PostgreSQL
// (and CockroachDB, by the common subset of SQL) through pgx, and SQLite for one
// process. Rules about tasks stay in package core; SQL compares epochs and
// sequence numbers and moves bytes.
//
// The commit is the heart. One statement moves the partitions' rows where their
// epoch is still ours, which is the fence; everything else joins to that: births
// where the id is free, and the journal rows of what was born or lives already.
// A second statement of the same transaction updates rows of tasks, because
// CockroachDB refuses two mutations of one table in one statement.
package schema
