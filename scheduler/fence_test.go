package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A partition that a successor has taken is left out whole: none of its effects
// leave, none of its messages is acknowledged, its memory goes. The others of
// the same commit are as if nothing had been.
//
// covers: E4, S21, I12, inv3, inv4
func TestFencedPartitionIsLeftOut(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.adopt(1)
	r.store.BeforeCommit = func(*core.Batch) error {
		r.store.BeforeCommit = nil
		r.steal(0)
		return nil
	}
	bad := core.Status{ID: "bad", Type: "order", Status: core.StatusRefused, Code: 400}
	r.tasks(0, order("t1"), core.Submission{Type: "unknown", ID: "t3"})
	r.mail.Tasks[0].Refused = []core.Status{bad}
	r.tasks(1, order("t2"))
	r.control(core.Control{Kind: core.EventCancel, ID: "t4", Type: "order"})
	lost := r.cycle()
	if !slices.Equal(lost, []int{0}) {
		t.Fatalf("lost %v", lost)
	}
	r.expect("commit 4 fenced [0]", "notify private.t2 received", "do t2/a/0 try 1", "ack 2")
	if _, owns := r.shard.Owns(0); owns || r.shard.Load(0) != 0 {
		t.Fatal("the fenced partition is still held")
	}
	if task := r.store.Task(0, "t1"); task != nil {
		t.Fatalf("a zombie wrote %+v", task)
	}
	// What still comes for it means nothing here.
	r.tasks(0, order("t1"))
	r.control(core.Control{Kind: core.EventCancel, ID: "t4", Type: "order"})
	r.answer(core.Command{Partition: 0, Number: 1, Seq: 1}, 0)
	r.cycle()
	r.expect()
}

// What a submitter would hear rests on a memory that the fence shows to be
// old: no notice leaves.
func TestFencedPartitionSendsNoNotice(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.news()
	r.steal(0)
	r.tasks(0, order("t1"), order("t2"))
	r.cycle()
	r.expect("commit 1 fenced [0]")
}

// A fence met in a later round of a cycle stops the messages of that partition
// there.
//
// covers: inv3, inv4
func TestFencedBetweenTwoRounds(t *testing.T) {
	r := newRig(t, scheduler.Config{BatchMax: 1})
	r.adopt(1)
	first := true
	r.store.BeforeCommit = func(*core.Batch) error {
		if !first {
			r.store.BeforeCommit = nil
			r.steal(0)
		}
		first = false
		return nil
	}
	r.tasks(0, order("t1"), order("t2"), order("t3"))
	r.tasks(1, order("t4"))
	lost := r.cycle()
	if !slices.Equal(lost, []int{0}) {
		t.Fatalf("lost %v", lost)
	}
	r.expect(
		"commit 1", "notify private.t1 received", "do t1/a/0 try 1",
		"commit 1 fenced [0]",
		"commit 1", "notify private.t4 received", "do t4/a/0 try 1", "ack 2",
	)
}

// A wake and a republishing of an ownership that is over do nothing.
func TestNothingOutlivesTheOwnership(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bus.publishErr = errCut
	r.tasks(0, order("t1"), core.Submission{Type: "unknown", ID: "t2"})
	r.cycle()
	r.answer(r.one(), core.CodeAgentError)
	r.cycle()
	if r.shard.NextWake() == 0 {
		t.Fatal("no backoff")
	}
	r.shard.Drop(0)
	r.steal(0)
	r.news()
	r.now = r.now.Add(core.DurationMax)
	r.cycle()
	r.cycle()
	r.expect()
	if r.shard.NextWake() != 0 {
		t.Fatal("a wake of a dropped partition is left")
	}
}

// A task is woken at the earliest of its times: one that waits for hours beside retries that are answered has one wake.
func TestOneWakeOfATask(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "nap", Version: 1, Steps: []core.Step{
		{Name: "sleep", Kind: core.WaitStep, For: 10 * time.Hour}, {Name: "pay", Agent: "agent.pay", Undoable: true, Backoff: time.Second},
	}})
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "nap", ID: "t1", CompleteBy: r.now.Add(20 * time.Hour)})
	for range 100 {
		r.left()
		if len(r.out) == 0 {
			r.now = r.shard.NextWake()
			continue
		}
		r.answer(r.out[0], core.CodeUnavailable)
		r.out = r.out[1:]
		r.left()
		if n := r.shard.Wakes(); n > 2 {
			t.Fatalf("%d wakes of one task", n)
		}
	}
	r.now = began.Add(10 * time.Hour)
	r.left()
	r.answer(r.out[0], 0)
	r.left()
	r.state("t1", core.StateProcessed)
}

// The wakes of a partition go with it.
func TestDropForgetsWakes(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(3)...)
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, core.CodeAgentError)
	}
	r.cycle()
	r.shard.Drop(0)
	if at := r.shard.NextWake(); at != 0 {
		t.Fatalf("wakes at %d", at)
	}
}

// A foreign row under our own epoch is a bug: the cycle says so and every
// partition is dropped.
//
// covers: inv4
func TestForeignRow(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	cmd := r.one()
	r.store.BeforeCommit = func(*core.Batch) error { return core.ErrForeignRow }
	r.answer(cmd, 0)
	if _, err := r.try(false); err == nil || !strings.Contains(err.Error(), core.ErrForeignRow.Error()) {
		t.Fatalf("commit cycle: %v", err)
	}
	if _, owns := r.shard.Owns(0); owns {
		t.Fatal("the partition is kept")
	}
}
