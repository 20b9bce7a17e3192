package scheduler_test

import (
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// An agent is asked once about a do that was silent, with what the do had, and what it says decides: an owner that has lost
// the partition meanwhile hears it in vain.
//
// covers: S13, inv5
func TestProbes(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	plan := orderPlan("order", 7, "a", "b")
	for i := range plan.Steps {
		plan.Steps[i].AttemptsMax, plan.Steps[i].ResultMax, plan.Steps[i].Probe = 1, 16, true
	}
	r.store.AddPlan(plan.WithDefaults())
	silence := func(do core.Command) {
		t.Helper()
		r.now = do.CompleteBy
		r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{do.Number}})
		r.cycle()
	}
	// ask is the only question since the last call, and how it is answered.
	ask := func() (q scheduler.Question, say func(core.Probe)) {
		t.Helper()
		if len(r.bus.asked) != 1 {
			t.Fatalf("%d questions", len(r.bus.asked))
		}
		q, say = r.bus.asked[0], r.bus.said[0]
		r.bus.asked, r.bus.said = nil, nil
		return q, say
	}
	r.tasks(0, order("t1"))
	r.cycle()
	do := r.one()
	silence(do)
	q, say := ask()
	c := q.Command
	if c.Task != "t1" || c.Step != "a" || c.Agent != "agent.a" || c.Seq != do.Seq || c.Attempt != 1 || string(c.Input) != string(do.Input) || c.Undo || q.ResultMax != 16 || c.Left <= 0 {
		t.Fatalf("the question: %+v", q)
	}
	if want := do.CompleteBy.Add(core.DefaultGrace); q.Quiet != want {
		t.Errorf("absent counts from %v, want %v", q.Quiet, want)
	}
	say(core.Probe{Outcome: core.ProbeDone, Result: []byte(`"there"`)})
	say(core.Probe{Outcome: core.ProbeDone, Result: []byte(`"twice"`)})
	r.cycle()
	second := r.one()
	if second.Step != "b" || len(second.Results) != 1 || string(second.Results[0].Result) != `"there"` {
		t.Fatalf("after the answer: %+v", second)
	}
	silence(second)
	q, say = ask()
	r.now = q.Quiet
	say(core.Probe{Outcome: core.ProbeAbsent})
	r.cycle()
	undo := r.one()
	if !undo.Undo || undo.Step != "b" {
		t.Fatalf("after an absent: %+v", undo)
	}
	r.tasks(0, order("t2"))
	r.cycle()
	var third core.Command
	for _, c := range r.bus.take() {
		if c.Task == "t2" {
			third = c
		}
	}
	silence(third)
	_, say = ask()
	r.now = r.now.Add(plan.WithDefaults().Steps[0].CompleteBy + 3*time.Second)
	r.cycle()
	say(core.Probe{Outcome: core.ProbeDone, Result: []byte(`"too late"`)})
	r.cycle()
	r.kinds(scheduler.Kinds{Probes: [3]int64{1, 1, 1}})
}

// What an agent says to an owner of an earlier term is for that one alone: a number may be another task's by now.
func TestProbeOfAnEarlierTerm(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	plan := orderPlan("order", 7, "a")
	plan.Steps[0].AttemptsMax, plan.Steps[0].Probe = 1, true
	r.store.AddPlan(plan.WithDefaults())
	r.tasks(0, order("t1"))
	r.cycle()
	do := r.one()
	r.now = do.CompleteBy
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{do.Number}})
	r.cycle()
	r.mail.Probed = append(r.mail.Probed, scheduler.ProbedMail{
		Partition: do.Partition, Epoch: 7, Number: do.Number, Seq: do.Seq, At: r.now, Probe: core.Probe{Outcome: core.ProbeDone, Result: []byte("1")},
	})
	r.cycle()
	r.state("t1", core.StateProcessing)
	r.bus.said[0](core.Probe{Outcome: core.ProbeDone, Result: []byte("1")})
	r.cycle()
	r.state("t1", core.StateProcessed)
}
