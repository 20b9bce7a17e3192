package main

// lateMutants are faults of what late answers may say.
var lateMutants = []mutant{
	{
		name: "late-success-kept-twice", invariant: 5, file: "internal/core/late.go",
		old: "case d.ev.Code == 0 && !s.Effect.known():", new: "case d.ev.Code == 0 && (!s.Effect.known() || d.at > 0):",
		fault: "each duplicate of a late answer writes a row",
		run:   "^TestScripts$",
	},
	{
		name: "late-refusal-unsays-a-success", invariant: 7, file: "internal/core/late.go",
		old: "case FinalCode(d.ev.Code) && !s.Effect.known() && d.onlyCopy(i):", new: "case FinalCode(d.ev.Code) && d.onlyCopy(i):",
		fault: "an agent that answers late that it took effect, and then that it refused, leaves the effect behind",
		run:   "^TestLateAnswersThatContradict$",
	},
	{
		name: "late-refusal-of-another-copy", invariant: 7, file: "internal/core/late.go",
		old: "return s.Out != 0 && s.Effect.copies == copiesOne && !s.again()", new: "return s.Out != 0 && !s.again()",
		fault: "the late refusal of one copy is taken for the word of all",
		run:   "^TestScripts$",
	},
	{
		name: "late-refusal-after-another-try", invariant: 7, file: "internal/core/stepeffect.go",
		old: "\tif e.copies = copiesOne; first {", new: "\tif e.copies != copyOnly {\n\t\te.copies = copiesOne\n\t}\n\tif first {",
		fault: "the late refusal of one try is taken for the word of a later one",
		run:   "^TestScripts$",
	},
	{
		name: "late-refusal-still-undone", invariant: 7, file: "internal/core/stepeffect.go",
		old: "e.is, e.Open, e.copies = effectNone, 0, copiesOne", new: "e.Open, e.copies = 0, copiesOne",
		fault: "what was refused late is undone",
		run:   "^(TestScripts|TestCells)$",
	},
	{
		name: "late-result-lost", invariant: 7, file: "internal/core/late.go",
		old: "\t\ts.Result = r.Result\n", new: "",
		fault: "the undo does not get the result of a late answer",
		run:   "^TestScripts$",
	},
	{
		name: "late-after-the-database-went-back", invariant: 7, file: "internal/core/late.go",
		old: "|| d.t.WentBackAt != 0 {", new: "{",
		fault: "a late answer counts though the step may have come further in the time that is lost",
		run:   "^TestLateAfterWentBack$",
	},
	{
		name: "late-undo-leaves-the-step", invariant: 8, file: "internal/core/transition.go",
		old: "\t\ts.Left = \"\"\n\t\ts.Effect.undone()", new: "\t\ts.Effect.undone()",
		fault: "a step whose undo answered late, after it gave up, keeps the task in error",
		run:   "^TestScripts$",
	},
	{
		name: "gap-of-the-lease-forgotten", invariant: 7, file: "scheduler/decide.go",
		old: "\t\te.task.Doubt(plan, s.cycle.now)\n", new: "",
		fault: "an owner that stood still takes the refusal of its copy for the word of its successor's, too",
		run:   "^TestRefusalAfterAGapOfTheLease$",
	},
	{
		name: "gap-of-the-lease-not-told", invariant: 7, file: "internal/node/roles.go", in: "cmd/duly",
		old: "cfg.Leased = lease.Term", new: "_ = lease.Term",
		fault: "the scheduler of a node does not hear that the node stood still",
		run:   "^TestRefusalWhileTheNodeStoodStill$",
	},
	{
		name: "gap-after-the-silence", invariant: 7, file: "internal/core/replay.go", in: "scheduler",
		old: "\t\ts.Effect.doubt(s.Out != 0 && s.kind == kindCall)\n", new: "\t\tif s.Out != 0 {\n\t\t\ts.Effect.doubt(s.kind == kindCall)\n\t\t}\n",
		fault: "after a gap the late refusal of a command that was silent before it is taken for the word of all",
		run:   "^TestRefusalAfterAGapOfTheLease$",
	},
	{
		name: "gap-seen-by-the-next-renewal-alone", invariant: 4, file: "internal/natsbus/lease.go",
		old: "if now := l.clock(); l.ended(now, now.Round(0)) {", new: "if now := l.clock(); l.ended(now, now.Round(0)) && l.ttl == 0 {",
		fault: "a node that wakes believes in its lease until it renews it",
		run:   "^TestLeaseTerm$",
	},
	{
		name: "gap-closed-by-a-renewal", invariant: 4, file: "internal/natsbus/lease.go",
		old: "if now := l.clock(); taken || l.ended(now, now.Round(0)) {", new: "if taken {",
		fault: "a node that renews its lease first when it wakes has stood still unseen",
		run:   "^TestLeaseTerm$",
	},
	{
		name: "lease-let-go-by-the-server", invariant: 4, file: "internal/natsbus/lease.go",
		old: "l.renewed(began, l.rev == 0)", new: "l.renewed(began, false)",
		fault: "a node whose lease the server had ended, by its own clock too early, believes that it had it all the time",
		run:   "^TestLeaseTerm$",
	},
}
