package main

// coreMutants are faults of the decision: who may answer, when, and what a task
// comes to.
var coreMutants = []mutant{
	{
		name: "unread-deadline-does-not-count", invariant: 6, file: "internal/core/unread.go",
		old: "if d.at < d.t.Deadline {", new: "if d.at != 0 {",
		fault: "a task that waits for its plan waits beyond its deadline",
		in:    "scheduler", run: "^TestUnreadablePlanAtBirth$",
	},
	{
		name: "move-says-something-of-durations", invariant: 8, file: "internal/core/record.go",
		old: "{KindMigrated, true}", new: "{KindMigrated, false}",
		fault: "the forecast goes on following a task that was moved to another version",
		in:    "internal/forecast", run: "^TestEveryKind$",
	},
	{
		name: "reply-number-ignored", invariant: 5, file: "internal/core/decision.go",
		old: "i := d.t.OutSeq(d.ev.Seq)\n\tif i < 0 || d.t.State.Ended() || d.t", new: "i := d.t.Out()\n\tif i < 0 || d.t.State.Ended() || d.t",
		fault: "any number answers whatever command is out",
		run:   "^(TestCells|TestScripts)$",
	},
	{
		name: "reply-after-end", invariant: 5, file: "internal/core/decision.go",
		old: "i < 0 || d.t.State.Ended() || d.t.Steps[i].kind != kindCall", new: "i < 0 || d.t.Steps[i].kind != kindCall",
		fault: "a task in error takes the answer of a command it left out",
		run:   "^TestPlanGoneAndBack$",
	},
	{
		name: "late-reply-counts", invariant: 5, file: "internal/core/do.go",
		old: "if d.at >= s.Due {", new: "if d.at < 0*s.Due {",
		fault: "a reply counts after its complete-by",
		run:   "^(TestCells|TestScripts)$",
	},
	{
		name: "refusal-accepted", invariant: 5, file: "internal/core/do.go",
		old: "case d.ev.Code == 0:\n\t\td.done(i)", new: "case d.ev.Code == 0 || FinalCode(d.ev.Code):\n\t\td.done(i)",
		fault: "any refusal of a do is accepted as done",
		run:   "^(TestCells|TestRefusalOfOneCopyIsNotNoEffect)$",
	},
	{
		name: "failed-undo-accepted", invariant: 8, file: "internal/core/do.go",
		old: "case d.ev.Code == 0 && undo:", new: "case undo:",
		fault: "an undo that failed counts as undone",
		run:   "^(TestCells|TestScripts)$",
	},
	{
		name: "retry-past-deadline", invariant: 11, file: "internal/core/do.go",
		old: "if next >= d.t.workUntil(d.p) {", new: "if next >= d.t.workUntil(d.p) && next < 0 {",
		fault: "a try is planned for after the task's deadline",
		run:   "^(TestAttemptIsKeptWhenThereIsNoTimeToPause|TestScripts)$",
	},
	{
		name: "deadline-not-looked-at", invariant: 11, file: "internal/core/forward.go",
		old: "late := d.at >= t.workUntil(d.p)\n", new: "late := d.at >= t.workUntil(d.p) && t.Deadline < 0\n",
		fault: "a task past its deadline goes on",
		run:   "^(TestCells|TestOwnDeadlineBoundsTheRow)$",
	},
	{
		name: "steps-out-of-order", invariant: 11, file: "internal/core/forward.go",
		old: "if !t.Steps[a].Status.over() {\n\t\t\treturn false", new: "if t.Steps[a].Status == StepFailed {\n\t\t\treturn false",
		fault: "a step does not wait for those it comes after",
		run:   "^TestAfterSetDecides$",
	},
	{
		name: "two-commands-out", invariant: 5, file: "internal/core/forward.go",
		old: "return s.Status == StepWaiting && s.Out == 0 && t.ready", new: "return (s.Status == StepWaiting || s.Status == StepRunning) && t.ready",
		fault: "a step begins once more while its command is out",
		run:   "^(TestChainRunsOneAtATime|TestCells)$",
	},
	{
		name: "round-keeps-keys", invariant: 11, file: "internal/core/operator.go",
		old: "\t\tr.Round++\n", new: "\t\tr.Round += 0\n",
		fault: "a resubmit after an undo runs into the tombstones of its old keys",
		run:   "^(TestCells|TestScripts)$",
	},
	{
		name: "resubmit-while-undoing", invariant: 8, file: "internal/core/operator.go",
		old: "case StepUndoing, StepUndone:", new: "case StepSkipped:",
		fault: "a task whose undo has begun can be started again",
		run:   "^(TestCells|TestScripts)$",
	},
	{
		name: "resubmit-with-command-out", invariant: 7, file: "internal/core/operator.go",
		old: "case StepRunning:\n\t\t\treturn -1, \"a command was out when it was stopped: undo it\"", new: "case StepRunning:",
		fault: "a task stopped with a command out can be started again",
		run:   "^TestPlanGoneAndBackWithAStepToGo$",
	},
	{
		name: "bound-set-too-late", invariant: 11, file: "internal/core/birth.go",
		old: "t.Bound = min(t.Bound, ev.At.Add(p.ShortestTimeout()), t.Deadline)", new: "t.Bound = t.Deadline",
		fault: "a new row is due at the task's deadline only",
		run:   "^(TestCells|TestUndoIsPatient)$",
	},
	{
		name: "poison-forgets-the-effect", invariant: 12, file: "internal/core/operator.go",
		old: "r.StepStatus, r.EffectsPossibleUntil = StepFailed, d.quietAfter(i)", new: "r.StepStatus, r.EffectsPossibleUntil = StepFailed, 0",
		fault: "a poisoned task forgets that its command may still act",
		run:   "^TestPoisonedCommandMayStillAct$",
	},
	{
		name: "gap-in-journal-replayed", invariant: 4, file: "internal/core/replay.go",
		old: "if r.Seq != t.Seq+1 {", new: "if r.Seq < t.Seq {",
		fault: "a journal with a gap is replayed",
		run:   "^TestReplayRefuses$",
	},
	{
		name: "hash-without-type", invariant: 9, file: "internal/core/task.go",
		old: "\t_, _ = h.Write([]byte(taskType))\n", new: "",
		fault: "the same input of another type is the same task",
		run:   "^TestHashOfTypeAndInput$",
	},
	{
		name: "accept-forgets-the-effect", invariant: 8, file: "internal/core/transition.go",
		old: "\t\ts.MayHaveEffect, s.Result = !s.kind.passive(), r.Result\n", new: "\t\ts.MayHaveEffect, s.Result = s.MayHaveEffect || r.Kind == KindDone, r.Result\n",
		fault: "a step that was accepted is not undone with its task",
		run:   "^(TestScripts|TestStormThenCalm)$",
	},
	{
		name: "request-about-any-row", invariant: 9, file: "internal/core/apply.go",
		old: "ev.IfSeq != 0 && ev.IfSeq != t.Seq", new: "ev.IfSeq < 0 && ev.IfSeq != t.Seq",
		fault: "a request about one journal row changes a task that has moved on",
		run:   "^TestScripts$",
	},
	{
		name: "undo-by-the-new-input", invariant: 8, file: "internal/core/task.go",
		old: "return t.Earlier[n-1]", new: "return append(t.Input[:0:0], t.Input...)",
		fault: "after an edit the undo of what ran before carries the new input",
		run:   "^(TestScripts|TestStormThenCalm)$",
	},
	{
		name: "accept-of-an-undo-begun", invariant: 7, file: "internal/core/operator.go",
		old: "\t\tcase StepUndoing, StepUndone:\n", new: "\t\tcase StepUndone + 100:\n",
		fault: "a task in error goes on although its undo has begun",
		run:   "^(TestCells|TestPossible)$",
	},
}
