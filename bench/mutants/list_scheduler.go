package main

// schedulerMutants are faults of the owner: the order of a commit cycle, the fence,
// new tasks, endings, what a bad row may do, and how much is taken up.
var schedulerMutants = []mutant{
	{
		name: "ack-before-commit", invariant: 2, file: "scheduler/cycle.go",
		old: "\tif s.fill() {\n", new: "\ts.acknowledge()\n\tif s.fill() {\n",
		fault: "messages are acknowledged before the commit",
		run:   "^(TestCancel|TestEndedAndResubmittedInOneRound)$",
	},
	{
		name: "effect-before-commit", invariant: 3, file: "scheduler/cycle.go",
		old: "\tif s.fill() {\n", new: "\tif err = s.publish(ctx); err != nil {\n\t\treturn false, err\n\t}\n\tif s.fill() {\n",
		fault: "commands and statuses leave before the commit",
		run:   "^(TestCancel|TestResolveIsPublished)$",
	},
	{
		name: "failed-commit-goes-on", invariant: 3, file: "scheduler/commit.go",
		old: "\tif err != nil {\n\t\treturn commitFailed(", new: "\tif err != nil && c.batch.ID < 0 {\n\t\treturn commitFailed(",
		fault: "a commit that failed counts as one that worked",
		run:   "^(TestFailedCommitLetsNothingLeave|TestForeignRow)$",
	},
	{
		name: "memory-outlives-failed-commit", invariant: 4, file: "scheduler/shard.go",
		old: "\tclear(s.partitions)\n\tclear(s.plans.refs)", new: "\tclear(s.plans.refs)",
		fault: "after a failed commit the memory ahead of the store stays",
		run:   "^(TestForeignRow|TestFailedCommitLetsNothingLeave)$",
	},
	{
		name: "half-message-is-read", invariant: 2, file: "scheduler/create.go",
		old: "\t\t\t\tif !s.roomy() {\n\t\t\t\t\treturn true, nil", new: "\t\t\t\tif !s.roomy() {\n\t\t\t\t\tp.nextCursor = m.Pos\n\t\t\t\t\treturn true, nil",
		fault: "a message counts as read when the batch is full in its middle",
		run:   "^(TestFencedBetweenTwoRounds|TestAckOneByOne)$",
	},
	{
		name: "fenced-partition-publishes", invariant: 3, file: "scheduler/publish.go",
		old: "\t\tif x.p.lost {\n\t\t\tcontinue\n\t\t}\n", new: "",
		fault: "effects of a partition that was fenced leave",
		run:   "^(TestFencedPartitionIsLeftOut|TestFencedBetweenTwoRounds)$",
	},
	{
		name: "foreign-row-survived", invariant: 4, file: "scheduler/committer.go",
		old: "if errors.Is(err, core.ErrForeignRow) {", new: "if errors.Is(err, core.ErrForeignRow) && ctx.Err() != nil {",
		fault: "a foreign row under our epoch does not stop us",
		run:   "^TestForeignRowEndsRun$", hangs: true,
	},
	{
		name: "duplicate-runs-on", invariant: 9, file: "scheduler/create.go",
		old: "\tp.drop(e, s.cfg.AgentWindow)\n\ts.unqueue(e)\n\tif len(e.task.InputHash) == 0 {", new: "\tif len(e.task.InputHash) == 0 {",
		fault: "a new task whose id was taken runs on in memory",
		run:   "^TestDuplicates$",
	},
	{
		name: "twice-in-one-batch", invariant: 9, file: "scheduler/create.go",
		old: "if e := p.ids[sub.ID]; e != nil && e.created {", new: "if e := p.ids[sub.ID]; e != nil && e.created && e.task == nil {",
		fault: "a submission is compared with a task that is not committed",
		run:   "^TestAnswersAboutUncommittedTasksWait$",
	},
	{
		name: "cancel-of-unknown-forgotten", invariant: 9, file: "scheduler/apply.go",
		old: "\t\t\ts.cancelUnknown(p, c, &ev)\n", new: "",
		fault: "a cancel before its submission leaves no trace",
		run:   "^(TestCancel|TestControlOfATaskCreatedInTheCycle)$",
	},
	{
		name: "told-ahead-of-events", invariant: 10, file: "scheduler/shard.go",
		old: "\t\t\te.task.EndNumber = x.end\n", new: "\t\t\te.task.EndNumber = x.end\n\t\t\tp.published.add(x.end)\n",
		fault: "publishedThrough moves before the event stream has the ending",
		run:   "^(TestResolveIsPublished|TestOrderOfACycle)$",
	},
	{
		name: "told-mark-jumps", invariant: 10, file: "scheduler/partition.go",
		old: "\tm.ahead[end] = true\n", new: "\tm.ahead[end], m.through = true, end-1\n",
		fault: "publishedThrough jumps over an ending that is not published",
		run:   "^TestPublishedOutOfOrder$",
	},
	{
		name: "takeover-tells-nothing", invariant: 10, file: "scheduler/takeover.go",
		old: "\t\t\ts.publishOf(p, endings)\n", new: "",
		fault: "a takeover does not publish what ended after publishedThrough",
		run:   "^(TestResolveIsPublished|TestTakeoverRepublishes)$",
	},
	{
		name: "takeover-reads-one-page", invariant: 11, file: "scheduler/takeover.go",
		old: "\t\tif len(saved) < loadPage {\n\t\t\tbreak\n\t\t}\n", new: "\t\tbreak\n",
		fault: "a takeover loads the first thousand tasks in flight only",
		run:   "^TestTakeoverInPages$",
	},
	{
		name: "old-command-still-sent", invariant: 5, file: "scheduler/publish.go",
		old: " && task.Steps[x.effect.Step].Out == x.effect.Seq {", new: " {",
		fault: "a command that was answered for in the same round is sent all the same",
		run:   "^TestAnsweredBeforeItLeaves$",
	},
	{
		name: "batch-not-halved", invariant: 12, file: "scheduler/commit.go",
		old: "return errors.Is(err, core.ErrRowRefused) && tasks > 0 ||", new: "return",
		fault: "one refused row stops the whole batch",
		run:   "^(TestPoisonNewTask|TestPoisonDeadLetter)$",
	},
	{
		name: "poisoned-batch-thrown-away", invariant: 12, file: "scheduler/commit.go",
		old: "if len(writes) == 1 {", new: "if len(writes) <= 2 {",
		fault: "the neighbour of a refused row is lost with it",
		run:   "^(TestPoisonNewTask|TestPoisonDeadLetter)$",
	},
	{
		name: "gate-always-open", invariant: 12, file: "scheduler/inbox.go",
		old: "return g.open > 0 && !b.memory.over()", new: "return g.open > -1<<40 && !b.memory.over()",
		fault: "a partition that has enough in flight takes more",
		run:   "^(TestGateHoldsBack|TestCloseGate)$",
	},
	{
		name: "forged-reply-counts", invariant: 5, file: "scheduler/apply.go",
		old: "e.task.Steps[out].Out != r.Seq || s.cfg.Genuine(r, e.commitOf(r.Seq)) {", new: "e.task.Steps[out].Out != r.Seq || s.Stats.Forged == 0 {",
		fault: "a reply counts without the token of its command, or with that of another life's",
		run:   "^TestReplyWithoutItsToken$",
	},
	{
		name: "database-that-went-back-unseen", invariant: 4, file: "internal/core/batch.go", in: "scheduler",
		old: "\treturn e.Newer(Evidence{Epoch: epoch, Commit: commit})\n", new: "\treturn e.Epoch > epoch+commit+1<<40\n",
		fault: "a takeover does not see that commits are missing from the database",
		run:   "^TestDatabaseWentBack$",
	},
	{
		name: "released-before-drained", invariant: 4, file: "scheduler/committer.go",
		old: "now >= until || work.Err() != nil || !c.shard.busy(p) {", new: "now >= min(0, until) {",
		fault: "a partition is handed over with commands out and its cursors uncommitted",
		run:   "^(TestPlannedHandover|TestDrain)$",
	},
	{
		name: "overload-unseen", invariant: 12, file: "scheduler/admission.go",
		old: "case took <= a.target:", new: "case took <= a.target || took > a.target:",
		fault: "as many tasks are taken up however long commit cycles take",
		run:   "^(TestAdmissionHalves|TestLongCyclesHoldNewTasksBack)$",
	},
}
