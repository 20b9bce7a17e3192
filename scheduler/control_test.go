package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A cancel ends a task wherever it is: in flight, parked in the store, not yet
// submitted; what is unknown and unnamed is left alone. Every one of them is
// acknowledged after the commit.
//
// covers: D3, T9, inv9
func TestCancel(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, orders(2)...)
	r.cycle()
	c := r.one()
	r.news()
	for _, id := range []string{"t1", "t2", "t3"} {
		r.control(core.Control{Kind: core.EventCancel, ID: id, Type: "order", Actor: "olga", Reason: "no more"})
	}
	r.control(core.Control{Kind: core.EventCancel, ID: "t4", Actor: "olga"}) // of no type: an unknown task
	r.control(core.Control{})                                                // could not be decoded
	r.cycle()
	list := r.news()
	if !slices.Equal(list[len(list)-5:], []string{"ack control 2", "ack control 3", "ack control 4", "ack control 5", "ack control 6"}) || list[0] != "commit 3" {
		t.Fatalf("happened %q", list)
	}
	r.state("t1", core.StateUndoing) // its do is out
	r.state("t2", core.StateUndone)
	if task := r.state("t3", core.StateUndone); task.Why != "no more" {
		t.Fatalf("t3: %+v", task)
	}
	if r.store.Task(0, "t4") != nil {
		t.Fatal("t4 was made up")
	}
	r.answer(c, 0)
	r.cycle()
	r.finish()
	r.state("t1", core.StateUndone)
	r.cycle()
	if r.shard.Load(0) != 0 {
		t.Fatal("something is left in flight")
	}
}

// A request about a task of the same mail waits until the task is committed.
func TestControlOfATaskCreatedInTheCycle(t *testing.T) {
	r := newRig(t, scheduler.Config{BatchMax: 1})
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Type: "order"})
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Type: "order"})
	r.control(core.Control{Kind: core.EventResubmit, ID: "t1"})
	r.tasks(0, order("t1"))
	r.cycle()
	r.state("t1", core.StateUndone)
	if got := r.shard.Stats.Commits; got < 1 || len(r.bus.refused) != 1 {
		t.Fatalf("%d commits, refused %+v", got, r.bus.refused)
	}
}

// Cancel and resubmit of one task in one mail: the ending between them is not
// published, because it was over before it could have been seen, and its number
// does not hold publishedThrough back.
func TestEndedAndResubmittedInOneRound(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, orders(2)...)
	r.cycle()
	r.news()
	r.control(core.Control{Kind: core.EventCancel, ID: "t2", Actor: "olga"})
	r.control(core.Control{Kind: core.EventResubmit, ID: "t2", Actor: "olga"})
	r.cycle()
	r.expect("commit 1", "ack control 2", "ack control 3")
	r.state("t2", core.StatePending)
	r.finish()
	if task := r.state("t2", core.StateProcessed); task.Round != 1 {
		t.Fatalf("round %d", task.Round)
	}
	r.checkTold()
}

// A task in error that a person resolves has ended again: that is published, and published
// again if it has to be.
//
// covers: I20, inv10
func TestResolveIsPublished(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, core.Submission{Type: "unknown", ID: "t1"})
	r.cycle()
	r.cycle()
	r.news()
	r.bus.hold = true
	r.control(core.Control{Kind: core.EventResolve, ID: "t1", As: core.StateUndone, Actor: "olga", Reason: "seen to"})
	r.cycle()
	r.expect("commit 1", "live t1 undone", "publish t1 undone 2", "ack control 2")
	r.start("n2")
	r.bus.hold = false
	r.adopt(0)
	r.expect("publish t1 undone 2")
}

// The supervisor's question reaches tasks in flight and stored ones alike, and is
// harmless when it comes early, twice, or about nothing.
//
// covers: S28, S33, G2, G8
func TestOverdue(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, orders(2)...)
	r.cycle()
	c := r.one()
	ask := core.Control{Kind: core.EventOverdue, Numbers: []int64{1, 2, 99}, Actor: "supervisor"}
	r.control(ask)
	r.cycle()
	if r.shard.Stats.Stale != 2 { // t1 is not late yet, and t2 is parked until its own deadline
		t.Fatalf("%d stale", r.shard.Stats.Stale)
	}
	if task := r.state("t2", core.StatePending); task.Bound != task.Deadline {
		t.Fatalf("bound %d, deadline %d", task.Bound, task.Deadline)
	}
	r.now = c.CompleteBy
	r.control(ask)
	r.cycle()
	if task := r.state("t1", core.StateProcessing); task.Failures != 1 || r.shard.NextWake() == 0 {
		t.Fatalf("t1 %+v", task)
	}
	r.now = r.store.Task(0, "t2").Deadline
	r.control(ask)
	r.cycle()
	r.state("t2", core.StateUndone) // parked until its own deadline
}

