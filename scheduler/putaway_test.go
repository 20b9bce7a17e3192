package scheduler_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// asked is a plan of children that wait for a person before their call.
func asked() core.Plan {
	return core.Plan{Name: "asked", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
		{Name: "yes", Kind: core.SignalStep, CompleteBy: 50 * time.Minute},
		{Name: "go", Agent: "agent.go", Undoable: true, AttemptsMax: 1, After: []int{0}, Backoff: time.Second},
	}}
}

// newAsking is a rig with families whose children wait for people.
func newAsking(t *testing.T, kids core.Step, cfg scheduler.Config) *rig {
	t.Helper()
	cfg.Expressions = lists{}
	r := newRig(t, cfg)
	kids.Kind, kids.Child, kids.Elements, kids.ElementsMax = core.EachStep, "asked", "input", 9
	p := family(kids)
	p.CompleteBy, p.Steps[1].CompleteBy = 2*time.Hour, 90*time.Minute
	r.store.AddPlan(asked())
	r.store.AddPlan(p)
	r.mail.PlansChanged = true
	return r
}

// rest lets all come to rest that waits for no person.
func (r *rig) rest() {
	r.t.Helper()
	for range 3 {
		r.cycle()
		r.serve(ok)
		r.now = r.now.Add(time.Second)
	}
}

// read hands a submission in when the partition has room, as its reader does.
func (r *rig) read(sub core.Submission) {
	r.t.Helper()
	for range 5 {
		if r.shard.Load(0) < r.cfg.InFlight {
			r.tasks(0, sub)
			r.cycle()
			r.serve(ok)
			return
		}
		r.rest()
	}
	r.t.Fatalf("%s is never read: %d tasks are in flight", sub.ID, r.shard.Load(0))
}

// signal is a person's word to a child.
func (r *rig) signal(id, refusal string) {
	r.t.Helper()
	c := core.Control{Kind: core.EventSignal, ID: id, Step: "yes", Reason: refusal, Actor: "person"}
	if refusal == "" {
		c.Result = []byte(`{}`)
	}
	r.control(c)
	r.cycle()
	r.serve(ok)
}

// However many parents wait for children that wait for people: none is in memory, their children are all born, and other tasks
// are done. So it is after a takeover, and they go on when their children end.
func TestParentsWhoseChildrenWaitForPeople(t *testing.T) {
	const parents, kids, parallel = 20, 3, 2
	for _, takeover := range []bool{false, true} {
		r := newAsking(t, core.Step{Parallel: parallel}, scheduler.Config{InFlight: 4})
		for i := range parents {
			r.read(core.Submission{Type: "family", ID: fmt.Sprint("t", i), Input: list(kids)})
		}
		r.read(order("o1"))
		for range parents {
			r.rest()
		}
		r.state("o1", core.StateProcessed)
		if takeover {
			r.start("n2")
			if from := r.adopt(0); from.Resumed != 0 {
				t.Errorf("%d tasks are in memory after the takeover", from.Resumed)
			}
			for range parents {
				r.rest()
			}
		}
		if n := r.shard.Load(0); n != 0 {
			t.Errorf("taken over %t: %d tasks are in flight", takeover, n)
		}
		for i := range kids {
			for n := range parents {
				id := fmt.Sprint("t", n)
				if want, is := min(kids, parallel+i), r.counts(id, true); is.Born != want || is.Done != i {
					t.Fatalf("taken over %t: of %s %+v, want %d born and %d done", takeover, id, is, want, i)
				}
				r.signal(core.ChildID(id, "kids", i, 0, true), "")
				r.rest()
			}
		}
		for n := range parents {
			r.state(fmt.Sprint("t", n), core.StateProcessed)
		}
	}
}

// A parent that was put away says why its step failed, though the child that was undone first ended long before the last one.
func TestParentThatWasPutAwaySaysWhyItFailed(t *testing.T) {
	r := newAsking(t, core.Step{Parallel: 3}, scheduler.Config{InFlight: 8}) // of which none is kept
	r.family("t1", list(3))
	r.rest()
	r.signal("t1~kids~1", "it is too dear")
	r.rest()
	r.signal("t1~kids~0", "")
	r.rest()
	if n := r.shard.Load(0); n != 0 {
		t.Fatalf("%d tasks are in flight", n)
	}
	r.signal("t1~kids~2", "")
	r.rest()
	r.state("t1", core.StateUndone)
	if all := r.store.History(0, "t1"); !strings.Contains(all, "1 of 3 children were undone, the limit is 0; child t1~kids~1 was undone: it is too dear") {
		t.Error(all)
	}
}

// Parents that fill a partition before they have borne all of their children do not keep it: they bear them when the others wait.
func TestParentsThatFindNoRoomForTheirChildren(t *testing.T) {
	const parents, kids = 4, 3
	r := newAsking(t, core.Step{Parallel: kids}, scheduler.Config{InFlight: parents})
	var all []core.Submission
	for i := range parents {
		all = append(all, core.Submission{Type: "family", ID: fmt.Sprint("t", i), Input: list(kids)})
	}
	r.tasks(0, all...)
	for range parents * kids {
		r.rest()
	}
	for i := range parents {
		if is := r.counts(fmt.Sprint("t", i), true); is.Born != kids {
			t.Errorf("of t%d %+v, want %d children", i, is, kids)
		}
	}
	r.read(order("o1"))
	r.state("o1", core.StateProcessed)
}

