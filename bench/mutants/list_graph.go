package main

// graphMutants are faults of plans that are graphs: what begins when, what is undone when, signals, conditions, children.
var graphMutants = []mutant{
	{
		name: "undo-before-what-came-after", invariant: 8, file: "internal/core/ahead.go",
		old: "case open && !waits && !working &&", new: "case open && !working &&",
		fault: "a step is undone while one that came after it may still have an effect",
		run:   "^(TestCells|TestGraphs)$",
	},
	{
		name: "undo-order-not-through-others", invariant: 8, file: "internal/core/ahead.go",
		old: "if open || waits {", new: "if open {",
		fault: "a step without an effect between two others hides their order",
		run:   "^TestGraphs$",
	},
	{
		name: "do-begins-while-it-stops", invariant: 11, file: "internal/core/ahead.go",
		old: "case stopping || s.Status", new: "case s.Status",
		fault: "a step begins in a task that is about to stop for an operator",
		run:   "^TestGraphs$",
	},
	{
		name: "stops-while-another-is-out", invariant: 5, file: "internal/core/forward.go",
		old: "case active:\n", new: "case active && !stopping:\n",
		fault: "a task goes to error while a command of another branch is out",
		run:   "^TestGraphs$",
	},
	{
		name: "optional-effect-kept", invariant: 8, file: "internal/core/do.go",
		old: "!ps.Undoable || none && !s.Effect.Possible() && r.EffectsPossibleUntil <= r.At {", new: "none || true {",
		fault: "a task goes on without an optional step whose effect stands",
		run:   "^TestGraphs$",
	},
	{
		name: "optional-skipped-though-its-undo-gave-up", invariant: 8, file: "internal/core/forward.go",
		old: "return s.Left != \"\" && p.Steps[i].OnExhausted == PolicySkip\n", new: "return false\n",
		fault: "a task waits for ever for an optional step whose undo gave up",
		run:   "^TestGraphs$",
	},
	{
		name: "skipped-is-not-enough", invariant: 11, file: "internal/core/forward.go",
		old: "if !t.Steps[a].Status.over() {\n\t\t\treturn false", new: "if t.Steps[a].Status != StepDone {\n\t\t\treturn false",
		fault: "what comes after a skipped step never begins",
		run:   "^TestGraphs$",
	},
	{
		name: "retry-of-a-branch-forgotten", invariant: 7, file: "internal/core/decision.go",
		old: "\t\tcase s.again():\n\t\t\td.heard(i)\n", new: "",
		fault: "a retry that is out while another branch fails is not awaited",
		run:   "^TestGraphs$",
	},
	{
		name: "wait-of-a-branch-forgotten", invariant: 7, file: "internal/core/decision.go",
		old: "\t\tcase s.Effect.resent():\n\t\t\tr := d.record(KindStarted, i)", new: "\t\tcase s.Effect.resent() && d.at < 0:\n\t\t\tr := d.record(KindStarted, i)",
		fault: "what retries of another branch may have done is not undone",
		run:   "^TestGraphs$",
	},
	{
		name: "signal-counts-twice", invariant: 5, file: "internal/core/signal.go",
		old: "case own.Signal != 0:", new: "case own.Signal != 0 && d.at < 0:",
		fault: "a second early signal replaces the first",
		run:   "^TestGraphs$",
	},
	{
		name: "late-signal-counts", invariant: 5, file: "internal/core/signal.go",
		old: "case s.Out != 0 && d.at >= s.Due:", new: "case s.Out != 0 && d.at < 0*s.Due:",
		fault: "a signal counts after its complete-by",
		run:   "^TestSignal$",
	},
	{
		name: "children-begin-without-a-trace", invariant: 8, file: "internal/core/transition.go",
		old: "\t\tif s.kind.parent() {\n\t\t\ts.Effect.may()", new: "\t\tif s.kind.parent() && t.Seq < 0 {\n\t\t\ts.Effect.may()",
		fault: "children that are at work when their parent is undone are not undone",
		run:   "^TestGraphs$",
	},
	{
		name: "reserve-not-kept", invariant: 11, file: "internal/core/forward.go",
		old: "return t.Deadline.Add(-p.UndoReserve)", new: "return t.Deadline.Add(0 * p.UndoReserve)",
		fault: "a do begins in the time that is kept for the undo",
		run:   "^TestUndoReserve$",
	},
	{
		name: "child-cancelled-alone", invariant: 8, file: "internal/core/apply.go",
		old: "if t.Parent != 0 && !ev.ByParent &&", new: "if t.Parent != 0 && ev.ByParent &&",
		fault: "a client cancels a part of a task",
		run:   "^TestChildIsItsParents$",
	},
}
