package main

// roleMutants are faults of the front door, of the agents' runtime and of the
// supervisor.
var roleMutants = []mutant{
	{
		name: "accepted-though-not-stored", invariant: 1, file: "ingest/pack.go",
		old: "if err != nil {\n\t\tanswer = Answer{Err:", new: "if err != nil && seq > 0 {\n\t\tanswer = Answer{Err:",
		fault: "a pack that the stream refused is answered as stored",
		run:   "^(TestOutcomes|TestSilentStream)$",
	},
	{
		name: "silence-is-acceptance", invariant: 1, file: "ingest/pack.go",
		old: "d.answer(now, p, 0, errNoOutcome)", new: "d.answer(now, p, 1, nil)",
		fault: "a pack that the stream said nothing about is answered as stored",
		run:   "^(TestSilentStream|TestEveryRequestIsAnsweredOnce)$",
	},
	{
		name: "taken-id-accepted", invariant: 9, file: "ingest/taken.go",
		old: "\t\tif r := Differs(l.sub.ID, l.sub.Type, task.Type, l.sub.Input, task.InputHash); r != nil {", new: "\t\tif r := Differs(l.sub.ID, l.sub.Type, task.Type, l.sub.Input, task.InputHash); r != nil && l.until == 0 {",
		fault: "another input under an id that the store has is accepted, and refused later",
		run:   "^(TestDifferentInputUnderATakenID|TestQuietDoorLooksAtIDs)$",
	},
	{
		name: "accept-skips-the-schema", invariant: 5, file: "internal/core/would.go", in: "scheduler",
		old: "i := t.Answers(p, ev)", new: "i := p.StepIndex(ev.Step)",
		fault: "what is accepted for a signal is not held to its schema",
		run:   "^TestAcceptedAnswerFitsItsSchema$",
	},
	{
		name: "door-takes-what-its-owner-refuses", invariant: 5, file: "internal/api/requests.go",
		old: "played, err := view.Would(plan, &ev)", new: "played, err := true, error(nil)",
		fault: "a door stores a request that the owner would refuse",
		run:   "^(TestDoorsSayWhatTheOwnerSays|TestAskStates)$",
	},
	{
		name: "result-not-held-to-text", invariant: 5, file: "internal/wire/reply.go",
		old: "\tcase err == nil:\n\t\tr.Result = data", new: "\tcase err == nil || isText(err):\n\t\tr.Result = data",
		fault: "a result with a NUL or bytes that are not UTF-8 counts",
		run:   "^(TestProtocol|TestReplyGolden)$",
	},
	{
		name: "agent-answers-late", invariant: 6, file: "agents/runtime.go",
		old: "if r.config.Time.Now() >= deadline || errors.Is(work.Err(), context.DeadlineExceeded) {", new: "if r.config.Time.Now() < 0 {",
		fault: "an agent answers after the complete-by",
		run:   "^(TestRunGivesUpOnADeafHandler|TestSilence)$",
	},
	{
		name: "agent-trusts-its-clock", invariant: 6, file: "agents/runtime.go",
		old: "deadline = min(deadline, cmd.CompleteBy)", new: "deadline = cmd.CompleteBy",
		fault: "the time left does not bind an agent whose clock is behind",
		run:   "^TestCompleteByIsTheEarlier$",
	},
	{
		name: "tombstone-not-looked-at", invariant: 7, file: "agents/memory.go",
		old: "case !undo && e.tomb:", new: "case !undo && e.tomb && e.undone:",
		fault: "a do begins while its undo is at work",
		run:   "^(TestLedgerOfOneKey|TestLedgerSerialisesOneKey)$",
	},
	{
		name: "do-beside-undo", invariant: 7, file: "agents/memory.go",
		old: "case e.working:", new: "case e.working && e.done:",
		fault: "two commands of one key are at work at once",
		run:   "^TestLedgerSerialisesOneKey$",
	},
	{
		name: "do-done-twice", invariant: 11, file: "agents/memory.go",
		old: "case undo && e.undone, !undo && e.done:", new: "case undo && e.undone:",
		fault: "a repeated do is done again",
		run:   "^TestLedgerOfOneKey$",
	},
	{
		name: "ledger-forgets-when-full", invariant: 7, file: "agents/memory.go",
		old: "\t\t\treturn nil, nil, ErrLedgerFull\n", new: "\t\t\tclear(l.entries)\n",
		fault: "a full ledger forgets keys before their time",
		run:   "^TestLedgerIsBounded$",
	},
	{
		name: "supervisor-asks-early", invariant: 11, file: "supervisor/scan.go",
		old: "now.Add(-s.cfg.Slack)", new: "now",
		fault: "a supervisor asks the moment a bound passes by its own clock",
		run:   "^TestSlackWaitsForClocks$",
	},
	{
		name: "alert-of-nothing", invariant: 8, file: "supervisor/alert.go",
		old: "if e.State != core.StateError {", new: "if e.State == core.StateError {",
		fault: "a task in error raises no alert",
		run:   "^(TestRunAlerts|TestAlerterBoundsTheRate)$",
	},
	{
		name: "code-of-none-is-success", invariant: 7, file: "agents/errors.go",
		old: "ok && coded != nil && coded.Code >= 400 && coded.Code < 600 {", new: "ok && coded != nil {",
		fault: "a failure with the code 0 is answered as done",
		run:   "^TestReplyCodes$",
	},
	{
		name: "error-that-panics-ends-the-agent", invariant: 12, file: "agents/runtime.go",
		old: "\terr = r.sound(cmd, err)\n", new: "",
		fault: "an error that panics when it is asked for its text ends the process",
		run:   "^TestReplyCodes$",
	},
}
