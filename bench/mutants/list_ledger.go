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
	{
		name: "ledger-tombstone-as-old-as-its-do", invariant: 7, file: "agents/pgledger/sql.go",
		old: "SET state = '` + stateUndoing + `', touched = now()", new: "SET state = '` + stateUndoing + `'",
		fault: "the tombstone of an old do is forgotten with it, and a late do takes effect",
		run:   "^TestForgetKeepsYoungTombstones$",
	},
	{
		name: "ledger-undone-as-old-as-its-first-try", invariant: 7, file: "agents/pgledger/sql.go",
		old: "result = NULL, touched = now()", new: "result = NULL",
		fault: "the age of a tombstone counts from the first try of its undo",
		run:   "^TestForgetKeepsYoungTombstones$",
	},
	{
		name: "bucket-clocks-agree", invariant: 7, file: "agents/kvledger/record.go",
		old: "*time.Millisecond+skew))", new: "*time.Millisecond-0*skew))",
		fault: "a claim is taken over by a clock that is ahead, while its work goes on",
		run:   "^TestClaimHoldsWhileClocksMayDiffer$",
	},
	{
		name: "bucket-tombstone-without-the-result", invariant: 8, file: "agents/kvledger/ledger.go",
		old: "return record{State: stateUndoing, Known: r.Known, Result: r.Result}, nil", new: "return record{State: stateUndoing, Known: r.Known}, nil",
		fault: "an undo that is taken over does not get what its do gave",
		run:   "^TestUndoIsTakenOver$",
	},
	{
		name: "memory-forgets-what-is-at-work", invariant: 7, file: "agents/memory.go",
		old: "e != nil && !e.working && e.idle", new: "e != nil && e.idle",
		fault: "a key is forgotten while its undo is at work, and a do takes effect beside it",
		run:   "^TestLedgerKeepsWhatIsAtWork$",
	},
	{
		name: "memory-used-again-and-forgotten", invariant: 7, file: "agents/memory.go",
		old: "!e.working && e.idleSince == k.since {", new: "!e.working {",
		fault: "a tombstone goes with the age of what was done of its key before",
		run:   "^TestLedgerIsBounded$",
	},
	{
		name: "memory-full-for-ever", invariant: 12, file: "agents/memory.go",
		old: "\tl.forget()\n\te := l.entries[key]", new: "\te := l.entries[key]",
		fault: "a ledger that was full refuses new keys for ever",
		run:   "^TestFullLedgerTakesKeysAgain$",
	},
	{
		name: "bucket-claim-shorter-than-its-command", invariant: 7, file: "agents/kvledger/ledger.go",
		old: "return min(max(time.Until(deadline), time.Millisecond), LeaseMost)", new: "return min(max(time.Until(deadline), time.Millisecond), l.options.Lease)",
		fault: "a claim is taken over while its command has time, and its work is done beside it",
		run:   "^TestClaimHoldsAsLongAsItsCommand$",
	},
	{
		name: "bucket-keeps-an-hour", invariant: 7, file: "agents/kvledger/record.go",
		old: "TTL: b.Keep, MaxBytes", new: "TTL: KeepLeast, MaxBytes",
		fault: "a bucket keeps its keys for an hour, whatever it was told",
		run:   "^TestBucketKeepsAsLongAsItIsTold$",
	},
	{
		name: "ledger-cut-though-there-is-time", invariant: 5, file: "agents/pgledger/ledger.go",
		old: "hold = min(max(time.Until(deadline), 0)+holdLeast, HoldMost)", new: "hold = min(max(time.Until(deadline), 0)+holdLeast, hold)",
		fault: "a transaction that stands still is ended though its command has time",
		run:   "^TestHolderWithTime$",
	},
	{
		name: "bucket-any-code-says-none", invariant: 7, file: "agents/kvledger/ledger.go",
		old: "return is && coded != nil && coded.Code >= 400 && coded.Code < 500", new: "return is && coded != nil",
		fault: "at most once: a do that failed for good, and may have had its effect, is done again",
		run:   "^TestAtMostOnceByCodes$",
	},
	{
		name: "bucket-work-outlives-its-claim", invariant: 7, file: "agents/kvledger/ledger.go",
		old: "context.WithDeadline(ctx, c.until)", new: "context.WithTimeout(ctx, c.lease)",
		fault: "the work of a claim whose answer came late goes on while another has the key",
		run:   "^TestWorkEndsWithItsClaim$",
	},
}
