package core

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestUndoOnceMore: of a task that is undone, the step whose service still has an effect is undone once more, and no other;
// whatever became of it before. The row replays, and an ordinary undo still changes nothing.
//
// covers: OP12
func TestUndoOnceMore(t *testing.T) {
	plan := stepsPlan(3)
	plan.Steps = append([]Step{{Name: "look", Agent: "agent.look"}}, plan.Steps...)
	for i := range plan.Steps {
		plan.Steps[i].After = nil
		if i > 0 {
			plan.Steps[i].After = []int{i - 1}
		}
	}
	for step, was := range map[string]StepStatus{"a": StepUndone, "b": StepFailed, "c": StepSkipped} {
		r := newRig(t, plan)
		r.birth(0)
		r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Result: []byte(`1`)})
		r.must(Event{Kind: EventReply, Seq: r.task.Steps[1].Out, Result: []byte(`"made"`)})
		r.must(Event{Kind: EventReply, Seq: r.task.Steps[2].Out, Code: CodeRefused, Error: "no"})
		r.must(Event{Kind: EventReply, Seq: r.task.Steps[1].Out})
		i := plan.StepIndex(step)
		if r.task.State != StateUndone || r.task.Steps[i].Status != was {
			t.Fatalf("step %s is %s of a task that is %s, want %s", step, r.task.Steps[i].Status, r.task.State, was)
		}
		r.now = r.now.Add(time.Hour)
		for _, ev := range []Event{{Kind: EventUndo}, {Kind: EventCancel, Step: step}} {
			if err := r.apply(ev); !errors.Is(err, ErrStale) {
				t.Errorf("%+v of an undone task: %v", ev, err)
			}
		}
		for name, says := range map[string]string{"look": "is a check", "none": `has no step "none"`} {
			if err := r.apply(Event{Kind: EventUndo, Step: name}); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), says) {
				t.Errorf("step %s: %v, want that it %s", name, err, says)
			}
		}
		r.must(Event{Kind: EventUndo, Step: step, Actor: person, Reason: "it stands", IfSeq: r.task.Seq})
		if s := &r.task.Steps[i]; r.task.State != StateUndoing || r.task.Out() != i || s.Status != StepUndoing || s.Attempt != 1 {
			t.Fatalf("step %s: %s", step, r.task)
		}
		if e := r.out.Effects; len(e) == 0 || e[0].Kind != EffectUndo || e[0].Step != i {
			t.Errorf("step %s: effects %+v", step, e)
		}
		if err := r.apply(Event{Kind: EventUndo, Step: step}); !errors.Is(err, ErrStale) {
			t.Errorf("while it is being undone: %v", err)
		}
		r.must(Event{Kind: EventReply, Seq: r.task.Steps[i].Out})
		if r.task.State != StateUndone || r.task.Steps[i].Status != StepUndone || r.task.Steps[i].Effect.Possible() {
			t.Errorf("step %s: %s", step, r.task)
		}
	}
	r := newRig(t, plan)
	r.birth(0)
	if err := r.apply(Event{Kind: EventUndo, Step: "a"}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("a step of a task that is processing: %v", err)
	}
}

// TestUndoOnceMoreAfterTheDatabaseWentBack: what ran in the time that is lost is noted first, and undone with the step.
func TestUndoOnceMoreAfterTheDatabaseWentBack(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(0)
	r.answer(0)
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[1].Out, Code: CodeRefused, Error: "no"})
	r.answer(0)
	if r.task.State != StateUndone || r.task.Steps[1].Effect.Possible() {
		t.Fatalf("%s", r.task)
	}
	r.now = r.now.Add(time.Hour)
	r.must(Event{Kind: EventUndo, Step: "a", Actor: person, Reason: "it stands", WentBack: r.now})
	if rows := r.out.Records; len(rows) != 2 || rows[0].Kind != KindWentBack || rows[1].Kind != KindUndoAsked {
		t.Errorf("rows %+v", rows)
	}
	if !r.task.Steps[1].Effect.Possible() {
		t.Error("step b may have run in the time that is lost, and is not undone")
	}
}
