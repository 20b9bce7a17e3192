package scheduler_test

import (
	"errors"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A submission that names no version takes the newest that is not deprecated. One that names a deprecated version is
// refused at the stream endpoint; what a door took before the mark goes on. Where all are deprecated everything is refused.
func TestDeprecatedVersions(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(orderPlan("order", 2, "a", "b"))
	submit := func(id string, version int64) *core.Task {
		r.tasks(0, core.Submission{Type: "order", ID: id, PlanVersion: version, Input: []byte(`{}`)})
		r.cycle()
		return r.store.Task(0, id)
	}
	if got := submit("t1", 0); got.PlanVersion != 2 {
		t.Fatalf("version %d", got.PlanVersion)
	}
	mark := func(versions ...int64) {
		r.store.Marked = nil
		for _, v := range versions {
			r.store.Marked = append(r.store.Marked, core.Deprecation{Name: "order", Version: v, At: 1})
		}
		r.mail.PlansChanged = true
	}
	mark(2)
	if got := submit("t2", 0); got.PlanVersion != 1 {
		t.Errorf("after the mark: version %d", got.PlanVersion)
	}
	if got := submit("t3", 2); got.PlanVersion != 2 {
		t.Errorf("taken by a door: version %d", got.PlanVersion)
	}
	r.tasks(0, core.Submission{Type: "order", ID: "s1", PlanVersion: 2, Unchecked: true, Input: []byte(`{}`)})
	r.cycle()
	if got := r.store.Task(0, "s1"); got != nil {
		t.Errorf("named at the stream endpoint: %+v", got)
	}
	mark(1, 2)
	if got := submit("t4", 0); got != nil {
		t.Errorf("all are deprecated: %+v", got)
	}
	if all := r.bus.refused; len(all) != 2 || all[0].Code != 409 || !strings.Contains(all[0].Error, "version 2 of the plan of type \"order\" is deprecated") ||
		all[1].Code != 409 || !strings.Contains(all[1].Error, "every stored version of the plan of type \"order\" is deprecated") {
		t.Errorf("refused %+v", all)
	}
	mark()
	if got := submit("t5", 0); got.PlanVersion != 2 {
		t.Errorf("after the marks are gone: version %d", got.PlanVersion)
	}
	if got := r.store.Task(0, "t1"); got.PlanVersion != 2 || got.State != core.StateProcessing {
		t.Errorf("in flight: %+v", got)
	}
}

// What comes by the stream endpoint, or as an edit, is checked by the input schema at the owner.
func TestInputSchemaAtTheOwner(t *testing.T) {
	r := newRig(t, scheduler.Config{CheckInput: func(p *core.Plan, input []byte) error {
		if p.InputSchema == "true" || string(input) == `{"n":1}` {
			return nil
		}
		return errors.New(`at "/n": got string, want number`)
	}})
	plan := orderPlan("checked", 1, "a")
	plan.InputSchema, plan.Steps[0].OnExhausted = `{"type":"object"}`, core.PolicyError
	r.store.AddPlan(plan)
	r.tasks(0, core.Submission{Type: "checked", ID: "t1", Input: []byte(`{"n":"1"}`)}, core.Submission{Type: "checked", ID: "t2", Input: []byte(`{"n":1}`)}, order("t3"))
	r.cycle()
	if all := r.bus.refused; len(all) != 1 || all[0].ID != "t1" || all[0].Code != 422 || all[0].Error != `input does not fit the input schema of plan checked version 1: at "/n": got string, want number` {
		t.Fatalf("refused %+v", all)
	}
	r.store.Task(0, "t3") // a plan without a schema takes all
	for _, c := range r.bus.take() {
		if c.Task == "t2" {
			r.answer(c, 422)
		}
	}
	r.cycle()
	r.state("t2", core.StateError)
	edit := func(input string) *core.Task {
		r.control(core.Control{Kind: core.EventEdit, ID: "t2", Actor: "olga", Input: []byte(input)})
		r.cycle()
		return r.store.Task(0, "t2")
	}
	if got := edit(`{"n":"2"}`); got.State != core.StateError {
		t.Errorf("an edit that does not fit: %s", got.State)
	}
	r.logged("does not fit the input schema")
	if got := edit(`{"n":1}`); got.State != core.StateProcessing {
		t.Errorf("an edit that fits: %s", got.State)
	}
}

// A task goes on by another version in the batch of the request, and a successor replays it by that version alone.
func TestMigrate(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	second := orderPlan("order", 2, "a", "b", "c")
	second.Steps[2].After = []int{1}
	r.store.AddPlan(second)
	other := orderPlan("order", 3, "z", "b")
	r.store.AddPlan(other)
	r.tasks(0, core.Submission{Type: "order", ID: "t1", PlanVersion: 1, Input: []byte(`{}`)})
	r.cycle()
	first := r.bus.take()
	move := func(version int64) *core.Task {
		r.control(core.Control{Kind: core.EventMigrate, ID: "t1", Type: "order", Actor: "olga", Reason: "wrong plan", Version: version})
		r.cycle()
		return r.store.Task(0, "t1")
	}
	if got := move(3); got.PlanVersion != 1 {
		t.Fatalf("moved to a plan with another first step: version %d", got.PlanVersion)
	}
	r.logged("step a has begun, and version 3 has none of that name")
	if got := move(9); got.PlanVersion != 1 {
		t.Fatal("moved to a version that is not stored")
	}
	r.logged("version 9 of its plan is not known")
	if got := move(2); got.PlanVersion != 2 || got.State != core.StateProcessing {
		t.Fatalf("moved: %+v", got)
	}
	r.start("n2")
	r.adopt(0)
	for cmds := append(first, r.bus.take()...); len(cmds) > 0; cmds = r.bus.take() {
		for _, c := range cmds {
			r.answer(c, 0)
		}
		r.cycle()
	}
	got := r.state("t1", core.StateProcessed)
	if got.PlanVersion != 2 {
		t.Errorf("version %d", got.PlanVersion)
	}
}
