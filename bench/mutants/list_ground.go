package main

// groundMutants take out what guards against a ground that moves: each is tried by the
// simulator, in whose world it moves while the nodes live.
var groundMutants = []mutant{
	{
		name: "lost-life-not-marked", invariant: 7, file: "internal/core/batch.go", in: "internal/sim",
		old:   "	s.Found.WentBack = c.WentBack || WentBack(s.Epoch, s.LastCommit, c.Evidence) || WentBack(s.Epoch, s.LastCommit, c.Former)\n",
		new:   "	s.Found.WentBack = false\n",
		fault: "what ran in the life that a database has lost is not undone",
		run:   "^TestStormThenCalm$",
	},
	{
		name: "time-left-from-before-the-commit", invariant: 6, file: "scheduler/publish.go",
		old: "	c.leave = s.cfg.Now()\n", new: "	c.leave = c.now\n",
		fault: "a slow commit gives an agent whose clock is behind more time than its command has",
		run:   "^TestTimeLeftAfterASlowCommit$",
	},
	{
		name: "takeover-by-an-old-clock", invariant: 7, file: "scheduler/takeover.go",
		old: "	s.begin(s.cfg.Now(), ", new: "	s.begin(now, ",
		fault: "a node that stood still before it took over undoes a step while a retry of the former owner is at work",
		run:   "^TestTakeoverAfterStandingStill$",
	},
	{
		name: "other-tasks-stream-unseen", invariant: 1, file: "internal/core/streams.go", in: "scheduler",
		old: "	return wasTasks != nowTasks, wasControl != nowControl\n", new: "	return wasTasks == \"\" && nowTasks != \"\", wasControl != nowControl\n",
		fault: "the cursor of a task stream that was lost is used on the one that was made in its place",
		run:   "^TestOtherStreamOfTwo$",
	},
	{
		name: "shorter-stream-read-on", invariant: 1, file: "internal/core/batch.go", in: "internal/sim",
		old: "	if tasks || c.RewoundTasks {\n", new: "	if tasks {\n",
		fault: "a task stream that came back shorter is read from its old cursor on",
		run:   "^TestStormThenCalm$",
	},
}
