package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// What operators ask for meets a database that went back. Nothing of it may do a step twice, leave an effect of a task
// that is undone, or take for done what may have been undone.

// wentBack is what the owner notes of a task that goes on.
func (r *rig) wentBack() { r.must(Event{Kind: EventWentBack, Until: r.now}) }

// kinds are those of the newest n journal rows.
func (r *rig) kinds(n int) []Kind {
	var kinds []Kind
	for _, j := range r.journal[len(r.journal)-n:] {
		kinds = append(kinds, j.Kind)
	}
	return kinds
}

// undos answers what is out, lets time pass, and returns the steps whose undo left, in order.
func (r *rig) undos() (steps []int) {
	for range 20 {
		if r.task.State.Ended() {
			return steps
		}
		if i := r.task.Out(); i >= 0 {
			if r.task.Steps[i].Status == StepUndoing {
				steps = append(steps, i)
			}
			r.answer(0)
			continue
		}
		r.wait()
	}
	return steps
}

// inError is a task of two steps of which the first was refused.
func inError(t *testing.T) *rig {
	p := stepsPlan(2)
	p.Steps[0].OnExhausted = PolicyError
	r := newRig(t, p)
	r.birth(0)
	r.answer(CodeRefused)
	return r
}

// A step that was accepted is not done again, which would do it twice, and its task is undone: it may have been undone.
func TestAcceptedBeforeTheDatabaseWentBack(t *testing.T) {
	r := inError(t)
	r.must(Event{Kind: EventAccept, Actor: person, Result: []byte(`"by hand"`)})
	r.wentBack()
	if got := r.kinds(2); !slices.Equal(got, []Kind{KindWentBack, KindUndoAsked}) || r.task.State != StateUndoing {
		t.Fatalf("journal %v: %s", got, r.task)
	}
	if !strings.Contains(r.task.Sentence(r.plan, nil, r.now), "step a was accepted, and the database went back since") {
		t.Errorf("it says: %s", r.task.Sentence(r.plan, nil, r.now))
	}
	if got := r.undos(); !slices.Equal(got, []int{1, 0}) || r.task.State != StateUndone {
		t.Errorf("undone were steps %v: %s", got, r.task)
	}
}

// A step that is never undone was not undone in the time that is lost either: what an operator said of it holds.
func TestAcceptedCheckBeforeTheDatabaseWentBack(t *testing.T) {
	p := stepsPlan(3)
	p.Steps[1].OnExhausted, p.Steps[1].Undoable = PolicyError, false
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	r.answer(CodeRefused)
	r.must(Event{Kind: EventAccept, Actor: person, Result: []byte(`"by hand"`)})
	r.wentBack()
	r.answer(0) // step c, which was out
	if r.task.Out() != 0 || r.task.Steps[1].Status != StepDone || string(r.task.Steps[1].Result) != `"by hand"` {
		t.Fatalf("it goes on with: %s", r.task)
	}
	r.answer(0)
	if r.task.State != StateProcessed {
		t.Errorf("in the end: %s", r.task)
	}
}

// A service takes the undo of a key once. So no step is accepted whose undo it may have taken in the time that is lost,
// also where the task itself has not noted that yet, and also in a later round, which that time may have come to.
func TestAcceptAfterTheDatabaseWentBack(t *testing.T) {
	accept := Event{Kind: EventAccept, Actor: person, Result: []byte(`"by hand"`)}
	unnoted := inError(t)
	asked := accept
	asked.WentBack = unnoted.now
	if err := unnoted.apply(asked); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("accepted when it was not noted yet: %v", err)
	}
	p := stepsPlan(2)
	p.Steps[0].OnExhausted = PolicyError
	r := newRig(t, p)
	r.birth(0)
	r.wentBack()
	r.answer(CodeRefused)
	for round := range 2 {
		if err := r.apply(accept); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "whether step a was undone meanwhile is not known") {
			t.Fatalf("accepted in round %d: %v", round, err)
		}
		if got := r.task.Possible(r.plan, r.now); slices.Contains(got, "accept") || !slices.Contains(got, "resubmit") {
			t.Errorf("possible in round %d: %v", round, got)
		}
		r.must(Event{Kind: EventUndo, Actor: person})
		r.undos()
		r.must(Event{Kind: EventResubmit, Actor: person})
		r.answer(CodeRefused)
	}
}

