package main

// probeMutants are faults of what agents say of silent dos.
var probeMutants = []mutant{
	{
		name: "optional-step-without-effect-stands", invariant: 8, file: "internal/core/do.go",
		old: "r.Kind == KindRefused || r.Kind == KindProbed || s.Effect.refusedLate()", new: "r.Kind == KindRefused || s.Effect.refusedLate()",
		fault: "an optional step that has no effect, as a late answer said, holds its task up for ever",
		run:   "^TestProbeAfterLateRefusal$",
	},
	{
		name: "probe-not-asked", invariant: 5, file: "internal/core/probe.go",
		old: "if !d.p.Steps[i].Probe || s.Effect.refusedLate()", new: "if d.at > 0 || s.Effect.refusedLate()",
		fault: "a step that is to be probed is tried again at once",
		run:   "^TestScripts$",
	},
	{
		name: "probe-absent-too-early", invariant: 7, file: "internal/core/probe.go",
		old: "case d.ev.Code == CodeAbsent && d.at < d.t.ProbeQuiet(i):", new: "case d.ev.Code == CodeAbsent && d.at < 0:",
		fault: "that there is no effect counts while a do may still make one",
		run:   "^(TestScripts|TestGraphs)$",
	},
	{
		name: "probe-quiet-too-early", invariant: 7, file: "internal/core/probe.go",
		old: "Effect.Open.Add(-probeHold))", new: "Effect.Open.Add(-2 * probeHold))",
		fault: "the owner takes an absent that was said within the grace",
		run:   "^(TestScripts|TestGraphs)$",
	},
	{
		name: "probe-after-its-time", invariant: 5, file: "internal/core/probe.go",
		old: "case waits && d.at >= s.Due:", new: "case waits && d.at >= s.Due && d.at < 0:",
		fault: "what an agent says after its time completes the step",
		run:   "^TestProbeTooLate$",
	},
	{
		name: "probe-completes-an-undone-task", invariant: 7, file: "internal/core/probe.go",
		old: "case d.ev.Code == 0 && waits:", new: "case d.ev.Code == 0:",
		fault: "a step of a task that is undone is done by what its agent says",
		run:   "^TestScripts$",
	},
	{
		name: "probe-after-the-database-went-back", invariant: 7, file: "internal/core/probe.go",
		old: "|| s.Awaits != 0 || t.WentBackAt != 0 ||", new: "|| s.Awaits != 0 ||",
		fault: "an answer counts though the step may have come further in the time that is lost",
		run:   "^TestProbeAfterWentBack$",
	},
	{
		name: "probe-forgotten-by-a-takeover", invariant: 5, file: "internal/core/replay.go",
		old: "\tt.resumeProbes(p, at, out)\n", new: "",
		fault: "a new owner does not ask again",
		run:   "^TestScripts$",
	},
	{
		name: "probe-never-over", invariant: 11, file: "internal/core/due.go",
		old: "n.verb == verbWait, n.verb == verbAsk:", new: "n.verb == verbWait:",
		fault: "the bound of a task does not know until when an agent is asked",
		run:   "^(TestScripts|TestGraphs)$",
	},
	{
		name: "probe-of-another-term", invariant: 5, file: "scheduler/probe.go",
		old: "if e == nil || p.epoch != m.Epoch {", new: "if e == nil {",
		fault: "an owner takes an answer that it was given in an earlier term",
		run:   "^TestProbeOfAnEarlierTerm$",
	},
}
