package core

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestBoundsOfRequests: what an operator gives a task is held to the plan's limits and to those of a task, the last that is
// allowed and the first that is not.
//
// covers: inv12
func TestBoundsOfRequests(t *testing.T) {
	p := stepsPlan(1)
	p.InputMax, p.Steps[0].ResultMax, p.Steps[0].OnExhausted = 8, 4, PolicyError
	r := newRig(t, p)
	r.birth(0)
	r.answer(422)
	refused := func(want string, ev Event) {
		t.Helper()
		if err := r.apply(ev); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	edit := func(bytes int) Event { return Event{Kind: EventEdit, Input: []byte(strings.Repeat("1", bytes))} }
	refused("the new input has 9 bytes, want 1 to 8", edit(9))
	refused("the result has 5 bytes, want 1 to 4", Event{Kind: EventAccept, Result: []byte("12345")})
	for _, kind := range []EventKind{EventResubmit, EventEdit, EventAccept} {
		refused("has passed", Event{Kind: kind, Until: r.now, Input: []byte("1"), Result: []byte("1")})
	}
	for range EditsMax {
		r.must(edit(8))
		r.answer(422)
	}
	refused("it has been edited 16 times since its last undo", edit(1))
	r.must(Event{Kind: EventUndo})
	if r.task.State != StateUndone {
		t.Fatal(r.task)
	}
	r.must(edit(1)) // a round of its own
	r.answer(422)
	r.must(Event{Kind: EventAccept, Result: []byte("1234")})
	if r.task.State != StateProcessed {
		t.Fatal(r.task)
	}
}

// TestStartsAgainByItsOwnDeadline: what starts again without a new deadline keeps one that is later than the plan's time from now.
func TestStartsAgainByItsOwnDeadline(t *testing.T) {
	for _, own := range []time.Duration{30 * time.Second, 24 * time.Hour} {
		for _, ev := range []Event{{Kind: EventResubmit}, {Kind: EventEdit, Input: []byte(`1`)}, {Kind: EventAccept, Result: []byte(`1`)}} {
			p := stepsPlan(2)
			p.CompleteBy, p.Steps[0].OnExhausted = time.Minute, PolicyError
			r := newRig(t, p)
			r.own = r.now.Add(own)
			r.birth(0)
			r.answer(422)
			r.now = r.now.Add(time.Second)
			r.must(ev)
			if want := max(r.own, r.now.Add(time.Minute)); r.task.Deadline != want {
				t.Errorf("by its own deadline after %v it ends by %v from now, want %v", own, r.task.Deadline.Sub(r.now), want.Sub(r.now))
			}
		}
	}
}

// TestEditBeforeTheDatabaseWentBack: a step that was refused by the input before an edit, and was not done again because
// the task was parked, is undone by that input when the database went back: what ran in the lost time ran by it.
func TestEditBeforeTheDatabaseWentBack(t *testing.T) {
	p := Plan{Name: "order", Version: 1, Steps: []Step{{Name: "charge", Agent: "bank", Undoable: true, OnExhausted: PolicyError}}}.WithDefaults()
	task := Task{ID: "t1", Type: "order", Input: []byte(`1`), CreatedAt: 1}
	var out Outcome
	Birth(&p, &task, &Event{At: 1}, &out)
	apply := func(ev Event) {
		t.Helper()
		ev.At = task.UpdatedAt + 1
		if err := Apply(&p, &task, &ev, &out); err != nil {
			t.Fatal(err)
		}
	}
	apply(Event{Kind: EventReply, Seq: 1, Code: CodeRefused, Error: "no"})
	apply(Event{Kind: EventEdit, Input: []byte(`2`), Full: StepSetOf(0)})
	apply(Event{Kind: EventWentBack, Until: task.UpdatedAt})
	if got := string(task.InputOf(0)); task.State != StatePending || got != "1" {
		t.Errorf("the task is %s, and its step is undone by input %s, want 1", task.State, got)
	}
}