// So does one that has come back to memory before its last child ended.
func TestParentThatCameBackSaysWhyItFailed(t *testing.T) {
	r := newAsking(t, core.Step{Parallel: 3}, scheduler.Config{InFlight: 8})
	r.family("t1", list(3))
	r.rest()
	r.signal("t1~kids~1", "it is too dear")
	r.rest()
	for _, id := range []string{"t1~kids~0", "t1~kids~2"} {
		r.control(core.Control{Kind: core.EventSignal, ID: id, Step: "yes", Result: []byte(`{}`), Actor: "person"})
	}
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, 0)
		r.cycle()
	}
	r.rest()
	r.state("t1", core.StateUndone)
	if all := r.store.History(0, "t1"); !strings.Contains(all, "1 of 3 children were undone, the limit is 0; child t1~kids~1 was undone: it is too dear") {
		t.Error(all)
	}
}

// The children of a parent that was put away begin again in its next try, also one that was undone before it was put away, by a
// clock that was set back since.
func TestParentThatWasPutAwayTriesAllAgain(t *testing.T) {
	r := newAsking(t, core.Step{Parallel: 2, AttemptsMax: 2}, scheduler.Config{InFlight: 8})
	r.family("t1", list(2))
	r.rest()
	r.now = r.now.Add(time.Minute)
	r.control(core.Control{Kind: core.EventSignal, ID: "t1~kids~0", Step: "yes", Result: []byte(`{}`), Actor: "person"})
	r.cycle()
	first := r.one()
	r.now = r.now.Add(-time.Minute)
	r.answer(first, core.CodeRefused)
	r.rest()
	r.state("t1~kids~0", core.StateUndone)
	if n := r.shard.Load(0); n != 0 {
		t.Fatalf("%d tasks are in flight", n)
	}
	r.signal("t1~kids~1", "no")
	for range 30 {
		r.rest()
	}
	r.state("t1~kids~0", core.StatePending)
	r.state("t1~kids~1", core.StatePending)
}

// A parent whose children had ended when its owner died, before it heard of that, needs no room to go on: it does so in a
// partition that others fill for long.
func TestParentOfAFullPartitionHearsAfterATakeover(t *testing.T) {
	r := newAsking(t, core.Step{Parallel: 1}, scheduler.Config{InFlight: 4})
	r.family("t1", list(1))
	r.rest()
	r.control(core.Control{Kind: core.EventSignal, ID: "t1~kids~0", Step: "yes", Result: []byte(`{}`), Actor: "person"})
	r.cycle()
	last := r.one()
	r.tasks(0, order("o1"), order("o2"), order("o3"), order("o4"))
	r.cycle()
	r.answer(last, 0)
	r.store.BeforeCommit = func(b *core.Batch) error {
		if slices.ContainsFunc(b.Writes, func(w core.TaskWrite) bool { return w.Task.ID == "t1" }) {
			return errCut
		}
		return nil
	}
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	r.state("t1~kids~0", core.StateProcessed)
	r.store.BeforeCommit = nil
	r.start("n2")
	if from := r.adopt(0); from.Resumed != 4 {
		t.Fatalf("adopted %+v", from)
	}
	for range 3 {
		r.cycle()
	}
	if step := r.store.Task(0, "t1").Steps[1]; step.Status != core.StepDone {
		t.Errorf("step %+v, want it done", step)
	}
}

// A read that fails, which costs one partition, does not keep the parents of another from going on.
func TestParentsGoOnWhenAnotherPartitionIsLost(t *testing.T) {
	r := newAsking(t, core.Step{Parallel: 2}, scheduler.Config{InFlight: 8}) // of which none is kept
	r.adopt(1)
	for p := range 2 {
		r.tasks(p, core.Submission{Type: "family", ID: fmt.Sprint("t", p), Input: list(2)})
	}
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, 0)
	}
	r.store.BeforeCommit = func(b *core.Batch) error {
		if slices.ContainsFunc(b.Writes, func(w core.TaskWrite) bool { return strings.HasSuffix(w.Task.ID, "~1") }) {
			return errCut
		}
		return nil
	}
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	r.store.BeforeCommit = nil
	store := &hideReads{MemStore: r.store, read: "LoadNumbers"}
	r.reads = store
	r.start("n2")
	r.adopt(0)
	r.adopt(1)
	store.fails = errCut
	if lost, err := r.try(false); !slices.Equal(lost, []int{0}) || !errors.Is(err, errCut) {
		t.Fatalf("lost %v, %v", lost, err)
	}
	r.serve(ok)
	if r.store.Task(1, "t1~kids~0") == nil || r.store.Task(1, "t1~kids~1") == nil {
		t.Errorf("the children of t1 are not born, and the next look is at %d", r.shard.NextWake())
	}
}

// Parents at rest are nothing that a partition which is let go waits for.
func TestParentsAtRestDelayNoHandover(t *testing.T) {
	r := newAsking(t, core.Step{Parallel: 2}, scheduler.Config{})
	r.family("t1", list(2))
	r.rest()
	if n := r.shard.Load(0); n != 1 {
		t.Fatalf("%d tasks are in flight, want a parent that is kept", n)
	}
	r.shard.StartNoMore(0)
	r.cycle()
	if n := r.shard.Load(0); n != 0 {
		t.Errorf("%d tasks are in flight", n)
	}
}
