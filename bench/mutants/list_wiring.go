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
	{
		name: "plans-read-when-announced-alone", invariant: 12, file: "internal/node/plans.go",
		old: "if c.stale.Load() || c.old() {", new: "if c.stale.Load() {",
		fault: "a door that misses an announcement takes submissions to a deprecated version for ever",
		run:   "^TestPlansAreReadUnannounced$",
	},
	{
		name: "plans-changed-unheard", invariant: 12, file: "internal/node/plans.go",
		old: "			changed()\n", new: "",
		fault: "a scheduler that misses an announcement goes on by the version before",
		run:   "^TestPlansAreReadUnannounced$",
	},
	{
		name: "room-in-one-stream", invariant: 12, file: "internal/node/room.go",
		old: "failed = errors.Join(failed, one(bounded, number))", new: "if failed == nil {\n\t\t\t\tfailed = one(bounded, number)\n\t\t\t}",
		fault: "a stream that no room can be made in lets all others fill up",
		run:   "^TestRoomInEachStream$",
	},
	{
		name: "causes-of-the-time-before", invariant: 12, file: "internal/node/cause.go",
		old: " || now.Before(c.at)", new: "",
		fault: "after the clock was set back it is said for as long why a task waited before",
		run:   "^TestCausesAfterClockSetBack$",
	},
	{
		name: "unread-since-a-time-to-come", invariant: 12, file: "internal/node/unread.go",
		old: "is.since = min(is.since, now)", new: "is.since = max(is.since, 0)",
		fault: "after the clock was set back a stream that is not read is not told for as long",
		run:   "^TestUnreadWatch$",
	},
	{
		name: "history-of-a-time-to-come", invariant: 12, file: "internal/node/forecast.go",
		old: "now.Sub(newest).Abs() >", new: "now.Sub(newest) >",
		fault: "after the clock was set back submissions to a plan that was slow are refused for as long",
		run:   "^TestAdmitAfterClockSetBack$",
	},
	{
		name: "turn-of-a-time-to-come", invariant: 12, file: "internal/node/forecast.go",
		old: "was && !last.Elapsed(now, letEvery)", new: "was && now < last.Add(letEvery)",
		fault: "after the clock was set back no submission is let in to learn from it for as long",
		run:   "^TestAdmitAfterClockSetBack$",
	},
	{
		name: "nothing-ages-after-clock-set-back", invariant: 12, file: "internal/forecast/histogram.go",
		old: "if h.at.Sub(at) > halfLife {", new: "if h.at.Sub(at) > halfLife && at < 0 {",
		fault: "after the clock was set back what was slow before counts in full for as long",
		run:   "^TestDecayAfterClockSetBack$",
	},
	{
		name: "traces-end-for-good", invariant: 12, file: "internal/telemetry/trace.go",
		old: "\t\t\tt.evict()\n", new: "\t\t\tt.dropped.Add(1)\n\t\t\treturn\n",
		fault: "tasks that went to another owner fill the list of those that are followed, and no later one is traced",
		run:   "^TestTracerNeverBlocks$",
	},
	{
		name: "requests-of-one-route", invariant: 12, file: "internal/telemetry/requests.go",
		old: "h.count(cmp.Or(below, r.Pattern), ", new: "h.count(cmp.Or(r.Pattern, below), ",
		fault: "all requests of the API are counted as of one route",
		run:   "^TestRequestsBelow$",
	},
	{
		name: "supervisor-without-plans", invariant: 12, file: "internal/node/roles.go",
		old: "	wg.Go(func() { n.plans.keepRead(ctx, func() {}) }) // for", new: "	// for",
		fault: "a node that supervises alone tells no forecast, and takes the wait in a queue for time that is lost",
		run:   "^TestSupervisorKnowsPlans$",
	},
}
