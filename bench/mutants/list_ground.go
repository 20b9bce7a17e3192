package main

// groundMutants take out what guards against a ground that moves: each is tried by the
// simulator, in whose world it moves while the nodes live.
var groundMutants = []mutant{
	{
		name: "epoch-below-what-there-was", invariant: 4, file: "internal/core/batch.go", in: "internal/sim",
		old: "s.Epoch = max(s.Epoch, c.Evidence.Epoch, c.Former.Epoch) + 1", new: "s.Epoch++",
		fault: "a takeover in a database that went back takes an epoch that there has been",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "lost-life-not-marked", invariant: 7, file: "internal/core/batch.go", in: "internal/sim",
		old:   "	s.Found.WentBack = c.WentBack || WentBack(s.Epoch, s.LastCommit, c.Evidence) || WentBack(s.Epoch, s.LastCommit, c.Former)\n",
		new:   "	s.Found.WentBack = false\n",
		fault: "what ran in the life that a database has lost is not undone",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "lost-life-of-read-again-not-marked", invariant: 7, file: "internal/core/batch.go", in: "internal/sim",
		old: "		s.WentBackUntil = max(c.End, s.WentBackUntil)\n", new: "",
		fault: "a submission that is read again after the database went back counts as one that never ran",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "lost-with-its-stream-not-marked", invariant: 7, file: "internal/core/batch.go",
		old: "		s.WentBackUntil = ReadNoMore\n", new: "		s.WentBackUntil = 0\n",
		fault: "a submission that database and stream have both lost counts, when it is submitted again, as one that never ran",
		run:   "^TestTakeAfterWhatIsLost$",
	},
	{
		name: "time-left-from-before-the-commit", invariant: 6, file: "scheduler/publish.go",
		old: "	c.leave = s.cfg.Now()\n", new: "	c.leave = c.now\n",
		fault: "a slow commit gives an agent whose clock is behind more time than its command has",
		run:   "^TestTimeLeftAfterASlowCommit$",
	},
	{
		name: "forgotten-row-stops-the-cycle", invariant: 12, file: "scheduler/commit.go",
		old: " || len(saved[0].Journal) == 0", new: "",
		fault: "a row that is refused to an owner whose successor has ended the task, and forgotten its detail, stops all partitions of the cycle",
		run:   "^TestPoisonOfWhatASuccessorForgot$",
	},
	{
		name: "takeover-by-an-old-clock", invariant: 7, file: "scheduler/takeover.go",
		old: "	s.cycle.begin(s.cfg.Now(), ", new: "	s.cycle.begin(now, ",
		fault: "a node that stood still before it took over undoes a step while a retry of the former owner is at work",
		run:   "^TestTakeoverAfterStandingStill$",
	},
	{
		name: "retry-unproven-after-a-slow-commit", invariant: 5, file: "scheduler/publish.go",
		old: "s.cycle.leave > x.p.ownedAt", new: "s.cycle.now > x.p.ownedAt",
		fault: "a retry leaves although its owner made sure of the partition only before a slow commit",
		run:   "^TestRetryAfterASlowCommitIsProven$",
	},
	{
		name: "cancel-waits-for-ever", invariant: 11, file: "scheduler/shard.go",
		old: "	if until := s.heldUntil(); until != 0 && ", new: "	if until := s.heldUntil(); until < 0 && ",
		fault: "a cancel waits for a submission that is gone from the stream until something else happens in the partition",
		run:   "^TestCancelDoesNotWaitForEver$",
	},
	{
		name: "former-owner-unheard", invariant: 7, file: "scheduler/shard.go",
		old: "	s.doubted[p.id] = true\n	return true\n", new: "	return false\n",
		fault: "what a former owner knows of a database that went back changes nothing",
		run:   "^TestFormerOwnerIsHeard$",
	},
	{
		name: "successor-unheard", invariant: 4, file: "scheduler/placement.go",
		old: "case !e.Former && e.Epoch > is.epoch:", new: "case !e.Former && e.Epoch < 0:",
		fault: "an owner goes on in a copy of the database from before its successor's takeover, which was recorded",
		run:   "^TestSuccessorIsHeard$",
	},
	{
		name: "owner-of-the-same-epoch-unseen", invariant: 4, file: "scheduler/placement.go",
		old: "} else if ok && st.LastCommit > is.last {", new: "} else if ok && st.LastCommit < 0 {",
		fault: "an owner whose copy of the database is gone goes on beside another of the same epoch",
		run:   "^TestOwnerOfTheSameEpoch$",
	},
	{
		name: "takeover-leaves-no-mark", invariant: 4, file: "internal/core/batch.go", in: "internal/sim",
		old: "	s.Owner, s.LastCommit = c.Owner, c.Commit\n", new: "	s.Owner = c.Owner\n",
		fault: "two takeovers of one epoch, on two copies of a database, are taken for each other",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "cancel-overtakes-lost-life", invariant: 7, file: "scheduler/held.go",
		old: "bool { return p.nextCursor < p.readUntil }", new: "bool { return p.nextCursor < 0*p.readUntil }",
		fault: "a cancel takes the id of a submission that ran in the life that is lost, and nothing undoes what that did",
		run:   "^TestCancelWaitsForWhatMayHaveRun$",
	},
	{
		name: "other-tasks-stream-unseen", invariant: 1, file: "internal/core/streams.go", in: "scheduler",
		old: "	return wasTasks != nowTasks, wasControl != nowControl\n", new: "	return wasTasks == \"\" && nowTasks != \"\", wasControl != nowControl\n",
		fault: "the cursor of a task stream that was lost is used on the one that was made in its place",
		run:   "^TestOtherStreamOfTwo$",
	},
	{
		name: "other-control-stream-unseen", invariant: 1, file: "internal/core/streams.go", in: "scheduler",
		old: "	return wasTasks != nowTasks, wasControl != nowControl\n", new: "	return wasTasks != nowTasks, wasControl == \"\" && nowControl != \"\"\n",
		fault: "the cursor of a control stream that was lost is used on the one that was made in its place",
		run:   "^TestOtherStreamOfTwo$",
	},
	{
		name: "shorter-stream-read-on", invariant: 1, file: "internal/core/batch.go", in: "internal/sim",
		old: "	if tasks || c.RewoundTasks {\n", new: "	if tasks {\n",
		fault: "a task stream that came back shorter is read from its old cursor on",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "shorter-control-stream-read-on", invariant: 1, file: "internal/core/batch.go", in: "internal/sim",
		old: "	if control || c.RewoundControl {\n", new: "	if control {\n",
		fault: "a control stream that came back shorter is read from its old cursor on",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "rewound-forgotten", invariant: 1, file: "scheduler/streams.go", in: "internal/sim",
		old: "	was.tasks = was.tasks || errors.Is(err, ErrRewound)\n", new: "",
		fault: "what a reader found out about its task stream is forgotten by the next takeover",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "grown-stream-unseen", invariant: 1, file: "scheduler/create.go", in: "internal/sim",
		old: "p.nextCursor, p.nextStored = m.Pos, m.Stored", new: "p.nextCursor, p.nextStored = m.Pos, 0",
		fault: "the message at the cursor is not remembered: a stream that came back shorter and has grown since is read from there on",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "grown-control-stream-unseen", invariant: 1, file: "scheduler/apply.go", in: "scheduler",
		old: "p.nextControl, p.nextControlStored = m.Pos, m.Stored", new: "p.nextControl, p.nextControlStored = m.Pos, 0",
		fault: "the message at the control cursor is not remembered",
		run:   "^TestCursorsKeepWhenTheirMessagesWereStored$",
	},
	{
		name: "failed-commit-blamed-on-a-row", invariant: 12, file: "scheduler/commit.go", in: "internal/sim",
		old: "	return errors.Is(err, core.ErrRowRefused) && tasks > 0 || ", new: "	return err != nil && tasks > 0 || ",
		fault: "a database that takes no commit puts tasks in error",
		run:   "^TestStormThenCalm$",
	},
}
