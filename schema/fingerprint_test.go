package schema

import (
	"testing"

	"duly.dev/duly/internal/core"
)

// Failures of one kind have one fingerprint, whatever number, time or id stands in
// their texts; failures of other kinds have others.
// covers: C14
func TestFingerprint(t *testing.T) {
	of := func(text string) string {
		return fingerprint(&core.Record{Kind: core.KindFailed, Code: 500, Error: text})
	}
	for _, same := range [][2]string{
		{"no answer by 2026-11-24T08:00:10.005Z", "no answer by 2030-01-01T00:00:00Z"},
		{"order 6ba7b810-9dad-11d1-80b4-00c04fd430c8 not found", "order f81d4fae-7dec-11d0-a765-00a0c91e6bf6 not found"},
		{"dial tcp 10.0.0.7:4222: connection refused", "dial tcp 192.168.1.20:80: connection refused"},
		{"waited 1.5s", "waited 300ms"},
	} {
		if of(same[0]) != of(same[1]) {
			t.Errorf("%q and %q have two fingerprints", same[0], same[1])
		}
	}
	for step := range core.StepsMax {
		if of, at := fingerprint(&core.Record{Step: step, Error: "no"}), fingerprint(&core.Record{Step: (step + 256) % core.StepsMax, Error: "no"}); of == at {
			t.Fatalf("the failures of step %d have the fingerprint of another", step)
		}
		if failureOf(int64(step), "no") == failureOf(int64((step+256)%core.StepsMax), "no") {
			t.Fatalf("tasks that failed at step %d are in the group of another", step)
		}
	}
	for _, other := range [][2]string{{"card declined", "card expired"}, {"no stock in 7", "no stock at 7"}} {
		if of(other[0]) == of(other[1]) {
			t.Errorf("%q and %q have one fingerprint", other[0], other[1])
		}
	}
}

// TestAskedIsNoFailure: a task that is undone because its caller or an operator asked for it, with a reason or without, is in
// no failure group, whatever it was before. One that is undone because it failed is, also after it was taken up again.
//
// covers: O7
func TestAskedIsNoFailure(t *testing.T) {
	for _, asked := range []core.Event{
		{Kind: core.EventCancel}, {Kind: core.EventCancel, Reason: "not wanted"}, {Kind: core.EventUndo}, {Kind: core.EventUndo, Reason: "all of Monday"},
		{Kind: core.EventResolve, As: core.StateUndone, Reason: "done by hand"},
	} {
		for _, from := range []string{"at once", "in the middle", "processed", "in error"} {
			l := liveOf(t, core.PolicyError)
			switch from {
			case "in the middle":
				l.answer(0)
			case "processed":
				l.answer(0)
				l.answer(0)
			case "in error":
				l.answer(0)
				l.answer(core.CodeRefused)
			}
			asked.At = l.task.UpdatedAt + 1
			err := core.Apply(l.plan, l.task, &asked, &l.out)
			if possible := from == "in error" || asked.Kind == core.EventUndo || from != "processed" && asked.Kind == core.EventCancel; possible != (err == nil) {
				t.Fatalf("%d %s: %v", asked.Kind, from, err)
			}
			if err != nil {
				continue
			}
			l.undone()
			if f := FailureFingerprint(l.task); f != "" {
				t.Errorf("asked for by %d %q %s: it is in the failure group %s, for %q", asked.Kind, asked.Reason, from, f, l.task.Why)
			}
			l.apply(core.Event{Kind: core.EventResubmit})
			l.answer(0)
			l.answer(core.CodeRefused)
			if f := FailureFingerprint(l.task); f == "" {
				t.Errorf("after a resubmit it is %s and in no failure group", l.task.State)
			}
		}
	}
	l := liveOf(t, core.PolicyUndo)
	l.answer(0)
	l.answer(core.CodeRefused)
	if l.undone(); FailureFingerprint(l.task) == "" {
		t.Error("a task that failed and was undone is in no failure group")
	}
}

// alive is a task as its owner has it.
type alive struct {
	*testing.T
	plan *core.Plan
	task *core.Task
	out  core.Outcome
}

// liveOf is a task of two steps that has just begun.
func liveOf(t *testing.T, policy core.Policy) *alive {
	p := core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "reserve", Agent: "stock", Undoable: true}, {Name: "pay", Agent: "bank", Undoable: true, After: []int{0}, OnExhausted: policy}}}.WithDefaults()
	l := &alive{T: t, plan: &p, task: &core.Task{ID: "t1", Type: p.Name, Number: 1, Input: []byte(`{}`)}}
	core.Birth(l.plan, l.task, &core.Event{At: 1}, &l.out)
	return l
}

func (l *alive) apply(ev core.Event) {
	l.Helper()
	if ev.At = l.task.UpdatedAt + 1; core.Apply(l.plan, l.task, &ev, &l.out) != nil {
		l.Fatalf("event %d of a task that is %s is refused", ev.Kind, l.task.State)
	}
}

// answer answers the command that is out.
func (l *alive) answer(code int) {
	l.Helper()
	s := &l.task.Steps[l.task.Out()]
	l.apply(core.Event{Kind: core.EventReply, Seq: s.Out, Copy: s.Copy, Code: code, Error: map[bool]string{true: "card declined"}[code != 0], Result: []byte(`1`)})
}

// undone answers until the task is undone.
func (l *alive) undone() {
	l.Helper()
	for l.task.State == core.StateUndoing {
		l.answer(0)
	}
	if l.task.State != core.StateUndone {
		l.Fatalf("it is %s", l.task.State)
	}
}
