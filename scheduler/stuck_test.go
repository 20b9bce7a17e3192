package scheduler_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// The lists of tasks that wait at an agent do not grow with those that have gone meanwhile: an agent may be away, or paused,
// for days.
func TestListsOfWaitersAreBounded(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "fork", Version: 1, Steps: []core.Step{{Name: "b", Agent: "agent.b"}, {Name: "c", Agent: "agent.c"}}})
	r.mail.PlansChanged = true
	r.pause(core.Pause{Agent: "agent.c"})
	const n = 200
	for i := range n {
		gone, fork := fmt.Sprintf("gone%d", i), fmt.Sprintf("fork%d", i)
		r.tasks(0, order(gone))
		r.cycle()
		r.unserved(r.one())
		r.cycle()
		r.control(core.Control{Kind: core.EventCancel, ID: gone, Type: "order", Actor: "c"})
		r.cycle()
		r.state(gone, core.StateUndone)
		r.tasks(0, core.Submission{Type: "fork", ID: fork, Input: []byte(`{}`)})
		r.cycle()
		r.answer(r.one(), 0)
		r.cycle()
		r.state(fork, core.StatePending)
	}
	for _, agent := range []string{"agent.a", "agent.c"} {
		if listed := r.shard.Listed(0, agent); listed > n/4 {
			t.Errorf("%d tasks are listed at %s, and none is in memory", listed, agent)
		}
	}
	r.pause()
	r.cycle()
	r.serve(ok)
	for i := range n {
		r.state(fmt.Sprintf("fork%d", i), core.StateProcessed)
	}
}

// A branch that waits for room is moved to a version that has it at another agent: it begins when there is room at that one,
// though nothing else of the task happens.
func TestBlockedBranchOfAnotherVersion(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	fork := func(version int64, agent string) core.Plan {
		return core.Plan{Name: "fork", Version: version, Steps: []core.Step{{Name: "b", Agent: "agent.b"}, {Name: "c", Agent: agent}}}
	}
	r.store.AddPlan(fork(1, "agent.c"))
	r.mail.PlansChanged = true
	r.pause(core.Pause{Agent: "agent.c"}, core.Pause{Agent: "agent.d"})
	r.tasks(0, core.Submission{Type: "fork", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.one()
	r.store.AddPlan(fork(2, "agent.d"))
	r.mail.PlansChanged = true
	r.control(core.Control{Kind: core.EventMigrate, ID: "t1", Type: "fork", Actor: "operator", Version: 2})
	r.cycle()
	if version := r.state("t1", core.StateProcessing).PlanVersion; version != 2 {
		t.Fatalf("it is of version %d\n%s", version, r.logs.String())
	}
	r.pause()
	r.cycle()
	if c := r.one(); c.Step != "c" || c.Agent != "agent.d" {
		t.Errorf("%+v", c)
	}
}

// A crash before a new task has its child, and since then a version of its plan that has no children: the next owner finds the
// task all the same.
func TestChildOfATaskOfAnEarlierVersion(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "first", Version: 1, Steps: []core.Step{{Name: "kids", Kind: core.TaskStep, Child: "leg", Undoable: true, AttemptsMax: 1}}})
	commits := 0
	r.store.BeforeCommit = func(*core.Batch) error {
		if commits++; commits == 2 {
			return errCut
		}
		return nil
	}
	r.tasks(0, core.Submission{Type: "first", ID: "t1", Input: []byte(`{}`)})
	if _, err := r.try(false); err == nil || r.store.Task(0, "t1~kids") != nil {
		t.Fatalf("%v, or the child is there already", err)
	}
	r.store.BeforeCommit = nil
	r.store.AddPlan(orderPlan("first", 2, "a"))
	r.start("n2")
	r.adopt(0)
	r.cycle()
	r.serve(ok)
	r.state("t1", core.StateProcessed)
	r.state("t1~kids", core.StateProcessed)
}

// A crash before the parent of a child that is done hears of it, and the next owner cannot read the child: the parent's step is
// not done without the child's result.
func TestResultOfAChildThatCannotBeRead(t *testing.T) {
	r := cutBeforeTheParentHears(t)
	r.state("t1~kids", core.StateProcessed)
	r.store.RefuseRow, r.store.BeforeCommit = nil, nil
	r.reads = &hideReads{MemStore: r.store, partition: -1, broken: map[string]bool{"t1~kids": true}}
	r.start("n2")
	r.adopt(0)
	r.cycle()
	r.cycle()
	if step := r.store.Task(0, "t1").Steps[1]; step.Status == core.StepDone || step.Status == core.StepRunning {
		t.Errorf("step %+v, and the result of its child is not known", step)
	}
}

// A task that has begun and parks where as many others wait as memory keeps is among the next that are claimed, however many
// come after it.
func TestBegunIsKeptAmongMany(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 2, BatchMax: 20_000, InFlight: 100_000})
	r.store.AddPlan(orderPlan("single", 1, "b"))
	r.mail.PlansChanged = true
	r.tasks(0, order("begun"))
	r.cycle()
	first := r.one()
	sent := 0
	single := func(n int) {
		subs := make([]core.Submission, n)
		for i := range subs {
			sent++
			subs[i] = core.Submission{Type: "single", ID: fmt.Sprintf("s%d", sent)}
		}
		r.tasks(0, subs...)
	}
	single(8400)
	r.cycle()
	out := r.bus.take()
	next := func() (found bool) { // one is answered, and another comes
		r.answer(out[0], 0)
		out = out[1:]
		single(1)
		r.cycle()
		for _, c := range r.bus.take() {
			found = found || c.Task == "begun"
			out = append(out, c)
		}
		return found
	}
	for range 60 { // until all that is parked was read once
		next()
	}
	r.answer(first, 0)
	r.cycle()
	out = append(out, r.bus.take()...)
	for range 10 {
		if next() {
			return
		}
	}
	t.Error("ten others were claimed since it waits")
}

// A clock that is set back keeps no committer from its next cycle until it has caught up.
func TestCommitsAfterClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		commits := commitTimes(c)
		var back atomic.Int64
		n := c.run("a", func(cfg *scheduler.RunConfig) {
			cfg.Shards, cfg.CommitGap = 1, 20*time.Millisecond
			cfg.Now = func() core.Instant { return core.InstantOf(time.Now()).Add(-time.Duration(back.Load())) }
		})
		c.setLive("a")
		pass(2 * time.Second)
		c.submit(0, order("t1"), order("t2"))
		pass(50 * time.Millisecond) // before the cycle that moves the cursor
		back.Store(int64(time.Hour))
		c.submit(0, order("t3"))
		pass(time.Second)
		if got := len(commits()); got != 2 {
			t.Errorf("%d commits, want one for each of two messages", got)
		}
		c.end(n)
	})
}

// A partition that is taken over while the rows are read is not given up because its row was another's when it was read.
func TestTakenOverWhileTheRowsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("a")
		first := c.run("a", func(cfg *scheduler.RunConfig) { cfg.DrainMax = -1 }) // its rows name it when it has gone
		pass(2 * time.Second)
		c.end(first)
		c.store.takenFrom()
		c.store.reads.Store(int64(time.Second))
		c.store.takes.Store(int64(50 * time.Millisecond))
		second := c.run("a", nil)
		pass(20 * time.Second)
		c.store.reads.Store(0)
		if taken := c.store.takenFrom(); len(taken) != 8 || second.s.Owned() != 8 {
			t.Errorf("%d takeovers of 8 partitions, and %d are held", len(taken), second.s.Owned())
		}
		c.end(second)
	})
}