// A task in error notes that the database went back when it is taken up, before the request: what ran in the time that
// is lost is done again by key, or undone by it.
func TestTakenUpAfterTheDatabaseWentBack(t *testing.T) {
	for _, kind := range []EventKind{EventUndo, EventCancel, EventResubmit, EventEdit} {
		r := inError(t)
		r.must(Event{Kind: kind, Actor: person, Node: node, Reason: "because", Input: []byte(`2`), IfSeq: r.task.Seq, WentBack: r.now})
		rows := r.journal[len(r.journal)-2:]
		if rows[0].Kind != KindWentBack || rows[0].Actor != node || rows[0].Reason != "" || rows[1].Actor != person {
			t.Fatalf("request %d: journal %+v", kind, rows)
		}
		if kind == EventResubmit || kind == EventEdit {
			r.answer(0)
			r.must(Event{Kind: EventUndo, Actor: person})
		}
		if got := r.undos(); !slices.Equal(got, []int{1, 0}) || r.task.State != StateUndone {
			t.Errorf("request %d: undone were steps %v: %s", kind, got, r.task)
		}
	}
}

// Also one that an operator resolved as processed, and of which this journal knows no effect.
func TestUndoOfWhatWasResolvedAfterTheDatabaseWentBack(t *testing.T) {
	r := inError(t)
	r.must(Event{Kind: EventResolve, Actor: person, As: StateProcessed})
	r.must(Event{Kind: EventUndo, Actor: person, Node: node, WentBack: r.now})
	r.byHand = false
	if got := r.undos(); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("undone were steps %v: %s", got, r.task)
	}
}

// A task in error with a step that was accepted does not go on either.
func TestAcceptedAndInErrorWhenTheDatabaseWentBack(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[0].OnExhausted, p.Steps[1].OnExhausted = PolicyError, PolicyError
	r := newRig(t, p)
	r.birth(0)
	r.answer(CodeRefused)
	r.must(Event{Kind: EventAccept, Actor: person, Result: []byte(`"by hand"`)})
	r.answer(CodeRefused)
	if err := r.apply(Event{Kind: EventResubmit, Actor: person, Node: node, WentBack: r.now}); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "step a was accepted") {
		t.Fatalf("resubmitted: %v", err)
	}
	r.must(Event{Kind: EventUndo, Actor: person, Node: node, WentBack: r.now})
	if got := r.undos(); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("undone were steps %v: %s", got, r.task)
	}
}

// The time that is lost may have come to the next round as well, by the same keys.
func TestRoundAfterTheDatabaseWentBack(t *testing.T) {
	r := inError(t)
	r.must(Event{Kind: EventUndo, Actor: person, Node: node, WentBack: r.now})
	r.undos()
	quiet := r.task.LostUntil
	r.must(Event{Kind: EventResubmit, Actor: person, Input: []byte(`{}`)})
	r.answer(CodeRefused)
	r.must(Event{Kind: EventUndo, Actor: person})
	for i := range r.task.Steps {
		if r.task.Steps[i].Effect.Open < quiet {
			t.Errorf("step %d is quiet at %d, want %d", i, r.task.Steps[i].Effect.Open, quiet)
		}
	}
	if got := r.undos(); !slices.Equal(got, []int{1, 0}) || r.task.Round != 1 {
		t.Errorf("undone were steps %v: %s", got, r.task)
	}
}

// What was done by an input before an edit is done again by it, and undone by it; a step that an edit starts again has
// the new one.
//
// covers: OP11
func TestEditedBeforeTheDatabaseWentBack(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[0].OnExhausted, p.Steps[1].OnExhausted = PolicyError, PolicyError
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	r.answer(CodeRefused)
	r.must(Event{Kind: EventEdit, Actor: person, Node: node, Input: []byte(`2`), WentBack: r.now})
	input := func(step int, want string) {
		t.Helper()
		if got := string(r.task.InputOf(step)); r.task.Out() != step || got != want {
			t.Fatalf("step %d is out with input %s, want step %d with %s: %s", r.task.Out(), got, step, want, r.task)
		}
	}
	input(0, "{}")
	r.answer(CodeAgentError)
	r.wait()
	input(0, "{}")
	r.answer(CodeGone)
	r.must(Event{Kind: EventEdit, Actor: person, Node: node, Input: []byte(`3`)})
	input(0, "3")
	r.answer(0)
	input(1, "3")
	r.answer(0)
	r.must(Event{Kind: EventUndo, Actor: person})
	r.wait() // the commands of the time that is lost are over
	input(1, "3")
}

