package main

// wiringMutants are faults between the roles, the adapters and the settings: each once
// survived the tests of its package.
var wiringMutants = []mutant{
	{
		name: "restored-stream-unseen", invariant: 1, file: "internal/natsbus/consumer.go",
		old: "	if err != nil || core.InstantOf(msg.Time) == stored {", new: "	if err != nil || msg.Time.Year() > 1 {",
		fault: "a stream that went back and has grown past the cursor is read on",
		run:   "^(TestReaderOfARestoredStream|TestReaderKnowsTheMessageAtItsCursor)$",
	},
	{
		name: "other-installation-not-refused", invariant: 4, file: "internal/natsbus/setup.go",
		old: "config.Installation != \"\" && has != \"\" && has != config.Installation {", new: "config.Installation == \"none\" && has != config.Installation {",
		fault: "a node uses the streams of another installation",
		run:   "^TestInstallation$",
	},
	{
		name: "clock-not-corrected", invariant: 11, file: "internal/node/clock.go",
		old: "	c.correct.Store(-int64(ahead))\n", new: "	c.correct.Store(0)\n",
		fault: "a node whose clock is wrong undoes good tasks",
		run:   "^TestClockKeepsToTheServers$",
	},
}
