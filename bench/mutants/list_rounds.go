package main

// roundMutants are faults of what looks at the store again and again: of schedules, books, the supervisor's scan and purges.
var roundMutants = []mutant{
	{
		name: "schedule-forgets-the-place", invariant: 9, file: "internal/schedules/decision.go",
		old: "core.InstantOf(l.at).Time(), run.place, \"\", \"\"", new: "core.InstantOf(l.at).Time(), 0, \"\", \"\"",
		fault: "a run that stands in the stream counts as forgotten, and another is submitted beside it",
		run:   "^TestBacklog$",
	},
	{
		name: "run-now-at-the-place-of-another", invariant: 9, file: "internal/operate/scheduling.go", in: "internal/schedules",
		old: "core.InstantOf(at).Time(), place, \"\", \"\"", new: "core.InstantOf(at).Time(), to.LastPlace*min(place, 1), \"\", \"\"",
		fault: "a task that an operator submitted counts as forgotten by the place of the one before",
		run:   "^TestRunNowBehindABacklog$",
	},
	{
		name: "schedule-looks-once", invariant: 9, file: "internal/schedules/runner.go",
		old: "\t\tis, found := again[id]\n\t\tif !found {", new: "\t\tis := again[id]\n\t\tif len(id) > 0 {",
		fault: "a task that is stored between two looks counts as forgotten",
		run:   "^TestReadBetweenTwoLooks$",
	},
	{
		name: "schedule-skipped-told-once", invariant: 12, file: "internal/schedules/runner.go",
		old: "if skipped > 0 && r.skipped[s.Name] != s.LastTask {", new: "if skipped > 0 && r.skipped[s.Name] == \"\" {",
		fault: "runs that are left out for a second task are not reported",
		run:   "^TestSkippedIsToldForEachTask$",
	},
	{
		name: "schedule-skipped-told-always", invariant: 12, file: "internal/schedules/runner.go",
		old: "if skipped > 0 && r.skipped[s.Name] != s.LastTask {", new: "if skipped > 0 {",
		fault: "each run that is left out is told of",
		run:   "^TestBacklog$",
	},
	{
		name: "schedule-end-of-another-task", invariant: 9, file: "internal/schedules/decision.go",
		old: "l.outcome != \"\" && to.LastTask == l.task && to", new: "l.outcome != \"\" && to",
		fault: "the end of a task closes the one that was submitted after it",
		run:   "^TestLookBesideAnother$",
	},
	{
		name: "schedule-misses-twice", invariant: 12, file: "internal/schedules/decision.go",
		old: "l.missed > 0 && l.missedTo.After(decided) {", new: "l.missed > 0 {",
		fault: "runs that two leaders missed count twice",
		run:   "^TestLookBesideAnother$",
	},
	{
		name: "schedule-resume-closes-any", invariant: 9, file: "internal/operate/scheduling.go", in: "internal/schedules",
		old: "if gone != \"\" && to.LastTask == gone && to.Outcome == \"\" {", new: "if gone != \"\" && to.Outcome == \"\" {",
		fault: "a resume closes a task that was submitted meanwhile",
		run:   "^TestResumeBesideARun$",
	},
	{
		name: "schedule-resume-closes-what-is-there", invariant: 9, file: "internal/operate/scheduling.go", in: "internal/schedules",
		old: "if err != nil || there {", new: "if err != nil || there && name == \"\" {",
		fault: "a resume closes a task that is at work",
		run:   "^TestResumeClosesALostRun$",
	},
	{
		name: "schedule-old-times-made-up-for", invariant: 11, file: "internal/operate/scheduling.go", in: "internal/schedules",
		old: "\t\tto.Cursor, to.Waiting = at, nil", new: "\t\tto.Waiting = nil",
		fault: "after its times were changed a schedule makes up for runs from before",
		run:   "^TestOtherTimesBeginNow$",
	},
	{
		name: "books-of-an-unreadable-task", invariant: 12, file: "internal/books/books.go",
		old: "\tif saved.Err == nil && len(saved.Journal) == 0 {\n\t\tswitch", new: "\tif len(saved.Journal) == 0 {\n\t\tswitch",
		fault: "a task that cannot be read is taken for one whose journal is forgotten",
		run:   "^TestTaskThatCannotBeRead$",
	},
	{
		name: "books-leave-out-what-is-unreadable", invariant: 12, file: "internal/books/books.go",
		old: "\tif saved.Err == nil && len(saved.Journal) == 0 {\n\t\treturn true", new: "\tif len(saved.Journal) == 0 {\n\t\treturn true",
		fault: "a missing effect is not told of when the task's journal cannot be read",
		run:   "^TestStepThatWasLeftOut$",
	},
	{
		name: "books-accepted-in-another-round", invariant: 12, file: "internal/books/books.go",
		old: "if byHand && r.Round == key.Round {", new: "if byHand {",
		fault: "what was accepted in one round is not missed in the next",
		run:   "^TestAcceptedStepNeedsNoEffect$",
	},
	{
		name: "books-miss-what-is-older", invariant: 12, file: "internal/books/books.go",
		old: "CreatedFrom: core.InstantOf(c.report.Since), ", new: "",
		fault: "effects of tasks from before the time that is asked about are called missing",
		run:   "^TestOldTasksAreNotMissed$",
	},
	{
		name: "books-close-though-cut", invariant: 12, file: "internal/books/books.go",
		old: "r.Silent() == 0 && !r.Cut", new: "r.Silent() == 0",
		fault: "books close of which only a part was compared",
		run:   "^TestCut$",
	},
	{
		name: "scan-forgets-its-place", invariant: 11, file: "supervisor/scan.go",
		old: "\t\tp.resume = rows[len(rows)-1]\n", new: "\t\tp.resume = rows[0]\n",
		fault: "the scan of a partition with many overdue tasks does not get on",
		run:   "^TestStuckFrontOfPartition$",
	},
	{
		name: "scan-never-begins-again", invariant: 11, file: "supervisor/scan.go",
		old: "\t\t\tp.resume = core.Due{}\n\t\t}\n\t}\n}", new: "\t\t\t_ = p\n\t\t}\n\t}\n}",
		fault: "tasks that stay overdue are not asked about again",
		run:   "^TestStuckFrontOfPartition$",
	},
	{
		name: "scan-reads-what-is-not-asked", invariant: 12, file: "supervisor/scan.go",
		old: "p == nil || !p.unread {\n\t\t\treturn false", new: "p == nil || !p.unread || p.unread {\n\t\t\treturn false",
		fault: "a partition without an owner takes the room of a scan from others",
		run:   "^TestUnreadPartitionIsLeftAlone$",
	},
	{
		name: "child-purged-before-its-parent", invariant: 8, file: "schema/purge.go", in: "schema/sqlite",
		old: "CASE WHEN t.state = 'error' THEN 1\n\tWHEN t.parent IS NOT NULL AND EXISTS (SELECT 1 FROM journal j WHERE j.partition = t.partition AND j.number = t.parent AND j.seq = 1) THEN 1 ELSE 0 END", new: "CASE WHEN t.state = 'error' THEN 1 ELSE 0 END",
		fault: "a child's journal goes before its parent's, whose undo needs it",
		run:   "^TestSQLite$",
	},
	{
		name: "family-purged-though-it-lives", invariant: 8, file: "schema/purge.go",
		old: "if is[k.Of] && !is[k.Number] {", new: "if !is[k.Number] {",
		fault: "children are forgotten of a task that has been taken up again meanwhile",
		run:   "^TestFamilyStaysWithItsParent$",
	},
	{
		name: "family-purged-by-half", invariant: 8, file: "schema/purge.go", in: "schema/sqlite",
		old: "if len(c.Rows) > 0 || c.moves || c.Partly {", new: "if len(c.Rows) > 0 || c.moves {",
		fault: "a family larger than a purge is never forgotten",
		run:   "^TestSQLite$",
	},
	{
		name: "purge-never-looks-again", invariant: 12, file: "schema/purge.go", in: "schema/sqlite",
		old: "old < is.from.Add(purgeAgain) {", new: "old < is.from.Add(1000*purgeAgain) {",
		fault: "rows that a purge passed over stay for ever",
		run:   "^TestSQLite$",
	},
	{
		name: "failed-purge-counts", invariant: 12, file: "schema/purge.go", in: "schema/sqlite",
		old: "\tif err == nil {\n\t\tr.purged.set(partition, c.place)", new: "\tif err == nil || touched == 0 {\n\t\tr.purged.set(partition, c.place)",
		fault: "rows that a failed purge did not take are passed over",
		run:   "^TestPurgeThatFailsIsDoneAgain$",
	},
}
