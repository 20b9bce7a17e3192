package core

import (
	"errors"
	"testing"
	"time"
)

// asked is a task whose only step was silent, and whose agent is asked about the number.
func asked(t *testing.T) (r *rig, number int64) {
	t.Helper()
	p := stepsPlan(1)
	p.Steps[0].AttemptsMax, p.Steps[0].Probe = 1, true
	r = newRig(t, p)
	r.birth(0)
	number = r.task.Steps[0].Out
	r.now = r.task.NextDue(r.plan)
	r.must(Event{Kind: EventOverdue, Actor: "supervisor"})
	if !r.task.Steps[0].probing() {
		t.Fatalf("its agent is not asked: %s", r.task)
	}
	return r, number
}

// TestProbeTooLate: what an agent says when its time is over completes nothing, also before anything else has happened.
func TestProbeTooLate(t *testing.T) {
	r, number := asked(t)
	r.now = r.task.Steps[0].Due
	if err := r.apply(Event{Kind: EventProbed, Seq: number, Result: []byte("1")}); !errors.Is(err, ErrStale) {
		t.Errorf("%v, want a stale event", err)
	}
	r.must(Event{Kind: EventWake})
	if r.task.State != StateUndoing {
		t.Errorf("the task is %s", r.task)
	}
}

// TestProbeAfterWentBack: in the time that is lost another do may have left, of which the answer says nothing.
func TestProbeAfterWentBack(t *testing.T) {
	for _, code := range []int{0, CodeAbsent} {
		r, number := asked(t)
		r.now = r.task.ProbeQuiet(0).Add(time.Millisecond)
		r.must(Event{Kind: EventWentBack, Until: r.now})
		if err := r.apply(Event{Kind: EventProbed, Seq: number, Code: code, Result: []byte("1")}); !errors.Is(err, ErrStale) {
			t.Errorf("code %d: %v, want a stale event", code, err)
		}
	}
}

// TestProbeInTheSentence: a person reads what is waited for.
func TestProbeInTheSentence(t *testing.T) {
	r, _ := asked(t)
	got := r.task.Sentence(r.plan, nil, r.now)
	want := "Agent agent.a did not answer step a (attempt 1 of 1) in time. Until 2030-01-01T00:00:20Z, Duly asks it whether the step took effect. Then the task is processed. Its deadline is 2030-01-01T00:01:00Z; if it is not done by then, it will be undone."
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestProbeAfterLateRefusal: an optional step of which a late answer has said that it had no effect is passed over when the
// wait for its probe ends, whether that was answered or not: there is nothing to undo that would end the step.
func TestProbeAfterLateRefusal(t *testing.T) {
	for _, answered := range []bool{true, false} {
		p := stepsPlan(2)
		p.Steps[0].AttemptsMax, p.Steps[0].Probe, p.Steps[0].OnExhausted = 1, true, PolicySkip
		r := newRig(t, p)
		r.birth(0)
		number := r.task.Steps[0].Out
		r.now = r.task.NextDue(r.plan)
		r.must(Event{Kind: EventOverdue, Actor: "supervisor"})
		r.must(Event{Kind: EventReply, Seq: number, Code: CodeRefused, Error: "no"})
		if !r.task.Steps[0].probing() || r.task.Steps[0].Effect.Possible() {
			t.Fatalf("%s", r.task)
		}
		if answered {
			r.now = r.now.Add(time.Millisecond)
			r.must(Event{Kind: EventProbed, Seq: number, Code: CodeAbsent})
		} else {
			r.now = r.task.Steps[0].Due
			r.must(Event{Kind: EventOverdue, Actor: "supervisor"})
		}
		if r.task.Steps[0].Status != StepSkipped || r.task.Steps[1].Out == 0 {
			t.Errorf("answered %v: %s", answered, r.task)
		}
	}
}
