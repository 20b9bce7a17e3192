package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A task of an unknown plan goes to error with its input kept, and starts when
// it is resubmitted after the plan exists.
//
// covers: inv12
func TestUnknownPlan(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, core.Submission{Type: "later", ID: "t1", Input: []byte(`{"x":1}`)},
		core.Submission{Type: "order", ID: "t2", PlanVersion: 9})
	r.cycle()
	task := r.state("t1", core.StateError)
	if string(task.Input) != `{"x":1}` || !strings.Contains(task.Why, `no plan is stored for type "later"`) {
		t.Fatalf("stored %+v", task)
	}
	if why := r.state("t2", core.StateError).Why; !strings.Contains(why, "version 9") {
		t.Fatalf("why: %s", why)
	}
	resubmit := core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga"}
	r.control(resubmit)
	r.cycle()
	r.state("t1", core.StateError)
	r.store.AddPlan(orderPlan("later", 1, "a"))
	r.mail.PlansChanged = true
	r.control(resubmit)
	r.cycle()
	if c := r.one(); c.Task != "t1" || c.Step != "a" || string(c.Input) != `{"x":1}` {
		t.Fatalf("sent %+v", c)
	} else {
		r.answer(c, 0)
	}
	r.cycle()
	r.state("t1", core.StateProcessed)
}

// An unknown type is looked up once in a while, not for each submission; a
// version that a door names is looked up at once, because the door has read it.
func TestPlanLookups(t *testing.T) {
	r := newRig(t, scheduler.Config{PlansRetry: time.Second})
	submit := func(typ, id string, version int64) *core.Task {
		r.tasks(0, core.Submission{Type: typ, ID: id, PlanVersion: version})
		r.cycle()
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
	r.cycle()
	old := r.one()
	r.store.AddPlan(orderPlan("order", 2, "c"))
	r.mail.PlansChanged = true
	r.tasks(0, order("t2"))
	r.cycle()
	if c := r.one(); c.Step != "c" {
		t.Fatalf("a new task begins with %s", c.Step)
	}
	r.answer(old, 0)
	r.cycle()
	if c := r.one(); c.Step != "b" || c.Task != "t1" {
		t.Fatalf("the old task goes on with %s", c.Step)
	}
}

// A version that a submitter named and that is not stored is refused, durably and to
// the submitter; one that a door has seen stored is kept, because it was accepted.
//
// covers: C5
func TestVersionNotApplied(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, core.Submission{Type: "order", ID: "t1", PlanVersion: 7, Unchecked: true, ReplyTo: "status.me"},
		core.Submission{Type: "order", ID: "t2", PlanVersion: 7},
		core.Submission{Type: "order", ID: "t3", PlanVersion: 1, Unchecked: true},
		core.Submission{Type: "order", ID: "t4", Unchecked: true},
		core.Submission{Type: "unknown", ID: "t5", Unchecked: true})
	r.cycle()
	if r.store.Task(0, "t1") != nil {
		t.Fatal("t1 is a task")
	}
	r.state("t2", core.StateError)
	r.state("t3", core.StateProcessing)
	r.state("t4", core.StateProcessing)
	r.state("t5", core.StateError) // it named no version
	if n := len(r.bus.refused); n != 1 || r.bus.refused[0].ID != "t1" || r.bus.refused[0].Code != 404 || !strings.Contains(r.bus.refused[0].Error, "version 7") {
		t.Fatalf("refused %+v", r.bus.refused)
	}
	r.store.AddPlan(orderPlan("order", 7, "a"))
	r.now = r.now.Add(time.Millisecond)
	r.tasks(0, core.Submission{Type: "order", ID: "t1", PlanVersion: 7, Unchecked: true})
	r.cycle()
	if task := r.state("t1", core.StateProcessing); task.PlanVersion != 7 {
		t.Errorf("t1 runs under version %d", task.PlanVersion)
	}
}

// Many guessed versions read the plans once a cycle.
func TestGuessedVersions(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.cycle()
	before := r.store.PlansRead
	for i := range 50 {
		r.tasks(0, core.Submission{Type: "order", ID: fmt.Sprint("t", i), PlanVersion: int64(10 + i), Unchecked: true})
	}
	r.now = r.now.Add(time.Millisecond)
	r.cycle()
	if n := r.store.PlansRead - before; n != 1 {
		t.Errorf("the plans were read %d times", n)
	}
}

// A task whose plan a newer binary stored waits for it: it is neither begun under
// another version nor ended as one without a plan.
func TestUnreadablePlanIsLeftAlone(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.Unreadable = core.UnreadablePlans{{Name: "order", Version: 2, Err: errors.New(`unknown field "rate_max"`)}}
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "order", ID: "t1"})
	r.cycle()
	if task := r.state("t1", core.StatePending); task.PlanVersion != 0 || task.WaitsFor != "plan:order:2" {
		t.Errorf("it waits for %q, of version %d", task.WaitsFor, task.PlanVersion)
	}
}
