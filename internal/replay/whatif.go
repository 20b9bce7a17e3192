package replay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// errNoWhatIf is wrapped by the errors of WhatIf about rows that record no answer.
var errNoWhatIf = errors.New("row is about no answer")

// WhatIf says what would have been decided if the answer that a row records had come earlier or, with a negative shift,
// later. Of a row that says that an answer did not come, it says what an answer "done" would have led to, at the
// complete-by moved by the shift. Errors: errNoWhatIf, or there is no such row; a shift to before the command left.
func WhatIf(p *core.Plan, saved *core.Saved, seq int64, earlier time.Duration) (Frame, error) {
	if p == nil {
		return Frame{}, errors.New("the plan of the task is not known")
	}
	if seq < 2 || seq > int64(len(saved.Journal)) {
		return Frame{}, fmt.Errorf("row %d, want 2 to %d", seq, len(saved.Journal))
	}
	before, err := core.Rewound(p, saved, seq-1)
	if err != nil {
		return Frame{}, err
	}
	r := &saved.Journal[seq-1]
	ev := core.Event{Kind: core.EventReply, At: r.At.Add(-earlier), Rand: 0.5, Actor: r.Actor, Code: r.Code, Error: r.Error, Result: r.Result}
	out := -1 // the command that the row is about, of several
	if r.Step >= 0 && r.Step < len(before.Steps) && p.Steps[r.Step].Kind == core.CallStep && before.Steps[r.Step].Out != 0 {
		out = r.Step
	}
	switch {
	case !answers(r.Kind):
		return Frame{}, fmt.Errorf("row %d is %s: %w", seq, r.Kind, errNoWhatIf)
	case r.Kind == core.KindOverdue || r.Kind == core.KindUndoOverdue:
		ev.Code, ev.Error, ev.Result = 0, "", []byte("null")
		if out >= 0 {
			ev.At = before.Steps[out].Due.Add(-earlier)
		}
	}
	if out < 0 {
		return Frame{}, fmt.Errorf("row %d: no command was out before it: %w", seq, errNoWhatIf)
	}
	if ev.At <= before.UpdatedAt {
		return Frame{}, fmt.Errorf("shift %v: the answer would have come at %s, before its command left at %s", earlier, when(ev.At), when(before.UpdatedAt))
	}
	ev.Seq, ev.Copy = before.Steps[out].Out, before.Steps[out].Copy
	before.Steps[out].Effect.SentOnce() // a replay supposes that it was sent twice, which the journal does not say
	return decide(p, saved.Journal[:seq-1], before, &ev)
}

// answers reports whether a row of the kind records an answer, or that none came.
func answers(k core.Kind) bool {
	switch k {
	case core.KindDone, core.KindRefused, core.KindFailed, core.KindUndone, core.KindUndoRefused, core.KindUndoFailed, core.KindOverdue, core.KindUndoOverdue:
		return true
	}
	return false
}

// decide applies the event to the task as the rows led to it, and tells it as a frame.
func decide(p *core.Plan, rows []core.Record, before *core.Task, ev *core.Event) (Frame, error) {
	was := *before
	was.Steps = append([]core.StepState(nil), before.Steps...)
	var outcome core.Outcome
	switch err := core.Apply(p, before, ev, &outcome); {
	case errors.Is(err, core.ErrStale):
		return Frame{At: ev.At, Happened: "the answer would have come at " + when(ev.At), Decided: "it would have been refused", Why: err.Error(),
			Sentence: before.Sentence(p, rows, ev.At), Task: before}, nil
	case err != nil:
		return Frame{}, fmt.Errorf("what if: %w", err)
	}
	return frame(p, slices.Concat(rows, outcome.Records), &was, before), nil
}
