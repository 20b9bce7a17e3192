package main

// drawnMutants are faults that tests see which draw what they do.
var drawnMutants = []mutant{
	{
		name: "newer-plan-holds-up-an-outbox", invariant: 12, file: "ingest/relay.go",
		old: "\t\trefused.ErrCode == CausePlans, // or read, also by a newer node alone\n", new: "",
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
		old: "\t\tfilter.After = page.Next\n", new: "\t\treturn nil\n",
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
}
