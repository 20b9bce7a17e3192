package main

// simulatedMutants are faults of what the simulator's graph world has found, and of what its referee judges there: signals,
// children that have to be there, tasks that start later.
var simulatedMutants = []mutant{
	{
		name: "question-that-is-due-for-ever", invariant: 12, file: "internal/core/wait.go",
		old: "\t\td.touchRow()\n\t\td.stillDue()\n", new: "\t\td.touchRow()\n",
		fault: "a task of which a branch waits for room is asked about, and written, again and again",
		run:   "^TestRetryWaitsBesideACommand$",
	},
	{
		name: "retry-beside-a-wait-not-parked", invariant: 12, file: "internal/core/wait.go",
		old: "|| s.Out == 0 && s.Due > d.at\n", new: "|| s.Due > d.at\n",
		fault: "a task stays in memory though only a wait of it is out",
		run:   "^TestRetryParksBesideAWait$",
	},
	{
		name: "rows-without-end", invariant: 12, file: "internal/core/wait.go",
		old: "case late && n.ends:", new: "case late && (n.ends || n.verb == verbWait):",
		fault: "the deadline of a task that is about to stop leads to row after row",
		run:   "^TestDeadlineWhileItStops$",
	},
	{
		name: "wait-offered-to-accept", invariant: 5, file: "internal/core/possible.go",
		old: "\tcase \"accept\":\n\t\tev.Kind", new: "\tcase \"accept\":\n\t\tif t.State == StateError && t.WentBackAt == 0 {\n\t\t\treturn true\n\t\t}\n\t\tev.Kind",
		fault: "what is possible names a request that is always refused",
		run:   "^TestAWaitIsNotAccepted$",
	},
	{
		name: "held-retry-writes", invariant: 3, file: "scheduler/prove.go",
		old: "step.Awaits != x.effect.Seq || step.Out != x.effect.Seq", new: "step.Awaits == x.effect.Seq && step.Out != x.effect.Seq",
		fault: "a retry that may not leave writes a row after the commit, which is lost",
		run:   "^TestHeldRetryThatIsOutByARow$",
	},
	{
		name: "refused-request-comes-again", invariant: 12, file: "scheduler/controls.go",
		old: "if slices.Contains(s.unstorable, asked) {", new: "if slices.Contains(s.unstorable, asked) && s.cycle.makes(e) {",
		fault: "a request whose row the database refuses lets go of its partition for ever",
		run:   "^TestRefusedRowOfAnEndedChild$",
	},
	{
		name: "signal-acknowledged-and-lost", invariant: 1, file: "scheduler/controls.go", in: "internal/sim",
		old: "why = s.event(p, e, ev)", new: "if ev.Kind != core.EventSignal {\n\t\t\twhy = s.event(p, e, ev)\n\t\t}",
		fault: "a signal is acknowledged and does not count",
		run:   "^TestGraphStormThenCalm$",
	},
	{
		name: "signal-not-held-to-its-schema", invariant: 5, file: "scheduler/controls.go", in: "internal/sim",
		old: "s.cfg.CheckSignal); why != nil {", new: "s.cfg.CheckSignal); why != nil && s.cycle.makes(e) {",
		fault: "a signal counts with a payload that does not fit",
		run:   "^TestGraphStormThenCalm$",
	},
	{
		name: "signal-kept-too-large", invariant: 5, file: "internal/core/signal.go", in: "internal/sim",
		old: "case len(d.ev.Result) > ps.ResultMax:", new: "case len(d.ev.Result) > ps.ResultMax && s.Out != 0:",
		fault: "an early signal counts with a payload that is too large",
		run:   "^TestGraphStormThenCalm$",
	},
	{
		name: "parked-never-claimed", invariant: 11, file: "scheduler/claim.go", in: "internal/sim",
		old:   "if v.n < least {",
		new:   "if v.n < least || v.n >= least {",
		fault: "no parked task is claimed: it waits for its deadline",
		run:   "^TestGatesStormThenCalm$",
	},
	{
		name: "parked-and-nothing-wakes", invariant: 11, file: "scheduler/queues.go", in: "internal/sim",
		old: "\t\tq.keepOrder(x.slot, x.e)\n", new: "",
		fault: "nothing looks again at a task that was parked for room",
		run:   "^TestGatesStormThenCalm$",
	},
	{
		name: "rest-of-the-queue-not-woken", invariant: 11, file: "scheduler/finish.go", in: "internal/sim",
		old: "return len(at.known) > at.aside.waiting || at.beyond", new: "return at.beyond",
		fault: "nothing looks again at what a claim has left parked",
		run:   "^TestGatesStormThenCalm$",
	},
	{
		name: "list-ends-early", invariant: 8, file: "scheduler/fan.go", in: "internal/sim",
		old:   "f.total, f.parallel = e.task.Steps[step].Count(), max(1, f.spec.Parallel)",
		new:   "f.total, f.parallel = max(1, e.task.Steps[step].Count()-1), max(1, f.spec.Parallel)",
		fault: "the last element of a list has no child",
		run:   "^TestGraphStormThenCalm$",
	},
	{
		name: "starts-before-its-time", invariant: 11, file: "internal/core/forward.go", in: "internal/sim",
		old: "if t.StartAt > d.at && !d.ev.NoTime {", new: "if t.StartAt > d.at && t.State == StateUndone {",
		fault: "a task that is to start later starts at once",
		run:   "^TestScripts$/^51_start_at$",
	},
}
