package scheduler_test

import (
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A plan's own limits hold at the owner too: the plain door and agents that know
// nothing of Duly pass every check before it.

func TestInputOverThePlansLimitIsRefused(t *testing.T) {
	r := newRig(t, cfgSmall())
	r.store.AddPlan(smallPlan())
	r.tasks(0, core.Submission{Type: "small", ID: "fits", Input: []byte(`"345678"`)}, core.Submission{Type: "small", ID: "big", Input: []byte(`"3456789"`)})
	r.cycle()
	r.state("fits", core.StateProcessing)
	if r.store.Task(0, "big") != nil {
		t.Fatal("an input over the limit became a task")
	}
	if news := strings.Join(r.news(), "\n"); !strings.Contains(news, "refuse big 413") {
		t.Fatalf("the refusal does not leave:\n%s", news)
	}
}

// covers: E21
func TestResultOverTheStepsLimitFailsForGood(t *testing.T) {
	r := newRig(t, cfgSmall())
	r.store.AddPlan(smallPlan())
	r.tasks(0, core.Submission{Type: "small", ID: "one", Input: []byte(`1`)})
	r.cycle()
	cmd := r.one()
	r.answer(cmd, 0)
	r.mail.Replies[0].Reply.Result = []byte(`"23456"`) // one byte over
	r.cycle()
	task := r.state("one", core.StateUndoing)
	if !strings.Contains(task.Why, "bad_result: result of step a has 7 bytes, the limit is 6") {
		t.Fatalf("the task says %q", task.Why)
	}
}

func cfgSmall() scheduler.Config { return scheduler.Config{} }

func smallPlan() core.Plan {
	p := orderPlan("small", 1, "a")
	p.InputMax, p.Steps[0].ResultMax = 8, 6
	return p
}
