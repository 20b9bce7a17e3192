package main

// repairMutants are faults of actions on many tasks: of what counts as done, of the brake, and of what a kill may lose
// or double.
var repairMutants = []mutant{
	{
		name: "repair-piles-up-messages", invariant: 12, file: "internal/repair/run.go",
		old: "				if unread {\n					it.piled++\n				}\n", new: "",
		fault: "an operation asks about the same tasks all the time while their owner reads nothing",
		run:   "^TestUnreadMessagesDoNotPileUp$",
	},
	{
		name: "repair-asked-is-done", invariant: 5, file: "internal/repair/judge.go",
		old: "	case s.Passed, s.State == core.StateProcessed:", new: "	case s.Asked, s.State == core.StateProcessed:",
		fault: "a task counts as repaired as soon as its owner has taken the request",
		run:   "^(TestJudge|TestRunCountsNothingBeforeItPassed)$",
	},
	{
		name: "repair-names-no-row", invariant: 9, file: "internal/repair/run.go",
		old: "c.Seqs = append(c.Seqs, it.Seq)", new: "c.Seqs = append(c.Seqs, 0*it.Seq)",
		fault: "a request that is sent again after a crash names no journal row, and repairs a second time",
		run:   "^(TestKillAtEveryPoint|TestSecondRunnerTakesOver)$",
	},
	{
		name: "repair-unsent-forgotten", invariant: 2, file: "internal/repair/run.go",
		old: "case it.position == 0:\n				it.unsent = true", new: "case it.position == 0:\n				it.unsent = false",
		fault: "a request that was stored as asked and not sent before a crash is never sent",
		run:   "^TestKillAtEveryPoint$",
	},
	{
		name: "repair-sent-before-stored", invariant: 3, file: "internal/repair/run.go",
		old: "	if err := u.write(ctx, asked); err != nil {", new: "	for i, it := range u.wave.members[from : from+n] {\n		it.Member, it.unsent = asked[i], true\n	}\n	u.send(ctx)\n	if err := u.write(ctx, asked); err != nil {",
		fault: "requests leave before their tasks count as asked",
		run:   "^TestRunAsksInWaves$",
	},
	{
		name: "repair-epoch-not-raised", invariant: 4, file: "internal/repair/run.go",
		old: "	op := u.op\n	op.Epoch++", new: "	op := u.op\n	op.Epoch += 0",
		fault: "a runner that takes an operation over does not fence the former one",
		run:   "^(TestSecondRunnerTakesOver|TestRunAsksInWaves)$",
	},
	{
		name: "repair-brake-adds-kinds", invariant: 12, file: "internal/repair/wave.go",
		old: "		key := m.Fingerprint\n", new: "		key := m.Fingerprint[:0] + \"all\"\n",
		fault: "failures of different kinds stop an operation together",
		run:   "^TestBrakeLooksAtOneKind$",
	},
	{
		name: "repair-brake-forgets", invariant: 12, file: "internal/repair/wave.go",
		old: "	case w.closed, w.open() > 0, w.brake(0, percent) != \"\":", new: "	case w.open() > 0:",
		fault: "the wave after a brake is larger than the one that braked",
		run:   "^TestBrakeWithinThirtyOne$",
	},
	{
		name: "repair-brake-not-stored", invariant: 12, file: "internal/repair/run.go",
		old: "			u.op.State, u.op.Why = operate.OperationBraked, why\n", new: "			u.op.Why = why\n",
		fault: "an operation whose wave fails goes on",
		run:   "^TestBrakeWithinThirtyOne$",
	},
	{
		name: "repair-of-anyone", invariant: 12, file: "internal/repair/service.go",
		old: "	case op.By != by.Name && !by.Role.May(operate.RoleAdmin):", new: "	case op.By == \"\" && !by.Role.May(operate.RoleAdmin):",
		fault: "an operator starts the preview of another",
		run:   "^TestStartRefuses$",
	},
	{
		name: "repair-group-twice", invariant: 12, file: "internal/repair/service.go",
		old: "op.Group != \"\" && o.Group == op.Group {", new: "op.Group == \"\" && o.Group == op.Group && o.ID == op.ID {",
		fault: "two operations run over one failure group",
		run:   "^TestStartRefuses$",
	},
	{
		name: "repair-unconfirmed", invariant: 12, file: "internal/repair/service.go",
		old: "	case op.Tasks > operate.ConfirmMax && confirm != op.Tasks:", new: "	case op.Tasks > operate.ConfirmMax && confirm == 0 && op.Tasks < 0:",
		fault: "a large operation starts without its number",
		run:   "^TestStartRefuses$",
	},
	{
		name: "repair-in-overload", invariant: 12, file: "internal/repair/run.go",
		old: "	if n == 0 || u.r.overloaded() {", new: "	if n == 0 {",
		fault: "operations ask on while the engine is overloaded",
		run:   "^TestPace$",
	},
	{
		name: "rest-of-a-wave-left-out", invariant: 11, file: "internal/repair/run.go",
		old: "after = u.wave.members[0].Ordinal - 1 //", new: "after = u.wave.members[n-1].Ordinal //",
		fault: "what was not asked of a wave that braked is never asked",
		run:   "^TestBrakeInTheMiddleOfAWave$",
	},
	{
		name: "outcomes-looked-at-by-the-wall-clock", invariant: 12, file: "internal/repair/run.go",
		old: "u.lookAt = time.Now().Add(u.every)", new: "u.lookAt = u.r.cfg.Now().Add(2*time.Hour + u.every)",
		fault: "what became of an operation's tasks is not looked at for hours",
		run:   "^TestClockSetBack$",
	},
}