// A task that had ended, or was being undone, when the database went back has steps that may have been undone in the
// time that is lost. One that starts again before its undo does them again.
func TestStartedAgainAfterTheDatabaseWentBack(t *testing.T) {
	for name, note := range map[string]func(r *rig){
		"ended": func(r *rig) {
			r.answer(CodeRefused)
			r.must(Event{Kind: EventResolve, Actor: person, As: StateProcessed})
			r.must(Event{Kind: EventUndo, Actor: person, Node: node, WentBack: r.now})
		},
		"undoing": func(r *rig) {
			r.must(Event{Kind: EventCancel, Actor: person})
			r.wentBack()
			r.answer(CodeRefused)
		},
	} {
		p := stepsPlan(2)
		p.Steps[1].OnExhausted = PolicyError
		r := newRig(t, p)
		r.birth(0)
		r.answer(0)
		note(r)
		r.must(Event{Kind: EventPoison})
		r.must(Event{Kind: EventResubmit, Actor: person})
		if r.task.Out() != 0 || r.task.Steps[1].Out != 0 {
			t.Errorf("%s: it goes on with: %s", name, r.task)
		}
		r.answer(0)
		r.answer(0)
		if r.task.State != StateProcessed {
			t.Errorf("%s: in the end: %s", name, r.task)
		}
	}
}

// Where a step cannot be done again, because an operator accepted it or because its children are tasks of their own, such
// a task does not start again.
func TestNotStartedAgainAfterTheDatabaseWentBack(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[0].OnExhausted, p.Steps[1].OnExhausted = PolicyError, PolicyError
	r := newRig(t, p)
	r.birth(0)
	r.answer(CodeRefused)
	r.must(Event{Kind: EventAccept, Actor: person, Result: []byte(`"by hand"`)})
	r.answer(CodeRefused)
	r.must(Event{Kind: EventResolve, Actor: person, As: StateProcessed})
	r.must(Event{Kind: EventUndo, Actor: person, Node: node, WentBack: r.now})
	r.must(Event{Kind: EventPoison})
	if err := r.apply(Event{Kind: EventResubmit, Actor: person}); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "step a was accepted") {
		t.Errorf("resubmitted: %v", err)
	}
	if got := r.task.Possible(r.plan, r.now); slices.Contains(got, "resubmit") || !slices.Contains(got, "undo") {
		t.Errorf("possible: %v", got)
	}
}

// A task that is parked for a step which others come before again is parked for the first of them.
func TestParkedWhenTheDatabaseWentBack(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(0)
	r.must(Event{Kind: EventReply, Actor: "agent", Seq: 1, Result: []byte(`1`), Full: StepSetOf(1)})
	if r.task.State != StatePending || r.task.WaitsFor != "agent.b" {
		t.Fatalf("parked: %s", r.task)
	}
	r.wentBack()
	if r.task.State != StatePending || r.task.WaitsFor != "agent.a" || r.task.Parked(r.plan) != 0 {
		t.Errorf("it waits for %q: %s", r.task.WaitsFor, r.task)
	}
	if says := r.task.Sentence(r.plan, r.journal, r.now); !strings.Contains(says, "agent.a") {
		t.Errorf("it says: %s", says)
	}
	r.must(Event{Kind: EventClaim})
	if r.task.Out() != 0 {
		t.Errorf("claimed: %s", r.task)
	}
}

// A step that is to be done again is found by its agent, also where its task waits for nothing but a signal beside it.
func TestDoneAgainBesideASignal(t *testing.T) {
	p := stepsPlan(1)
	p.Steps = append(p.Steps, Step{Name: "approve", Kind: SignalStep})
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	r.wentBack()
	if r.task.WaitsFor != "agent.a" {
		t.Fatalf("it waits for %q until %v: %s", r.task.WaitsFor, r.row.Bound.Sub(r.now), r.task)
	}
	r.must(Event{Kind: EventClaim})
	if r.task.Out() != 0 {
		t.Errorf("it is not done again: %s", r.task)
	}
}
