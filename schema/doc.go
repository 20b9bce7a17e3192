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
// A new column of tasks is
//
//   - a migration for each dialect;
//   - a line of stateFields (it changes) or birthFields (it does not) in postgres/encode.go;
//   - in sqlite/commit.go birthSQL and rowSQL, in sqlite/values.go birthArgs and rowArgs;
//   - taskColumns and scanTask in read.go, and view.go where it is shown;
//   - the probes of both dialects (errors.go) where it may not be null;
//   - the field of core.Task, and storetest/roundtrip.go.
//
// A task's labels are such a column (birthFields), as their header has them, and besides rows of the table labels, which
// only finds: a commit writes those of its births, without a statement where there are none; they are forgotten with
// the task's row, so that its tombstone is found by them until then.
//
// A new column of the journal is a line of journalFields, sqlite's journalSQL and
// recordArgs, its place in read.go, and the migrations.
package schema
