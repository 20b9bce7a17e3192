package main

// wentBackMutants are faults of what operators' requests come to when the database went back, or forgot.
var wentBackMutants = []mutant{
	{
		name: "accepted-done-again", invariant: 7, file: "internal/core/transition.go",
		old: "if again && s.Status == StepDone && !s.ByHand {", new: "if again && s.Status == StepDone {",
		fault: "what an operator did by hand is done again by its service",
		run:   "^(TestAcceptedBeforeTheDatabaseWentBack|TestAcceptedCheckBeforeTheDatabaseWentBack|TestStormThenCalm)$",
	},
	{
		name: "accepted-taken-for-done", invariant: 8, file: "internal/core/wentback.go",
		old: "step >= 0 && d.t.State != StateUndoing {", new: "step >= 0 && d.t.State == StateUndone {",
		fault: "a step that was accepted, and may have been undone since, counts as done",
		run:   "^TestAcceptedBeforeTheDatabaseWentBack$",
	},
	{
		name: "accept-of-what-may-be-undone", invariant: 8, file: "internal/core/operator.go",
		old: "if d.ev.WentBack != 0 || d.t.WentBackAt != 0 {", new: "if d.ev.WentBack != 0 {",
		fault: "a step is accepted whose undo its service may have taken already",
		run:   "^TestAcceptAfterTheDatabaseWentBack$",
	},
	{
		name: "accept-before-it-is-noted", invariant: 8, file: "internal/core/operator.go",
		old: "if d.ev.WentBack != 0 || d.t.WentBackAt != 0 {", new: "if d.t.WentBackAt != 0 {",
		fault: "the same of a task that does not know yet that the database went back",
		run:   "^TestAcceptAfterTheDatabaseWentBack$",
	},
	{
		name: "accept-offered-after-it-went-back", invariant: 12, file: "internal/core/operator.go",
		old: "\tif t.WentBackAt != 0 {\n\t\treturn []string{", new: "\tif t.WentBackAt < 0 {\n\t\treturn []string{",
		fault: "an accept is offered that is not allowed",
		run:   "^TestAcceptAfterTheDatabaseWentBack$",
	},
	{
		name: "resubmit-forgets-the-lost-time", invariant: 8, file: "internal/core/operator.go",
		old: "\td.noteBefore()\n", new: "",
		fault: "a task in error that is resubmitted knows nothing of what ran in the time that is lost",
		run:   "^TestTakenUpAfterTheDatabaseWentBack$",
	},
	{
		name: "undo-forgets-the-lost-time", invariant: 8, file: "internal/core/undo.go",
		old: "\td.noteBefore()\n", new: "",
		fault: "a task in error is undone without what ran in the time that is lost",
		run:   "^(TestTakenUpAfterTheDatabaseWentBack|TestUndoOfWhatWasResolvedAfterTheDatabaseWentBack)$",
	},
	{
		name: "resubmit-beside-an-accepted-step", invariant: 8, file: "internal/core/operator.go",
		old: "d.t.State == StateError && step >= 0 {", new: "d.t.State == StateError && step < -1 {",
		fault: "a task in error goes on though a step that was accepted may have been undone",
		run:   "^TestAcceptedAndInErrorWhenTheDatabaseWentBack$",
	},
	{
		name: "next-round-forgets-the-lost-time", invariant: 8, file: "internal/core/transition.go",
		old: "if round && t.WentBackAt != 0 {", new: "if round && t.WentBackAt < 0 {",
		fault: "what the time that is lost did in the next round is not undone",
		run:   "^TestRoundAfterTheDatabaseWentBack$",
	},
	{
		name: "next-round-is-not-quiet", invariant: 7, file: "internal/core/transition.go",
		old: "t.Steps[i].MayHaveEffect, t.Steps[i].EffectsPossibleUntil = true, t.LostUntil", new: "t.Steps[i].MayHaveEffect = true",
		fault: "an undo in the next round does not wait for the commands of the time that is lost",
		run:   "^TestRoundAfterTheDatabaseWentBack$",
	},
	{
		name: "done-again-by-another-input", invariant: 8, file: "internal/core/transition.go",
		old: "\t\tif !s.Repeats {\n", new: "\t\tif s.Repeats || !s.Repeats {\n",
		fault: "what was done by the input before an edit is done again, and undone, by the new one",
		run:   "^(TestEditedBeforeTheDatabaseWentBack|TestStormThenCalm)$",
	},
	{
		name: "edit-does-not-reach-its-step", invariant: 8, file: "internal/core/transition.go",
		old: "s.Repeats = s.Repeats && r.Input == nil", new: "s.Repeats = s.Repeats || r.Input == nil && s.Repeats",
		fault: "a step that an edit starts again keeps the old input",
		run:   "^TestEditedBeforeTheDatabaseWentBack$",
	},
	{
		name: "went-back-not-told", invariant: 8, file: "scheduler/shard.go",
		old: "ev.WentBack, ev.At = back, max(ev.At, back)", new: "ev.At = max(ev.At, back)",
		fault: "a request takes a task up as if the database had not gone back",
		run:   "^TestRequestsAfterTheDatabaseWentBack$",
	},
	{
		name: "went-back-refuses-the-request", invariant: 9, file: "scheduler/shard.go",
		old: "\t\tif ev.IfSeq == seq {", new: "\t\tif ev.IfSeq == -seq {",
		fault: "what the owner notes because of a request makes it refuse the request",
		run:   "^TestRequestsAfterTheDatabaseWentBack$",
	},
	{
		name: "forgotten-id-is-taken", invariant: 9, file: "scheduler/apply.go",
		old: "	if e == nil && stored {", new: "	if e == nil && stored && err != nil {",
		fault: "a cancel of a task whose journal is forgotten is taken for one of an unknown id",
		run:   "^TestRequestAboutWhatIsForgotten$",
	},
	{
		name: "task-of-a-successor", invariant: 4, file: "scheduler/apply.go",
		old: "	if saved.Row.Number >= p.nextNumber {", new: "	if saved.Row.Number < 0 {",
		fault: "an owner goes by what it read of its successor, which the database has lost since",
		run:   "^TestTaskOfASuccessor$",
	},
	{
		name: "task-of-another-life", invariant: 12, file: "scheduler/commit.go",
		old: "saved[0].Row.ID != w.Task.ID || ", new: "",
		fault: "a row is refused, the database goes back, and the task that has the number then is put in error",
		run:   "^TestPoisonOfAnotherLife$",
	},
	{
		name: "cut-stream-forgotten", invariant: 8, file: "internal/core/batch.go",
		old: "c.Former.Rewound) > known; {", new: "c.Former.Rewound) > known+1<<40; {",
		fault: "a database that goes back behind the loss of a part of the stream takes what is lost for new",
		run:   "^TestTakeAfterWhatIsLost$",
	},
	{
		name: "cut-stream-not-recorded", invariant: 8, file: "scheduler/partition.go",
		old: ", Rewound: p.rewound}", new: "}",
		fault: "that a part of the stream was lost is not recorded outside the database",
		run:   "^TestStreamWasCutBeforeTheDatabaseWentBack$",
	},
	{
		name: "dies-between-two-looks", invariant: 8, file: "internal/core/batch.go",
		old: "c.Provisional && s.Found.WentBack {", new: "c.Provisional && s.Epoch < 0 {",
		fault: "a node that dies between its two looks leaves the end of the stream that it saw first",
		run:   "^TestTakeAgain$",
	},
	{
		name: "takeover-with-an-old-end", invariant: 8, file: "scheduler/takeover.go",
		old: "(st.Found.WentBack || s.cfg.Now() > ", new: "(s.cfg.Now() > ",
		fault: "after the database went back, submissions that came while the node stood still count as new",
		run:   "^TestTakeoverAfterAnOldLook$",
	},
	{
		name: "takeover-with-old-evidence", invariant: 8, file: "scheduler/takeover.go",
		old: "(st.Found.WentBack || s.cfg.Now() > g.At.Add(groundFor))", new: "st.Found.WentBack",
		fault: "a node that stood still takes over without what others recorded meanwhile",
		run:   "^TestTakeoverAfterAnOldLook$",
	},
	{
		name: "takeover-of-another-database", invariant: 4, file: "scheduler/takeover.go",
		old: "(st.Found.Epoch != first.Epoch || st.Found.Commit != first.LastCommit)", new: "st.Found.Epoch < 0",
		fault: "a node goes by what it looked at before the database went back once more",
		run:   "^TestTakeoverOvertakenBeforeTheSecond$",
	},
	{
		name: "successor-counts-as-lost", invariant: 12, file: "scheduler/takeover.go",
		old: "	if err := s.stillOurs(ctx, newPartition(first)); err != nil {\n		return first, err\n	}\n	found", new: "	found",
		fault: "what a successor records while a node looks again makes the database one that went back",
		run:   "^TestTakeoverOvertakenWhileItLooks$",
	},
}
