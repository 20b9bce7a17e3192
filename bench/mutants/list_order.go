package main

// orderMutants are faults of who goes first: flows, their weights, what is left to the store, and classes at the door.
var orderMutants = []mutant{
	{
		name: "idle-is-saved-up", invariant: 11, file: "scheduler/flows.go",
		old: "\t\tin.turn = max(in.turn, in.up.now)\n", new: "",
		fault: "a flow that had no work gets afterwards what it did not use, and others wait",
		run:   "^TestIdleIsNotSavedUp$",
	},
	{
		name: "time-stands-still", invariant: 11, file: "scheduler/flows.go",
		old: "\t\tis.up.now = is.turn\n", new: "",
		fault: "a flow that begins late gets all until it has had as many turns as the others",
		run:   "^TestIdleIsNotSavedUp$",
	},
	{
		name: "weights-are-not-read", invariant: 11, file: "scheduler/flows.go",
		old: "step: stride / uint64(max(1, weight))", new: "step: stride / uint64(max(1, min(1, weight)))",
		fault: "all flows have the same part",
		run:   "^(TestFlowsShare|TestLowUnderAFlood)$",
	},
	{
		name: "turn-does-not-count", invariant: 11, file: "scheduler/flows.go",
		old: "\t\tis.turn += is.step\n", new: "",
		fault: "the first flow has every turn, and the others starve",
		run:   "^(TestFlowsShare|TestLowUnderAFlood)$",
	},
	{
		name: "flow-in-the-store-forgotten", invariant: 11, file: "scheduler/flows.go",
		old: "if is.missed != 0 && len(is.tasks) == 0 {", new: "if is.missed != 0 && len(is.tasks) < 0 {",
		fault: "tasks of a flow that wait in the store alone are not read while others fill the memory",
		run:   "^TestFloodLeavesNoneBehind$",
	},
	{
		name: "evicted-and-not-noted", invariant: 11, file: "scheduler/flows.go",
		old: "\tmost.missed = pass\n", new: "",
		fault: "a flow whose tasks made room for others counts as wholly known",
		run:   "^TestFloodLeavesNoneBehind$",
	},
	{
		name: "missed-and-not-noted", invariant: 11, file: "scheduler/finish.go",
		old: "\t\tin.missed = at.pass\n", new: "",
		fault: "a flow for whose tasks there was no room counts as wholly known",
		run:   "^TestFloodLeavesNoneBehind$",
	},
	{
		name: "store-not-read-again", invariant: 11, file: "scheduler/finish.go",
		old: "\tif at.missed == at.pass {\n", new: "\tif at.missed < 0 {\n",
		fault: "what there was no room for while the store was read is never read again",
		run:   "^TestNoneForgottenWhenFull$",
	},
	{
		name: "spike-fills-the-memory", invariant: 11, file: "scheduler/finish.go",
		old: "\tif !ok {\n\t\tin.missed", new: "\tif ok = false; !ok {\n\t\tin.missed",
		fault: "a flow that comes when others fill the memory waits until half of them are done",
		run:   "^TestHighAfterASpike$",
	},
	{
		name: "flow-forgotten-in-its-debt", invariant: 11, file: "scheduler/flows.go",
		old: "return f.turn <= tenant.now || tenant", new: "return f.turn > 0 || tenant",
		fault: "a flow that is ahead of the others is forgotten, and begins again with them",
		run:   "^TestFlowsAreBounded$",
	},
	{
		name: "held-flow-keeps-its-turn", invariant: 11, file: "scheduler/finish.go",
		old: "len(in.tasks) == 0 || in.heldNow > most {\n", new: "len(in.tasks) == 0 || in.heldNow > most && at.held {\n",
		fault: "all tasks of a flow that is held are looked at each time",
		run:   "^TestHeldLookIsBounded$",
	},
	{
		name: "low-fills-the-door", invariant: 12, file: "ingest/budget.go",
		old: "\t\treturn bound - bound/2\n", new: "\t\treturn bound\n",
		fault: "a spike of low submissions takes all room at the door",
		run:   "^TestClassesAtTheDoor$",
	},
	{
		name: "low-fills-the-queue", invariant: 12, file: "ingest/wait.go",
		old: "left-plan.UndoReserve-needs)/core.Weather), class))", new: "left-plan.UndoReserve-needs)/core.Weather), core.ClassHigh))",
		fault: "a spike of low submissions takes all of the time that is left to the others",
		run:   "^TestLateIsRefused$",
	},
	{
		name: "other-doors-are-not-before-it", invariant: 12, file: "ingest/wait.go",
		old: "queue := float64(mine) / max(p.share, shareLeast)", new: "queue := float64(mine)",
		fault: "what other doors have put into the stream is not before what comes now",
		run:   "^TestWaitOfOtherDoors$",
	},
	{
		name: "quiet-door-learns-slowness", invariant: 12, file: "ingest/wait.go",
		old: "case busy || rate > p.rate:", new: "default:",
		fault: "where little comes a scheduler is taken for slow, and a burst is refused",
		run:   "^TestQuietDoorLearnsNothingSlow$",
	},
	{
		name: "standing-queue-is-not-cut", invariant: 12, file: "ingest/wait.go",
		old: "p.limit = o.least", new: "p.limit = waitMost",
		fault: "a load that is too high for good keeps every queue as long as deadlines allow",
		run:   "^TestStandingQueueIsCut$",
	},
	{
		name: "accepted-is-refused", invariant: 12, file: "ingest/wait.go",
		old: " || d.taken != nil && d.recent.has(f.ID) {", new: " {",
		fault: "who asks again about what was accepted is told that it is not stored",
		run:   "^TestAcceptedIsNotRefused$",
	},
	{
		name: "standstill-is-no-wait", invariant: 12, file: "ingest/wait.go",
		old: "o.pace.Load().wait(o.mine.Load()) + l.still(now)", new: "o.pace.Load().wait(o.mine.Load())",
		fault: "submissions are taken for a partition that nobody reads",
		run:   "^TestWaitWhileNothingMoves$",
	},
	{
		name: "former-owner-is-heard", invariant: 12, file: "ingest/wait.go",
		old: "if former != nil && is.Epoch < l.epoch {", new: "if former != nil && is.Epoch < 0 {",
		fault: "what a former owner says of a partition counts",
		run:   "^TestWaitOfATakenOverPartition$",
	},
	{
		name: "replaced-stream-is-waited-for", invariant: 12, file: "ingest/wait.go",
		old: "if r.Cursor < l.cursor {", new: "if r.Cursor > l.cursor {",
		fault: "what was in a stream that was replaced is before what comes now, for ever",
		run:   "^TestWaitBehindAStreamThatWasReplaced$",
	},
	{
		name: "late-task-begins", invariant: 12, file: "scheduler/notime.go",
		old: "return by.Sub(from) < needs+ref.plan.UndoReserve", new: "return by.Sub(from) < 0*needs",
		fault: "what has too little time when it comes up is begun, and undone",
		run:   "^TestNoTimeWhenItComesUp$",
	},
	{
		name: "cut-call-is-a-failure", invariant: 12, file: "scheduler/breaker.go",
		old: "x.At < e.task.Deadline.Add(-e.plan.plan.UndoReserve) {", new: "x.At <= e.task.Deadline {",
		fault: "calls with a millisecond left open the breaker of a healthy agent",
		run:   "^TestCutCallsAreNotCounted$",
	},
	{
		name: "class-is-not-checked", invariant: 12, file: "internal/core/label.go",
		old: "if l.Key == PriorityLabel {", new: "if l.Key == PriorityLabel && l.Value == \"\" {",
		fault: "a priority that does not exist is accepted, and counts as normal",
		run:   "^TestLabelLimits$",
	},
}
