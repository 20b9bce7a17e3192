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
// What operators read and write ([duly.dev/duly/internal/operate.Store]) is on connections
// of its own, and in tables of its own: list.go and groups.go read tasks in pages, trail.go,
// operations.go and keep.go have the rest.
//
// A new column of tasks is three edits: the field of core.Task, a line in columns.go, and the table, once for each dialect
// (migrations/*/00100_init.sql, until there is a release; after one, a migration). The statements of both dialects, what
// owners read, the probe of a refused commit and the chain's digests are made of that line; its Since is one more than the
// newest, so that rows without a value keep their digests. A row is written where the core says so (touchRow in
// internal/core/decision.go). Where people are to see the column, core.View has it too. A column of the journal is the same with core.Record.
//
// A task's labels are such a column, as their header has them, and besides rows of the table labels, which
// only finds: a commit writes those of its births, without a statement where there are none; they are forgotten with
// the task's row, so that its tombstone is found by them until then.
package schema
