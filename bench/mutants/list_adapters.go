package main

// adapterMutants are faults of the stores and of the wire.
var adapterMutants = []mutant{
	{
		name: "plan-of-before-the-restore", invariant: 7, file: "schema/plans.go",
		old: "if there && is.of == hash {", new: "if there {",
		fault: "after a restore, a plan version that was applied again with other steps still runs with its old ones",
		run:   "^TestPlansAreDecodedOnce$",
	},
	{
		name: "sqlite-epoch-not-compared", invariant: 4, file: "schema/sqlite/commit.go",
		old: "AND epoch = ? AND last_commit IN (?, ?)`", new: "AND epoch <> -? AND last_commit IN (?, ?)`",
		fault: "SQLite: a commit does not compare the epoch",
		run:   "^TestSQLite$/^(stale_epoch|owners_by_turns|owners_at_once|same_batch_after_a_takeover)$",
	},
	{
		name: "sqlite-last-commit-not-compared", invariant: 4, file: "schema/sqlite/commit.go",
		old: "AND epoch = ? AND last_commit IN (?, ?)`", new: "AND epoch = ? AND last_commit NOT IN (-1-?, -1-?)`",
		fault: "SQLite: a commit does not find the row as its owner left it",
		run:   "^TestSQLite$/^stale_last_commit$",
	},
	{
		name: "sqlite-row-without-seq-guard", invariant: 4, file: "schema/sqlite/commit.go",
		old: "WHERE partition = ? AND number = ? AND seq < ?`", new: "WHERE partition = ? AND number = ? AND seq <> -?`",
		fault: "SQLite: a row is overwritten by an older state of it",
		run:   "^TestSQLite$/^row_of_a_lower_seq$",
	},
	{
		name: "sqlite-purge-not-fenced", invariant: 4, file: "schema/sqlite/purge.go",
		old: "AND epoch = ?2`, partition, epoch, old.Forgotten)", new: "AND epoch >= ?2`, partition, epoch, old.Forgotten)",
		fault: "SQLite: an owner that was succeeded forgets tasks of its successor",
		run:   "^TestSQLite$/^purge_is_fenced$",
	},
	{
		name: "postgres-purge-not-fenced", invariant: 4, file: "schema/postgres/purge.go",
		old: "partition = ?1 AND epoch = ?4)", new: "partition = ?1 AND epoch >= ?4)",
		fault: "PostgreSQL: an owner that was succeeded forgets tasks of its successor",
		run:   "^TestPostgres$/^purge_is_fenced$",
	},
	{
		name: "migration-holds-up-commits", invariant: 11, file: "schema/postgres/patient.go",
		old: "again := c.Conn.ExecContext(ctx, fmt.Sprintf(lockTimeoutSQL, lockMax.Milliseconds()), nil)", new: "again := c.Conn.ExecContext(ctx, fmt.Sprintf(lockTimeoutSQL, 0), nil)",
		fault: "PostgreSQL: what comes after an index in a migration waits for locks without end, and commits wait behind it",
		run:   "^TestMigrateBehindABackup$",
	},
	{
		name: "purge-of-untold", invariant: 10, file: "schema/purge.go", in: "schema/sqlite",
		old: "t.end_number > ?2 AND t.end_number <= (SELECT p.told FROM partitions p WHERE p.partition = ?1)", new: "t.end_number > ?2",
		fault: "what a task was made of is forgotten before its end is told",
		run:   "^TestSQLite$/^purge$",
	},
	{
		name: "postgres-epoch-not-compared", invariant: 4, file: "schema/postgres/commit.go",
		old: "AND p.epoch = u.epoch AND p.last_commit IN (u.after, u.last_commit) RETURNING p.partition`", new: "AND p.last_commit IN (u.after, u.last_commit) RETURNING p.partition`",
		fault: "PostgreSQL: a commit does not compare the epoch",
		run:   "^TestPostgres$/^stale_epoch$",
	},
	{
		name: "postgres-last-commit-not-compared", invariant: 4, file: "schema/postgres/commit.go",
		old: "AND p.epoch = u.epoch AND p.last_commit IN (u.after, u.last_commit) RETURNING p.partition`", new: "AND p.epoch = u.epoch RETURNING p.partition`",
		fault: "PostgreSQL: a commit does not find the row as its owner left it",
		run:   "^TestPostgres$/^stale_last_commit$",
	},
	{
		name: "postgres-row-without-seq-guard", invariant: 4, file: "schema/postgres/commit.go",
		old: " WHERE t.seq < excluded.seq", new: "",
		fault: "PostgreSQL: a row is overwritten by an older state of it",
		run:   "^TestPostgres$/^row_of_a_lower_seq$",
	},
	{
		name: "empty-puback-accepted", invariant: 1, file: "internal/natsbus/acks.go",
		old: "case ack.Stream == \"\" || ack.Seq == 0:", new: "case ack.Stream == \"-\":",
		fault: "an answer without a position counts as stored",
		run:   "^(TestPubAckErrors|TestPublishPackBusy)$",
	},
	{
		name: "consumer-skips-one", invariant: 2, file: "internal/natsbus/consumer.go",
		old: "OptStartSeq:       after + 1,", new: "OptStartSeq:       after + 2,",
		fault: "a new owner misses the first message after the cursor",
		run:   "^(TestReaderReadsItsPartition|TestTakeover)$",
	},
	{
		name: "lease-held-to-its-end", invariant: 4, file: "internal/natsbus/lease.go",
		old: "began.Add(l.ttl*2/3)", new: "began.Add(l.ttl*2)",
		fault: "a lease is used after the server has let it go",
		run:   "^(TestLeaseZombie|TestLeaseLateRenewal|TestLeaseWithoutServer)$",
	},
	{
		name: "neighbour-denied", invariant: 12, file: "internal/natsbus/request.go",
		old: "last != before && d.Subject == msg.Subject) {", new: "last != before) {",
		fault: "a request ends because another of the connection is denied",
		run:   "^TestDeniedNeighbour$",
	},
	{
		name: "one-stream-holds-up-the-endpoint", invariant: 12, file: "internal/natsbus/forward.go",
		old: "\t\tMaxAckPending: -1,", new: "\t\tMaxAckPending: 1000,",
		fault: "a task stream that takes nothing keeps all others' submissions back",
		run:   "^TestForwardPastAStreamThatIsAway$",
	},
	{
		name: "follower-of-a-stream-that-is-gone", invariant: 10, file: "internal/natsbus/identity.go", in: "internal/natsbus",
		old: "case id != i.id:", new: "case id == \"\":",
		fault: "a reader of events waits for ever in a stream that was made again",
		run:   "^TestFollowEventsOfAnotherStream$",
	},
	{
		name: "deaf-probe-keeps-its-agent", invariant: 12, file: "internal/natsbus/probe.go",
		old: "time.NewTimer(c.patience(stopTimeout))", new: "time.NewTimer(time.Hour)",
		fault: "a probe that ignores its context keeps its agent from ending",
		run:   "^TestDeafProbe$",
	},
}
