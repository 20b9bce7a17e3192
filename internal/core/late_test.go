package core

import (
	"errors"
	"strings"
	"testing"
)

// A late answer says nothing once the database went back: in the time that is lost the step may have come further.
//
// covers: S13, inv7
func TestLateAfterWentBack(t *testing.T) {
	for _, code := range []int{0, CodeRefused} {
		p := stepsPlan(1)
		p.Steps[0].AttemptsMax = 1
		r := newRig(t, p)
		r.birth(0)
		do := r.task.Steps[0].Out
		r.late()
		r.must(Event{Kind: EventWentBack, Until: r.now})
		if err := r.apply(Event{Kind: EventReply, Seq: do, Code: code, Error: text(code), Result: []byte("1")}); !errors.Is(err, ErrStale) {
			t.Errorf("code %d: %v, want a stale event", code, err)
		}
	}
}

// Of an agent that answers late both that it took effect and that it refused the first counts: its effect is undone, in
// whatever order they come, and whether before or after the row of the silence.
//
// covers: S13, inv7
func TestLateAnswersThatContradict(t *testing.T) {
	answer := func(code int) func(r *rig) {
		return func(r *rig) {
			_ = r.apply(Event{Kind: EventReply, Seq: 1, Code: code, Error: text(code), Result: []byte("1")})
		}
	}
	done, refused, overdue := answer(0), answer(CodeRefused), func(r *rig) { r.must(Event{Kind: EventOverdue}) }
	for name, events := range map[string][]func(r *rig){
		"refused once it was done":               {done, refused, overdue},
		"done once it was refused":               {refused, done, overdue},
		"refused when the silence was noted":     {done, overdue, refused},
		"done and refused behind it":             {overdue, done, refused},
		"done, refused and done, before it":      {done, refused, done, overdue},
		"refused, done and refused, around it":   {refused, done, overdue, refused},
		"done, refused and refused, all before":  {done, refused, refused, overdue},
		"done before, and refused twice behind":  {done, overdue, refused, refused},
		"done on both sides, and refused behind": {done, overdue, done, refused},
	} {
		t.Run(name, func(t *testing.T) {
			p := stepsPlan(1)
			p.Steps[0].AttemptsMax = 1
			r := newRig(t, p)
			r.birth(0)
			r.now = r.task.Steps[0].Due
			for _, event := range events {
				event(r)
			}
			r.wait()
			if s := &r.task.Steps[0]; s.Status != StepUndoing || s.Out == 0 {
				t.Errorf("want its undo out: %s", r.task)
			}
		})
	}
}

// A do that was refused late was sent once: who says afterwards that no agent listens is told what came of it.
func TestUnservedAfterALateRefusal(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.now = r.task.Steps[0].Due
	r.must(Event{Kind: EventReply, Seq: 1, Code: CodeRefused, Error: text(CodeRefused)})
	if err := r.apply(Event{Kind: EventUnserved, Seq: 1}); !errors.Is(err, ErrStale) || !strings.HasSuffix(err.Error(), ": an agent has refused the command, after its complete-by") {
		t.Error(err)
	}
}