// A question about more tasks than a batch may hold takes several rounds, and
// no question counts twice.
//
// covers: S28, G8
func TestOverdueInRounds(t *testing.T) {
	r := newRig(t, scheduler.Config{BatchMax: 2})
	r.tasks(0, orders(5)...)
	r.cycle()
	cmds := r.bus.take()
	r.now = cmds[0].CompleteBy
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1, 2, 3, 4, 5}, Actor: "supervisor"})
	r.cycle()
	for _, c := range cmds {
		if task := r.state(c.Task, core.StateProcessing); task.Failures != 1 || task.Seq != 2 {
			t.Fatalf("%s", r.store.History(0, c.Task))
		}
	}
}

// A question about more tasks than a batch may hold comes to an end also where the answer is that they are still due: each
// has a step that is to be tried again when a pause ends, while another step is at its agent.
//
// covers: S28, G8
func TestOverdueStillDue(t *testing.T) {
	r := newRig(t, scheduler.Config{BatchMax: 1})
	r.store.AddPlan(core.Plan{Name: "fork", Version: 1, Steps: []core.Step{
		{Name: "b", Agent: "agent.b", CompleteBy: time.Hour},
		{Name: "c", Agent: "agent.c", AttemptsMax: 3, Backoff: time.Second, BackoffCap: time.Second},
	}})
	r.mail.PlansChanged = true
	for _, id := range []string{"t1", "t2", "t3"} {
		r.tasks(0, core.Submission{Type: "fork", ID: id, Input: []byte(`{}`)})
	}
	r.cycle()
	for _, c := range r.bus.take() {
		if c.Step == "c" {
			r.answer(c, 500)
		}
	}
	r.pause(core.Pause{Agent: "agent.c"})
	r.cycle()
	r.now = r.now.Add(10 * time.Second)
	r.cycle()
	commits := 0
	r.store.BeforeCommit = func(*core.Batch) error {
		if commits++; commits > 10 {
			t.Fatal("the question has no end")
		}
		return nil
	}
	for range 2 {
		r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1, 2, 3}, Actor: "supervisor"})
		r.cycle()
	}
	for _, id := range []string{"t1", "t2", "t3"} {
		if task := r.state(id, core.StateProcessing); task.Failures != 1 || task.Bound <= r.now {
			t.Errorf("bound %d, now %d:\n%s", task.Bound, r.now, r.store.History(0, id))
		}
	}
}

// The reply of a task that is cancelled in the same mail: controls come first.
func TestControlsComeFirst(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.answer(r.one(), 0)
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Actor: "olga"})
	r.cycle()
	if c := r.one(); !c.Undo || string(c.Result) != `"a"` {
		t.Fatalf("sent %+v", c)
	}
}

// A new task and an event that names it, in one mail, are two rounds.
func TestNewTaskAndItsOverdueInOneMail(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(3)...)
	r.cycle()
	r.finish()
	r.control(core.Control{Kind: core.EventCancel, ID: "t9", Type: "order"})
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{4}, Actor: "supervisor"})
	r.answer(core.Command{Partition: 0, Number: 4, Seq: 1}, 0)
	r.cycle()
	r.state("t9", core.StateUndone)
}

// What the core does not allow is logged, and the message is done with.
func TestNotAllowed(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.news()
	r.control(core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga"})
	r.control(core.Control{Kind: core.EventExtend, ID: "none", Until: r.now.Add(time.Hour), Actor: "olga"})
	r.cycle()
	r.expect("commit 0", "ack control 2", "ack control 3")
	r.logged("changed nothing")
	r.logged("does not exist")
	if !strings.Contains(r.logs.String(), "olga") {
		t.Error("the log does not say who asked")
	}
}

// A request that names another type than the task's is about another task: it changes
// nothing and is acknowledged.
func TestControlOfAnotherType(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.news()
	for _, kind := range []core.EventKind{core.EventCancel, core.EventUndo, core.EventExtend} {
		r.control(core.Control{Kind: kind, ID: "t1", Type: "refund", Actor: "olga", Until: r.now.Add(time.Hour)})
	}
	r.cycle()
	r.state("t1", core.StateProcessing)
	if list := r.news(); !slices.Equal(list[len(list)-3:], []string{"ack control 2", "ack control 3", "ack control 4"}) {
		t.Fatalf("happened %q", list)
	}
	if !strings.Contains(r.logs.String(), `it is of type \"order\"`) {
		t.Errorf("logged %s", r.logs.String())
	}
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Type: "order", Actor: "olga"})
	r.cycle()
	r.state("t1", core.StateUndoing)
}
