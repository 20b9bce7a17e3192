package main

// outboxMutants are faults of submissions in users' transactions, and of probes.
var outboxMutants = []mutant{
	{
		name: "row-removed-though-refused", invariant: 1, file: "ingest/relay.go",
		old: "\tcase refused.Retryable():\n\t\treturn nil, max", new: "\tcase refused.Retryable():\n\t\treturn &Verdict{Row: w.Row}, max",
		fault: "a row that the door had no room for is removed, and its task never is",
		run:   "^TestRelayRefusals$",
	},
	{
		name: "late-row-not-counted", invariant: 1, file: "ingest/relaystream.go",
		old: "\t\t\tanswers[i].Err = s.slowRefusal\n", new: "\t\t\t_ = s.slowRefusal\n",
		fault: "a row of a stream that does not answer is removed before its answer",
		run:   "^TestRelayWithASilentStream$",
	},
	{
		name: "rows-not-locked", invariant: 1, file: "schema/postgres/outbox.go",
		old: " LIMIT $1 FOR UPDATE SKIP LOCKED`", new: " LIMIT $1`",
		fault: "relays at the same time take the same rows",
		run:   "^TestOutboxRelaysAtOnce$",
	},
	{
		name: "unknown-header-left-out", invariant: 9, file: "internal/submit/form.go",
		old: "\t\tcase len(name) >= len(Prefix) &&", new: "\t\tcase len(name) < len(Prefix) &&",
		fault: "a door leaves out what a submission says by a header that it does not know",
		run:   "^TestHeaderRefused$",
	},
	{
		name: "header-given-twice-taken", invariant: 9, file: "internal/submit/form.go",
		old: "case len(values) == 1:", new: "case len(values) >= 1:",
		fault: "of a header that is given twice the first counts, without a word",
		run:   "^TestHeaderRefused$",
	},
	{
		name: "age-of-a-row-not-counted", invariant: 5, file: "internal/submit/read.go",
		old: "said := now.Add(-f.Ago)", new: "said := now",
		fault: "a duration of an outbox's row counts from when a node takes it",
		run:   "^TestReadTakesEveryField$",
	},
	{
		name: "admission-forgets-start-at", invariant: 5, file: "scheduler/notime.go",
		old: "from := max(now, sub.StartAt)", new: "from := now",
		fault: "the time before a task begins counts as time that it has",
		run:   "^TestNoTimeCountsFromTheStart$",
	},
	{
		name: "unknown-key-is-absent", invariant: 7, file: "agents/probe.go",
		old: "\t\treturn core.Probe{}, ErrNotKnown\n", new: "\t\treturn core.Probe{Outcome: core.ProbeAbsent}, nil\n",
		fault: "a ledger that has forgotten a key says that it has no effect",
		run:   "^TestProbeOfALedger$",
	},
	{
		name: "strange-outcome-taken", invariant: 7, file: "internal/wire/probe.go",
		old: "\tdefault:\n\t\treturn core.Probe{}, fmt.Errorf(\"%w: probe: outcome", new: "\tdefault:\n\t\tif p.Outcome = core.ProbeAbsent; resultMax > 0 {\n\t\t\treturn p, nil\n\t\t}\n\t\treturn core.Probe{}, fmt.Errorf(\"%w: probe: outcome",
		fault: "an answer to a probe that is none counts as no effect",
		run:   "^TestProbeRefused$",
	},
	{
		name: "put-off-from-when-it-was-due", invariant: 12, file: "schema/postgres/outbox.go",
		old: "THEN clock_timestamp() + u.again", new: "THEN duly_outbox.due + u.again",
		fault: "a row that has waited for long and is put off is tried again at once",
		run:   "^TestOutboxKeeps$",
	},
	{
		name: "put-off-and-taken", invariant: 12, file: "schema/postgres/outbox.go",
		old: "WHERE refused IS NULL AND due <= now() ORDER BY", new: "WHERE refused IS NULL ORDER BY",
		fault: "a row is taken before its time",
		run:   "^TestOutboxKeeps$",
	},
	{
		name: "discards-what-waits", invariant: 1, file: "schema/postgres/outbox.go",
		old: "DELETE FROM duly_outbox WHERE refused IS NOT NULL AND number", new: "DELETE FROM duly_outbox WHERE number",
		fault: "a row that waits to be relayed is discarded",
		run:   "^TestOutboxKeeps$",
	},
	{
		name: "relay-does-not-rest", invariant: 12, file: "ingest/relay.go",
		old: "return nil, max(refused.Retry, r.cfg.Interval)", new: "return nil, r.cfg.Interval",
		fault: "a relay hands rows to a full door again and again",
		run:   "^TestRelayRestsAsTheDoorAsks$",
	},
	{
		name: "relay-put-off-no-longer-each-time", invariant: 12, file: "ingest/relay.go",
		old: "relayAgainMax, w.Tries+1, 1)", new: "relayAgainMax, 1, 1)",
		fault: "a row whose plan is not applied is tried every second",
		run:   "^TestRelayRefusals$",
	},
	{
		name: "outbox-standing-of-before", invariant: 12, file: "internal/node/outbox.go",
		old: "\to.standing = ingest.Standing{}\n", new: "",
		fault: "an outbox that cannot be counted is said to be as it was",
		run:   "^TestOutboxStandingIsOfNow$",
	},
	{
		name: "outbox-header-left-out", invariant: 9, file: "internal/node/outbox.go",
		old: "\t\tw.Unfit = ingest.RefuseForm(bad)\n", new: "\t\t_ = bad\n",
		fault: "a row is relayed without the headers that cannot be read",
		run:   "^TestOutboxRowIsUnfit$",
	},
	{
		name: "age-of-a-row-forgotten", invariant: 11, file: "schema/postgres/outbox.go",
		old: "max(0, now.Sub(r.Written))\n", new: "max(0, now.Sub(now))\n",
		fault: "durations of a row count from when it is relayed, not from when it was written",
		run:   "^TestOutboxKeeps$",
	},
	{
		name: "unread-row-kept-as-refused", invariant: 1, file: "ingest/relay.go",
		old: "\t\t\tif unread[w.Request.ID] {\n", new: "\t\t\tif unread == nil {\n",
		fault: "a row that was stored before its owner fell behind is kept as refused",
		run:   "^(TestRelayKnowsWhatWasStored|TestRelayThroughAnything)$",
	},
	{
		name: "relay-remembers-an-outage", invariant: 12, file: "ingest/relay.go",
		old: "\t\tdefault:\n\t\t\tfailed = 0\n", new: "\t\tdefault:\n",
		fault: "a relay that had to wait for its database rests long after each single error",
		run:   "^TestRelayForgetsAnOutage$",
	},
	{
		name: "relay-again-before-the-door-says", invariant: 12, file: "ingest/relay.go",
		old: "core.Backoff(max(relayAgain, refused.Retry), relayAgainMax", new: "core.Backoff(relayAgain, relayAgainMax",
		fault: "a row is tried again before the time that the door names",
		run:   "^TestRelayPutsOffAsLongAsTheDoorSays$",
	},
	{
		name: "rows-without-a-plan-hold-up-others", invariant: 12, file: "ingest/relay.go",
		old: "\tl.all[planName{f.Type, f.Version}] = ", new: "\t_ = ",
		fault: "with each row whose plan is not applied the others of its take wait until the plans are read again",
		run:   "^TestRelayOfManyWithoutAPlan$",
	},
	{
		name: "looks-at-tasks-hold-up-an-outbox", invariant: 12, file: "ingest/relay.go",
		old: "\t\tearly(full)\n", new: "",
		fault: "while a relay looks whether rows are tasks that their owners may not have read no other row is submitted",
		run:   "^TestRelayOfManyThatMayBeTasks$",
	},
	{
		name: "lost-store-holds-up-an-outbox", invariant: 12, file: "ingest/relay.go",
		old: ", refused.ErrCode == CauseStore,\n", new: ",\n",
		fault: "rows whose ids cannot be looked up keep their place before those that could be relayed",
		run:   "^TestRelayBesideALostStore$",
	},
	{
		name: "silent-agent-takes-all-probes", invariant: 12, file: "internal/node/probes.go",
		old: "room := p.room(q.Command.Agent)", new: "room := p.room(\"\")",
		fault: "questions to an agent that is silent take the room of those to others",
		run:   "^TestSilentAgentHoldsUpNoProbe$",
	},
}
