package core

import (
	"testing"
	"time"
)

// TestReasonOutlivesTheUndo: why a task is undone is what began that, also when the undo was in trouble on the way.
//
// covers: OP1
func TestReasonOutlivesTheUndo(t *testing.T) {
	const called = "the customer called"
	for name, test := range map[string]struct {
		begin func(r *rig)
		want  string
	}{
		"the deadline has passed": {func(r *rig) {
			situations["parked for room"](r)
			r.now = r.task.Deadline
			r.must(Event{Kind: EventOverdue, Actor: "supervisor"})
		}, noTime},
		"asked for": {func(r *rig) {
			situations["processed"](r)
			r.must(Event{Kind: EventUndo, Reason: called})
		}, called},
		"asked for without a reason": {func(r *rig) {
			situations["processed"](r)
			r.must(Event{Kind: EventUndo})
		}, ""},
	} {
		r := newRig(t, stepsPlan(3))
		test.begin(r)
		r.now = r.now.Add(undoAlertAfter + time.Second)
		r.must(Event{Kind: EventOverdue, Rand: 0.5})
		told := 0
		for i := range r.task.Steps {
			if r.task.Steps[i].Alerted {
				told++
			}
		}
		if r.task.State != StateUndoing || told == 0 {
			t.Fatalf("%s: no undo is in trouble: %s", name, r.task)
		}
		for range 20 {
			switch {
			case r.task.State != StateUndoing:
			case r.task.Out() >= 0:
				r.answer(0)
			default:
				r.wait()
			}
		}
		if v := r.task.View(r.plan, nil, r.now); v.State != StateUndone || v.Reason != test.want || v.FailedStep != "" {
			t.Errorf("%s: %s, reason %q, step %q", name, v.State, v.Reason, v.FailedStep)
		}
	}
}

// TestSkippedIsNoReason: a step that its condition keeps out says nothing of the task.
//
// covers: OP1
func TestSkippedIsNoReason(t *testing.T) {
	p := stepsPlan(3)
	p.Steps[1].When = "input.wanted"
	r := newRig(t, p)
	r.birth(0)
	r.must(Event{Kind: EventReply, Seq: 1, Ask: unwanted{}})
	if r.task.Steps[1].Status != StepSkipped {
		t.Fatalf("b is not skipped: %s", r.task)
	}
	if v := r.task.View(r.plan, nil, r.now); v.Reason != "" {
		t.Errorf("reason %q", v.Reason)
	}
}

// unwanted finds every condition false.
type unwanted struct{ Asker }

func (unwanted) When(int) (bool, error) { return false, nil }
