// Package dulytx submits tasks in a transaction of PostgreSQL or CockroachDB: the task exists exactly if the transaction
// commits.
//
// [Submit] writes the submission as a row of the table duly_outbox, beside what else the transaction writes. A node of Duly
// relays it, at least once and under the task's own id, so that it is one task, and removes the row once the submission is
// stored and synced. `duly outbox create-table` makes the table; the setting DULY_OUTBOX names the database to the nodes.
//
// It is a package of its own because a program that only performs steps has no use for a database driver.
package dulytx
