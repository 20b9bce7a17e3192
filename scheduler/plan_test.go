package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A task of an unknown plan goes to error with its input kept, and starts when
// it is resubmitted after the plan exists.
func TestUnknownPlan(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, core.Submission{Type: "later", ID: "t1", Input: []byte(`{"x":1}`)},
		core.Submission{Type: "order", ID: "t2", PlanVersion: 9})
	r.turn()
	task := r.state("t1", core.StateError)
	if string(task.Input) != `{"x":1}` || !strings.Contains(task.Why, `no plan is stored for type "later"`) {
		t.Fatalf("stored %+v", task)
	}
	if why := r.state("t2", core.StateError).Why; !strings.Contains(why, "version 9") {
		t.Fatalf("why: %s", why)
	}
	resubmit := core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga"}
	r.control(resubmit)
	r.turn()
	r.state("t1", core.StateError)
	r.store.AddPlan(orderPlan("later", 1, "a"))
	r.mail.PlansChanged = true
	r.control(resubmit)
	r.turn()
	if c := r.one(); c.Task != "t1" || c.Step != "a" || string(c.Input) != `{"x":1}` {
		t.Fatalf("sent %+v", c)
	} else {
		r.answer(c, 0)
	}
	r.turn()
	r.state("t1", core.StateProcessed)
}

// A type nobody knows is looked up once in a while, not for each submission; a
// version that a door names is looked up at once, because the door has read it.
func TestPlanLookups(t *testing.T) {
	r := newRig(t, scheduler.Config{PlansRetry: time.Second})
	submit := func(typ, id string, version int64) *core.Task {
		r.tasks(0, core.Submission{Type: typ, ID: id, PlanVersion: version})
		r.turn()
		return r.store.Task(0, id)
	}
	if submit("later", "t1", 0).State != core.StateError {
		t.Fatal("t1")
	}
	r.store.AddPlan(orderPlan("later", 1, "a"))
	if submit("later", "t2", 0).State != core.StateError {
		t.Fatal("a type alone was looked up again at once")
	}
	if submit("later", "t3", 1).State != core.StateProcessing {
		t.Fatal("a named version was not looked up")
	}
	r.store.AddPlan(orderPlan("other", 1, "a"))
	if submit("other", "t4", 0).State != core.StateError {
		t.Fatal("t4")
	}
	r.now = r.now.Add(time.Second)
	if submit("other", "t5", 0).State != core.StateProcessing {
		t.Fatal("not looked up after PlansRetry")
	}
}

// A submission takes the highest version; a task keeps its version for life.
func TestPlanVersions(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.turn()
	old := r.one()
	r.store.AddPlan(orderPlan("order", 2, "c"))
	r.mail.PlansChanged = true
	r.tasks(0, order("t2"))
	r.turn()
	if c := r.one(); c.Step != "c" {
		t.Fatalf("a new task begins with %s", c.Step)
	}
	r.answer(old, 0)
	r.turn()
	if c := r.one(); c.Step != "b" || c.Task != "t1" {
		t.Fatalf("the old task goes on with %s", c.Step)
	}
}
