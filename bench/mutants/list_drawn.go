package main

// drawnMutants are faults that tests see which draw what they do.
var drawnMutants = []mutant{
	{
		name: "newer-plan-holds-up-an-outbox", invariant: 12, file: "ingest/relay.go",
		old: " || r.ErrCode == CausePlans\n", new: "\n",
		fault: "rows whose plan this node cannot read keep their place before those that it could relay",
		run:   "^TestRelayThroughAnything$",
	},
	{
		name: "unknown-outcome-removes-a-row", invariant: 1, file: "ingest/relay.go",
		old: "\tcase refused == nil:\n\t\tr.relayed", new: "\tcase refused == nil, refused.ErrCode == causeOutcome:\n\t\tr.relayed",
		fault: "a row of which the stream has said nothing is removed, and its task may never be",
		run:   "^TestRelayThroughAnything$",
	},
	{
		name: "books-of-the-first-page", invariant: 12, file: "internal/books/books.go",
		old: "if after = page.Next; after == \"\" {", new: "if after = page.Next; true {",
		fault: "the books are called closed when one page of processed tasks has been looked at",
		run:   "^TestBooksOfDrawnFaults$",
	},
	{
		name: "purge-passes-over-the-young", invariant: 12, file: "schema/purge.go", in: "schema/sqlite",
		old: "(core.Instant(ended) >= before || len(old.numbers) == limit)", new: "len(old.numbers) == limit",
		fault: "a task that is too young when older ones are forgotten never is",
		run:   "^TestSQLite$/^purge_of_anything$",
	},
	{
		name: "killed-bulk-run-keeps-lines-twice", invariant: 12, file: "cmd/duly/submitfile.go",
		old: "\tcase r.place.Failed == r.cmd.Failed:\n\t\tsize = min(size, r.place.FailedBytes)\n", new: "",
		fault: "a line that was not stored is kept once more when a killed run goes on",
		run:   "^TestSubmitFileThroughAnything$",
	},
	{
		name: "what-is-delivered-again-is-handed-out", invariant: 9, file: "internal/natsbus/reader.go",
		old: "\tif seq <= r.last {\n", new: "\tif seq < r.last {\n",
		fault: "a reader hands out the newest message again when it is delivered again",
		run:   "^TestReaderThroughAnything$",
	},
	{
		name: "rows-go-though-their-stream-has-them", invariant: 9, file: "scheduler/purge.go",
		old: "return min(before, at.Add(-clocksMost))", new: "return max(before, at.Add(-clocksMost))",
		fault: "the row of a task is forgotten while its submission can come again",
		run:   "^TestAgesThroughAnything$",
	},
	{
		name: "found-behind-what-is-missed", invariant: 9, file: "internal/schedules/runner.go",
		old: "\t\tl.cursor = l.missedTo\n", new: "",
		fault: "a run that was submitted and not written down is looked for among many that were missed, and not found",
		run:   "^TestSubmittedAfterMany$",
	},
	{
		name: "ids-of-others-asked-for-as-read", invariant: 9, file: "internal/schedules/runner.go",
		old: "\tids = ids[:0]\n", new: "",
		fault: "a task that was not read yet counts as forgotten when that of another schedule was read",
		run:   "^TestReadUpToOneOfTwo$",
	},
	{
		name: "schedules-without-tasks-work", invariant: 12, file: "internal/schedules/runner.go",
		old: "\tif err != nil {\n\t\treturn fmt.Errorf(\"tasks of schedules: %w\", err)\n\t}\n", new: "",
		fault: "a round that could not ask what became of tasks is reported as one that worked",
		run:   "^TestAgainstLedger$",
	},
	{
		name: "silent-store-forgets", invariant: 9, file: "internal/schedules/runner.go",
		old: "\tif err != nil {\n\t\treturn nil, err\n\t}\n\tfor _, id := range ids {", new: "\tfor _, id := range ids {",
		fault: "a task counts as forgotten where the store failed when it was asked again",
		run:   "^TestStoreFailsBetweenTwoLooks$",
	},
	{
		name: "schedules-for-one-round", invariant: 12, file: "internal/schedules/runner.go",
		old: "if pause.For(ctx, r.cfg.Interval) != nil {", new: "if pause.For(ctx, r.cfg.Interval); true {",
		fault: "no schedule is carried out after the first round",
		run:   "^TestRun$",
	},
	{
		name: "lag-of-what-fails-is-not-told", invariant: 12, file: "internal/schedules/runner.go",
		old: "\t\tr.stats.Lag = max(r.stats.Lag, now.Sub(a.due))\n", new: "",
		fault: "a run that is not taken for hours is not told as late",
		run:   "^TestFails$",
	},
	{
		name: "failing-since-just-now", invariant: 12, file: "internal/schedules/decision.go",
		old: "\t\tif to.Failing.IsZero() {\n", new: "\t\tif l.failure != \"\" {\n",
		fault: "a schedule that has failed for hours is told as failing since its newest run",
		run:   "^TestAgainstLedger$",
	},
	{
		name: "last-of-the-missed-unknown", invariant: 9, file: "internal/schedule/next.go",
		old: "\t\t\tl.Last = cursor\n", new: "",
		fault: "of a schedule that ended while there was no leader, the missed runs are counted again in each round",
		run:   "^TestLook$",
	},
	{
		name: "fewer-than-no-catch-ups", invariant: 12, file: "internal/schedule/spec.go",
		old: "if s.CatchUps < 1 || s.CatchUps > catchUpsMax {", new: "if s.CatchUps > catchUpsMax {",
		fault: "a schedule that makes up for less than no runs is taken, and none of them is ever submitted",
		run:   "^TestRefused$",
	},
	{
		name: "parents-fill-their-partition", invariant: 12, file: "scheduler/claim.go",
		old: "\t\t\troom = s.cfg.Memory.fitsAwaited(min(v.n, batch, p.waiting()))\n", new: "\t\t\troom = 0\n",
		fault: "children that are parked in a partition full of their parents never go on",
		run:   "^TestParkedChildrenOfAFullPartition$",
	},
	{
		name: "key-forgotten-before-its-round", invariant: 12, file: "scheduler/grants.go",
		old: "if use.idle() && k.nextRound.lookAt == 0 {", new: "if use.idle() {",
		fault: "a key whose tasks are in the store alone is forgotten before the round that reads them",
		run:   "^TestReadyKeyIsNotForgotten$",
	},
}
