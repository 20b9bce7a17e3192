package main

// breakerMutants are faults of breakers and limits: what an agent gets of new work.
var breakerMutants = []mutant{
	{
		name: "breaker-holds-nothing", invariant: 12, file: "scheduler/breaker.go",
		old: "if limit < 0 || a.tried {", new: "if limit <= 0 || a.tried {",
		fault: "commands leave to an agent whose breaker is open",
		run:   "^TestBreakerParks$",
	},
	{
		name: "trial-without-end", invariant: 11, file: "scheduler/breaker.go",
		old: "			e.plan.agents[i].tried--\n", new: "",
		fault: "a trial never gets its commands back, and the breaker stays in it for ever",
		run:   "^(TestTrialGivesBack|TestBreakerParks)$",
	},
	{
		name: "hopeless-waits", invariant: 11, file: "internal/core/breaker.go",
		old: "	return d.ev.Back[i].Add(d.p.Steps[i].Least) >= d.t.workUntil(d.p)", new: "	return d.ev.Back[i].Add(d.p.Steps[i].Least) < 0",
		fault: "a task that cannot wait until its agent is back is not undone until its deadline",
		run:   "^TestBackTooLate$",
	},
	{
		name: "parked-is-not-given-up", invariant: 11, file: "scheduler/breaker.go",
		old: "slot.gaveUp == breaker.Revision {", new: "slot.gaveUp <= breaker.Revision {",
		fault: "a task that is parked when the breaker opens, and cannot wait so long, is not undone until its deadline",
		run:   "^TestBreakerGivesUp$",
	},
	{
		name: "trial-fails-and-goes-on", invariant: 12, file: "internal/core/breaker.go",
		old: "		case trial.bad(p.SharePct):\n			return b.open(p, now, trial), true\n", new: "",
		fault: "a breaker in trial lets more and more through to an agent that fails",
		run:   "^TestBreakerTrial$",
	},
	{
		name: "forced-is-not-heard", invariant: 12, file: "internal/core/breaker.go",
		old: "p.SharePct == 0 || b.Holds(now)", new: "p.SharePct == 0",
		fault: "a breaker that an operator holds decides by itself",
		run:   "^TestBreakerForced$",
	},
	{
		name: "grant-beyond-the-limit", invariant: 12, file: "internal/core/limit.go",
		old: "min(int(fairShare(int64(l.Concurrent), wanted, at)), max(0, l.Concurrent-places))", new: "int(fairShare(int64(l.Concurrent), wanted, at))",
		fault: "committers have more places together than the limit",
		run:   "^(TestGrantsAreFair|TestGrantFloor)$",
	},
	{
		name: "grant-outlasted", invariant: 12, file: "scheduler/limit.go",
		old: "	if now.Add(longest) > l.until {\n		return 0\n	}\n", new: "	_ = longest\n",
		fault: "a node whose grant has ended sends commands in places that others have",
		run:   "^TestGrantEnds$",
	},
	{
		name: "gone-is-free", invariant: 12, file: "scheduler/limit.go",
		old: "if gone && u.limit != nil {", new: "if gone && u.limit == nil {",
		fault: "the place of a command whose task went to another node is given away while it runs",
		run:   "^TestGoneKeepsItsPlace$",
	},
	{
		name: "two-in-one-place", invariant: 12, file: "internal/core/forward.go",
		old: "d.ev.Few&(1<<uint(i)) != 0 && d.beganAt(ps.Agent)", new: "d.ev.Few&(1<<uint(i)) == 0 && d.ev.Few != 0 && d.beganAt(ps.Agent)",
		fault: "two steps of a task begin at an agent that has one place",
		run:   "^TestFewBeginsOne$",
	},
	{
		name: "rate-between-grants", invariant: 11, file: "scheduler/limit.go",
		old: "\t\tv.until = is.next(now)\n", new: "\t\tv.until = 0\n",
		fault: "a rate lets one command through for each grant that comes",
		run:   "^TestRateOverNodes$",
	},
	{
		name: "key-without-limit", invariant: 12, file: "scheduler/keys.go",
		old: "\tif k == nil {\n\t\treturn verdict{}\n", new: "\tif k == nil {\n\t\treturn anyNumber\n",
		fault: "the first commands of a key leave without a grant",
		run:   "^(TestKeysOverNodes|TestBranchesOfAKey)$",
	},
	{
		name: "gone-is-free-to-its-key", invariant: 12, file: "scheduler/keys.go",
		old: "	k.inUse.end(gone, over)", new: "	k.inUse.end(false, over)",
		fault: "the place of a key is given away while a command that took it runs",
		run:   "^TestGoneKeepsThePlaceOfItsKey$",
	},
	{
		name: "aside-for-ever", invariant: 11, file: "scheduler/keys.go",
		old: "					at.miss()\n", new: "",
		fault: "tasks of a key that do not stand aside in memory are not done",
		run:   "^TestManyOfOneKey$",
	},
	{
		name: "made-way-and-lost", invariant: 11, file: "scheduler/aside.go",
		old: "left, most.more = most.Pop().(asideTask).parkedTask, true", new: "left = most.Pop().(asideTask).parkedTask",
		fault: "tasks that make way in memory for those of another key are not done",
		run:   "^TestMakesWayForOtherKeys$",
	},
	{
		name: "key-goes-on-late", invariant: 11, file: "scheduler/keys.go",
		old: "\tk.inUse.end(gone, over)\n\tk.change()\n\tk.opened()\n", new: "\tk.inUse.end(gone, over)\n\tk.change()\n",
		fault: "the next task of a key waits for a grant although a place is free",
		run:   "^TestNextOfAKey$",
	},
	{
		name: "branch-wants-no-place", invariant: 11, file: "scheduler/keys.go",
		old: "	k.kept = true\n", new: "",
		fault: "a branch that waits for its key gets no place",
		run:   "^TestBranchWaitsForItsKey$",
	},
	{
		name: "key-is-forgotten-in-use", invariant: 12, file: "scheduler/limits.go",
		old: "h.sent.Idle() && h.seq == u.seq", new: "h.sent.Idle() || h.seq != 0",
		fault: "a grant that is under way to a shard is given to others",
		run:   "^(TestKeysOverNodes|TestKeysWithinAll)$",
	},
	{
		name: "drain-starts-parked", invariant: 11, file: "scheduler/committer.go",
		old: "	c.shard.StartNoMore(p)\n", new: "",
		fault: "a partition that is handed over goes on with what is parked for all of its time",
		run:   "^TestHandoverOfParked$",
	},
}
