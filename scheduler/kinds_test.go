package scheduler_test

import (
	"errors"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// kinds compares what a shard has counted of kinds of step.
func (r *rig) kinds(want scheduler.Kinds) {
	r.t.Helper()
	if got := r.shard.Stats.Kinds; got != want {
		r.t.Errorf("counted %+v\nwant    %+v", got, want)
	}
}

// Waits that end and signals are counted, those that change nothing apart; a step of calls without a result is no wait.
func TestCountsWaitsAndSignals(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "slow", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
		{Name: "nap", Kind: core.WaitStep, For: 10 * time.Second},
		{Name: "yes", Kind: core.SignalStep, After: []int{0}, CompleteBy: time.Minute},
		{Name: "b", Agent: "agent.b", After: []int{1}},
	}})
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "slow", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.kinds(scheduler.Kinds{})
	signal := func(id string) {
		r.control(core.Control{Kind: core.EventSignal, ID: id, Step: "yes", Result: []byte(`1`), Actor: "person"})
		r.cycle()
	}
	signal("t1") // early
	r.kinds(scheduler.Kinds{Signals: 1})
	signal("t1")
	signal("none")
	r.now = r.now.Add(11 * time.Second)
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1}, Actor: "supervisor"})
	r.cycle()
	r.kinds(scheduler.Kinds{Signals: 1, SignalsRefused: 2, Waits: 1})
	r.mail.Replies = append(r.mail.Replies, scheduler.ReplyMail{At: r.now, Reply: core.Reply{Partition: 0, Number: 1, Seq: r.one().Seq}})
	r.cycle()
	r.state("t1", core.StateProcessed)
	r.kinds(scheduler.Kinds{Signals: 1, SignalsRefused: 2, Waits: 1})
}

// Children are counted when they are born and by the state in which they end; their parents are not.
func TestCountsChildren(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 10, Parallel: 2, FailuresMax: 1}, scheduler.Config{})
	r.family("t1", list(3))
	r.kinds(scheduler.Kinds{Born: 2})
	r.serve(func(c core.Command) int {
		if c.Task == "t1~kids~1" {
			return core.CodeRefused
		}
		return 0
	})
	r.state("t1", core.StateProcessed)
	k := r.shard.Stats.Kinds
	if of := k.ChildrenEnded(); k.Born != 3 || of[core.StateProcessed] != 2 || of[core.StateUndone] != 1 || of[core.StateError] != 0 {
		t.Errorf("%+v", k)
	}
}

// conditions are expressions: the first step is not wanted, the condition of the second fails.
type conditions struct{ lists }

func (conditions) Bind(_ *core.Plan, t *core.Task) core.Asker { return conditionsOf{listsOf{t}} }

type conditionsOf struct{ listsOf }

func (conditionsOf) When(step int) (bool, error) {
	if step == 1 {
		return false, errors.New("no such key: total")
	}
	return false, nil
}

// Steps that a condition skips and expressions that fail are counted.
func TestCountsConditions(t *testing.T) {
	r := newRig(t, scheduler.Config{Expressions: conditions{}})
	r.store.AddPlan(core.Plan{Name: "maybe", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
		{Name: "a", Agent: "agent.a", When: "false", AttemptsMax: 1, Undoable: true},
		{Name: "b", Agent: "agent.b", When: "input.total > 1", After: []int{0}, AttemptsMax: 1, Undoable: true},
	}})
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "maybe", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.kinds(scheduler.Kinds{Skipped: 1, Expressions: 1})
}

// badInputs are the expressions of a plan whose children have no input.
type badInputs struct{ lists }

func (badInputs) Children(*core.Plan, *core.Task, int) func(int, []byte) ([]byte, error) {
	return func(int, []byte) ([]byte, error) { return nil, errors.New("no such key: row") }
}

// The expression of a child's input counts too: once, because no further child is born.
func TestCountsFailedInputsOfChildren(t *testing.T) {
	r := newRig(t, scheduler.Config{Expressions: badInputs{}})
	r.store.AddPlan(leg("leg"))
	r.store.AddPlan(family(core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 10, Parallel: 2, Input: "element.row"}))
	r.mail.PlansChanged = true
	r.family("t1", list(3))
	r.kinds(scheduler.Kinds{Expressions: 1})
}

// A commit that the fence left out counts nothing.
func TestFencedBirthsAreNotCounted(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.answer(r.one(), 0)
	r.steal(0)
	r.cycle()
	r.kinds(scheduler.Kinds{})
}

// The expression that says until when a wait lasts counts too.
func TestCountsFailedInstants(t *testing.T) {
	r := newRig(t, scheduler.Config{Expressions: lists{}})
	r.store.AddPlan(core.Plan{Name: "until", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{{Name: "nap", Kind: core.WaitStep, Until: "input.at"}}})
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "until", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.kinds(scheduler.Kinds{Expressions: 1})
}

// A task whose start comes while the window of its agent is full begins when there is room, without another question.
func TestStartWaitsForRoom(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	later := order("t2")
	later.StartAt = r.now.Add(time.Second)
	r.tasks(0, order("t1"), later)
	r.cycle()
	r.now = later.StartAt
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{2}, Actor: "supervisor"})
	r.cycle()
	r.state("t2", core.StatePending)
	r.serve(ok)
	r.state("t1", core.StateProcessed)
	r.state("t2", core.StateProcessed)
}

// A task that is to begin later is counted when it begins.
func TestCountsStarts(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	later := order("t1")
	later.StartAt = r.now.Add(time.Minute)
	r.tasks(0, later, order("t2"))
	r.cycle()
	r.serve(ok)
	r.kinds(scheduler.Kinds{})
	r.now = r.now.Add(time.Minute)
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1}, Actor: "supervisor"})
	r.cycle()
	r.kinds(scheduler.Kinds{Starts: 1})
	r.serve(ok)
	r.state("t1", core.StateProcessed)
	r.kinds(scheduler.Kinds{Starts: 1})
}
