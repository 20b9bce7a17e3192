package main

// undoMutants are faults of the way back: what may have left an effect, when it
// can no longer, and what undoes it.
var undoMutants = []mutant{
	{
		name: "undo-once-more-nothing", invariant: 7, file: "internal/core/undo.go",
		old: "r.Attempt, r.EffectsPossibleUntil = 0, max(r.EffectsPossibleUntil, d.at)", new: "r.Attempt = 0",
		fault: "a step of an undone task whose effect stands is not undone once more",
		run:   "^TestUndoOnceMore$",
	},
	{
		name: "undo-skips-unknown-step", invariant: 7, file: "internal/core/transition.go",
		old: "!none && !s.kind.passive() {", new: "!none && !s.kind.passive() && r.Kind == KindFailed {",
		fault: "a step that never answered is not undone",
		run:   "^(TestCells|TestPlanGoneAndBack)$",
	},
	{
		name: "undo-skips-failed-step", invariant: 7, file: "internal/core/transition.go",
		old: "!none && !s.kind.passive() {", new: "!none && !s.kind.passive() && r.Kind != KindFailed {",
		fault: "a step that failed without a refusal is not undone",
		run:   "^(TestCells|TestUndoIsPatient)$",
	},
	{
		name: "refusal-cleans-step", invariant: 7, file: "internal/core/transition.go",
		old: "\t\tif r.EffectsPossibleUntil > r.At {", new: "\t\tif s.Effect.is = effectNone; r.EffectsPossibleUntil > r.At {",
		fault: "a refusal wipes out what an earlier try may have left",
		run:   "^TestRefusalDoesNotSpeakForTheTryBefore$",
	},
	{
		name: "undo-before-grace", invariant: 7, file: "internal/core/due.go",
		old: "\t\treturn max(s.Effect.Open, s.Due)\n\t}\n\treturn s.Effect.Open\n", new: "\t\treturn s.Due\n\t}\n\treturn 0\n",
		fault: "an undo leaves while its do may still act",
		run:   "^(TestCells|TestQuietIsTheLatestOfAllTries)$",
	},
	{
		name: "quiet-of-last-try-only", invariant: 7, file: "internal/core/do.go",
		old: "return max(s.Effect.Open, s.Due.Add(d.p.Grace))", new: "return s.Due.Add(d.p.Grace)",
		fault: "an earlier try that may act for longer is forgotten",
		run:   "^TestQuietIsTheLatestOfAllTries$",
	},
	{
		name: "undo-overtakes-do", invariant: 7, file: "internal/core/ahead.go",
		old: "working := t.working()", new: "working := t.working() && t.Seq < 0",
		fault: "an undo leaves while a do is out",
		run:   "^(TestCells|TestResumeSendsNoDoOfATaskBeingUndone)$",
	},
	{
		name: "second-copy-forgotten-when-failed", invariant: 7, file: "internal/core/do.go",
		old: "cut(d.ev.Error)\n\tr.EffectsPossibleUntil = d.t.Steps[i].Effect.answered(d.quietAfter(i))\n", new: "cut(d.ev.Error)\n",
		fault: "a failure ends both copies of a do that was sent twice",
		run:   "^(TestQuietIsTheLatestOfAllTries|TestRefusalOfOneCopyIsNotNoEffect)$",
	},
	{
		name: "old-key-is-used", invariant: 7, file: "internal/core/keylasts.go",
		old: "return ends != 0 && at >= ends && t.Steps[i].Status == StepWaiting", new: "return ends != 0 && at < 0 && t.Steps[i].Status == StepWaiting",
		fault: "a do is tried again by a key that its service has forgotten",
		run:   "^(TestNoCommandByAnOldKey|TestScripts)$",
	},
	{
		name: "old-undo-key-is-used", invariant: 7, file: "internal/core/keylasts.go",
		old: "\treturn ends != 0 && at >= ends\n}", new: "\treturn ends != 0 && at < 0\n}",
		fault: "an undo is tried again by a key that its service has forgotten",
		run:   "^(TestNoCommandByAnOldKey|TestScripts)$",
	},
	{
		name: "try-outlives-its-key", invariant: 7, file: "internal/core/keylasts.go",
		old: "\treturn min(until, ends)\n", new: "\treturn until\n",
		fault: "a try is waited for after its service has forgotten its key",
		run:   "^TestScripts$",
	},
	{
		name: "unused-key-grows-old", invariant: 11, file: "internal/core/keylasts.go",
		old: "\t\ts.Used = heard\n", new: "",
		fault: "the age of a key counts from a command that no agent has heard",
		run:   "^TestUnusedKeyGrowsNotOld$",
	},
	{
		name: "answer-of-any-copy", invariant: 7, file: "internal/core/await.go",
		old: "return s.Effect.resent() || s.Copy == ev.Copy\n", new: "return true\n",
		fault: "a second answer to one copy counts for the next, which may be at work",
		run:   "^TestScripts$",
	},
	{
		name: "copies-share-a-number", invariant: 7, file: "internal/core/await.go",
		old: "\ts.Copy++\n", new: "",
		fault: "a retry has the number of the copy before",
		run:   "^TestScripts$",
	},
	{
		name: "replay-forgets-resend", invariant: 7, file: "internal/core/replay.go",
		old: "\t\t\ts.Effect.doubt(true) // the journal does not say how often it was sent\n", new: "\t\t\ts.Effect.copies = copiesOne\n",
		fault: "a replayed command counts as sent once",
		run:   "^TestReplayedCommandCountsAsResent$",
	},
	{
		name: "resume-sends-late", invariant: 6, file: "internal/core/replay.go",
		old: "if at >= s.Due || !undo && t.State == StateUndoing {\n\t\t\t\tcontinue // the supervisor will ask", new: "if !undo && t.State == StateUndoing {\n\t\t\t\tcontinue // the supervisor will ask",
		fault: "a takeover sends a command whose complete-by has passed",
		run:   "^TestResumeMarksResent$",
	},
	{
		name: "resume-sends-do-of-cancelled", invariant: 7, file: "internal/core/replay.go",
		old: "if at >= s.Due || !undo && t.State == StateUndoing {", new: "if at >= s.Due {",
		fault: "a takeover sends the do of a task that is being undone",
		run:   "^(TestResumeSendsNoDoOfATaskBeingUndone|TestScripts)$",
	},
	{
		name: "undo-forwards", invariant: 7, file: "internal/core/ahead.go",
		old: "for i := len(t.Steps) - 1; i >= 0; i-- {", new: "for i := range t.Steps {",
		fault: "steps are undone first to last",
		run:   "^(TestCells|TestScripts)$",
	},
	{
		name: "undo-gives-up-silently", invariant: 8, file: "internal/core/undo.go",
		old: "if left := t.left(d.p); left != \"\" {", new: "if left := t.left(d.p); len(left) < 0 {",
		fault: "an undo that gives up is called undone",
		run:   "^(TestCells|TestScripts)$",
	},
	{
		name: "retry-of-former-owner-forgotten", invariant: 7, file: "internal/core/replay.go",
		old: "\t\ts.Effect.Open = t.retriesQuiet(p, i, at)\n", new: "",
		fault: "an undo leaves while a retry of a former owner may act",
		run:   "^TestWaitSurvivesATakeover$",
	},
	{
		name: "cancel-lost-to-retry", invariant: 7, file: "internal/core/do.go",
		old: "if d.t.State == StateUndoing { // whatever", new: "if d.t.State == StateUndone { // whatever",
		fault: "a do that fails after a cancel is tried again",
		run:   "^TestCells$",
	},
	{
		name: "lost-plan-undone-unseen", invariant: 7, file: "internal/core/planless.go",
		old: "if d.t.PlanVersion != 0 {\n\t\treturn d.notAllowed(\"its plan is gone", new: "if d.t.PlanVersion < 0 {\n\t\treturn d.notAllowed(\"its plan is gone",
		fault: "a task whose plan is gone is called undone, whatever its steps left",
		run:   "^TestPlanGone$",
	},
	{
		name: "cancel-forgets-an-optional-undo", invariant: 6, file: "internal/core/undo.go",
		old: "\t\t\td.heard(i) // of an optional", new: "\t\t\t_ = i // of an optional",
		fault: "a new owner does not know of the undo that was out when the task was cancelled",
		run:   "^TestCancelWhileAnOptionalUndoIsRetried$",
	},
}
