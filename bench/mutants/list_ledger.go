package main

// ledgerMutants are faults of the durable ledgers.
var ledgerMutants = []mutant{
	{
		name: "ledger-claim-by-itself", invariant: 7, file: "agents/pgledger/ledger.go",
		old: "claimed, err := l.db.exec(ctx, tx, l.text.claim,", new: "claimed, err := l.db.alone(ctx, l.text.claim,",
		fault: "the row of a key is not in the transaction of the effect",
		run:   "^TestEffectAndRowAreOne$",
	},
	{
		name: "ledger-claim-not-looked-at", invariant: 7, file: "agents/pgledger/ledger.go",
		old: "\t\tif claimed == 0 {", new: "\t\tif claimed < 0 {",
		fault: "work begins though another has done the key, or is at it",
		run:   "^TestGuide$",
	},
	{
		name: "ledger-tombstone-not-looked-at", invariant: 7, file: "agents/pgledger/ledger.go",
		old: "case r.state == stateDone:\n\t\treturn r.result", new: "case r.state != stateWorking:\n\t\treturn r.result",
		fault: "a do after its undo is answered as done",
		run:   "^TestGuide$",
	},
	{
		name: "ledger-tombstone-goes-with-the-work", invariant: 7, file: "agents/pgledger/ledger.go",
		old: "\t\t\t\tl.db.rollback(tx)\n", new: "\t\t\t\tl.db.rollback(tx)\n\t\t\t\t_, _ = l.db.alone(ctx, \"DELETE FROM \"+l.table+\" WHERE key = $1 AND state = 'undoing'\", key)\n",
		fault: "an undo whose work fails leaves no tombstone",
		run:   "^TestEffectAndRowAreOne$",
	},
	{
		name: "ledger-undo-not-settled", invariant: 7, file: "agents/pgledger/ledger.go",
		old: "\t\treturn l.change(ctx, tx, key, l.text.settle, key)", new: "\t\treturn nil",
		fault: "an undo that has succeeded works again",
		run:   "^TestContract$",
	},
	{
		name: "ledger-waits-for-a-key", invariant: 5, file: "agents/pgledger/sql.go",
		old: "`pg_try_advisory_xact_lock($%d::INT8)`", new: "`$%d::INT8 IS NOT NULL`",
		fault: "a call waits for another of its key",
		run:   "^TestKeyAtWorkIsNotWaitedFor$", hangs: true,
	},
	{
		name: "ledger-held-by-a-host-that-is-gone", invariant: 5, file: "agents/pgledger/sql.go",
		old: "`set_config('idle_in_transaction_session_timeout', $2::TEXT, true) <> ''`", new: "`$2::TEXT <> ''`",
		fault: "the server does not end a transaction that stands still",
		run:   "^TestHolderThatStandsStill$", hangs: true,
	},
	{
		name: "ledger-absent-while-at-work", invariant: 7, file: "agents/pgledger/sql.go",
		old: "case r.state == stateUndoing, r.state == \"\" && !free:", new: "case r.state == stateUndoing:",
		fault: "a probe says that there is no effect while a do is at work",
		run:   "^TestKeyAtWorkIsNotWaitedFor$",
	},
	{
		name: "bucket-claim-by-no-revision", invariant: 7, file: "agents/kvledger/record.go",
		old: "\t\treturn l.kv.Create(ctx, key, r.encode())", new: "\t\treturn l.kv.Put(ctx, key, r.encode())",
		fault: "a claim is written over what the key was",
		run:   "^TestContract$",
	},
	{
		name: "bucket-lost-claim-records", invariant: 7, file: "agents/kvledger/ledger.go",
		old: "_, err := l.kv.Update(ctx, c.key, data, c.revision)", new: "_, err := l.kv.Put(ctx, c.key, data)",
		fault: "a do that has lost its claim records its outcome all the same",
		run:   "^TestLostClaim$",
	},
	{
		name: "bucket-works-again-though-unclear", invariant: 7, file: "agents/kvledger/ledger.go",
		old: "case r.State == stateWorking && l.options.AtMostOnce:", new: "case r.State == stateDone && l.options.AtMostOnce:",
		fault: "a do works again of which it is not known whether it took effect, though at most once was asked for",
		run:   "^TestAtMostOnce$",
	},
	{
		name: "bucket-dead-claim-for-ever", invariant: 5, file: "agents/kvledger/record.go",
		old: "return r.Lease > 0 && now.Before(r.written.Add(time.Duration(r.Lease)*time.Millisecond+skew))", new: "return r.Lease > 0 && !now.IsZero() && skew >= 0",
		fault: "the claim of a process that has died is never taken over",
		run:   "^TestLostClaim$", hangs: true,
	},
}
