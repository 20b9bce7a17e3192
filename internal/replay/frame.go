package replay

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Frame is what one journal row did: what happened, what was decided, and why.
type Frame struct {
	Seq      int64
	At       core.Instant
	Kind     core.Kind
	Actor    string
	Happened string // what the row records, in words
	Decided  string // what follows from it
	Why      string // the rule and the numbers by which it was decided so; empty where there was nothing to decide
	Sentence string // of the task after the row: see core.Task.Sentence
	Task     *core.Task
}

// Answer reports whether the row records an answer, or that none came: of these alone WhatIf knows something.
func (f *Frame) Answer() bool { return answers(f.Kind) }

// Frames plays the rows from one number to another, both included; its time and room grow with the rows, those before
// from are played as well, and kept nowhere. Error: there are no such rows.
func Frames(p *core.Plan, saved *core.Saved, from, to int64) ([]Frame, error) {
	var frames []Frame
	for f, err := range All(p, saved, from, to) {
		if err != nil {
			return nil, err
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// All is Frames one by one, for journals whose frames together would be too large. An error is the last element.
func All(p *core.Plan, saved *core.Saved, from, to int64) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		if from < 1 || to < from || to > int64(len(saved.Journal)) {
			yield(Frame{}, fmt.Errorf("rows %d to %d, want some of 1 to %d", from, to, len(saved.Journal)))
			return
		}
		player := core.Play(p, saved)
		var before *core.Task
		for seq := int64(1); seq <= to; seq++ {
			if _, err := player.Next(); err != nil {
				yield(Frame{}, err)
				return
			}
			if seq < from-1 {
				continue
			}
			after := player.Task()
			if seq >= from && !yield(frame(p, saved.Journal[:seq], before, after), nil) {
				return
			}
			before = after
		}
	}
}

// one plays a single row.
func one(p *core.Plan, saved *core.Saved, seq int64) (*Frame, error) {
	frames, err := Frames(p, saved, seq, seq)
	if err != nil {
		return nil, err
	}
	return &frames[0], nil
}

// frame tells of the last of the rows, which led from one task to the other.
func frame(p *core.Plan, rows []core.Record, before, after *core.Task) Frame {
	r := &rows[len(rows)-1]
	w := words{p: p, r: r, before: before}
	return Frame{
		Seq: r.Seq, At: r.At, Kind: r.Kind, Actor: r.Actor, Happened: w.happened(), Decided: w.decided(), Why: w.why(),
		Sentence: after.Sentence(p, rows, r.At), Task: after,
	}
}

// words says one row in words.
type words struct {
	p      *core.Plan
	r      *core.Record
	before *core.Task // nil: the row is the first
}

func (w *words) step(i int) string {
	if w.p == nil || i < 0 || i >= len(w.p.Steps) {
		return "?"
	}
	return w.p.Steps[i].Name
}

// failure is the code and the text of the row's failure, as the end of a sentence.
func (w *words) failure() string {
	switch {
	case w.r.Code != 0 && w.r.Error != "":
		return fmt.Sprintf(": %d, %q", w.r.Code, core.ShortText(w.r.Error, 200))
	case w.r.Code != 0:
		return fmt.Sprintf(": %d", w.r.Code)
	case w.r.Error != "":
		return fmt.Sprintf(": %q", core.ShortText(w.r.Error, 200))
	}
	return ""
}

// attempt is the number of the attempt that the row ends.
func (w *words) attempt() int {
	if w.before != nil && w.r.Step >= 0 && w.r.Step < len(w.before.Steps) {
		return w.before.Steps[w.r.Step].Attempt
	}
	return w.r.Attempt
}

func (w *words) happened() string {
	r, id := w.r, "row."+string(w.r.Kind)
	switch {
	case r.Kind == core.KindStarted && r.StepStatus == core.StepRunning && r.Next < 0:
		id = "row.started-old-key"
	case r.Kind == core.KindUnserved && r.Code == core.CodeTooEarly:
		id = "row.unserved-running"
	case r.Kind == core.KindLate && r.Code != 0:
		id = "row.late-refused"
	case r.Kind == core.KindProbed && r.Code == core.CodeAbsent:
		id = "row.probed-absent"
	case r.Kind == core.KindProbed && r.Code != 0:
		id = "row.probed-unknown"
	case r.Kind == core.KindExpired && r.StepStatus == core.StepFailed:
		id = "row.expired-step"
	case r.Kind == core.KindResubmitted && r.Input != nil && len(r.Result) > 0:
		id = "row.resubmitted-void"
	case r.Kind == core.KindResubmitted && r.Input != nil:
		id = "row.resubmitted-edited"
	}
	by := core.AskedBy(r.Actor)
	if r.Kind == core.KindProbed && w.before != nil && !w.before.State.Ended() && w.p != nil && r.Step >= 0 && r.Step < len(w.p.Steps) {
		by = say.Of("by.agent", "agent", w.p.Steps[r.Step].Agent)
	}
	return say.Of(id, "step", w.step(r.Step), "try", w.attempt(), "failure", w.failure(), "reason", w.reason(), "by", by, "state", r.State, "deadline", when(r.Deadline))
}

func (w *words) reason() string {
	if w.r.Reason == "" {
		return ""
	}
	return fmt.Sprintf(": %q", core.ShortText(w.r.Reason, 200))
}

func (w *words) decided() string {
	switch r := w.r; {
	case r.Next >= 0:
		id := "decided.do"
		if r.Undo {
			id = "decided.undo"
		}
		return say.Of(id, "step", w.step(r.Next), "try", r.NextAttempt, "at", when(r.Due))
	case r.State.Ended():
		return say.Of("decided.ends", "state", r.State)
	case r.State == core.StatePending:
		return say.Of("decided.parked")
	case r.Due != 0 && r.Step >= 0:
		return say.Of("decided.later", "step", w.step(r.Step), "at", when(r.Due))
	case r.Kind == core.KindUnserved || r.Kind == core.KindUndoUnserved:
		return say.Of("decided.waits")
	case r.State == core.StateUndoing:
		return say.Of("decided.undo-later")
	}
	return say.Of("decided.nothing")
}

// why is the rule by which the core decided, with its numbers.
func (w *words) why() string {
	if w.p == nil {
		return ""
	}
	if w.before != nil && w.r.Step >= 0 && w.r.Step < len(w.p.Steps) {
		if text := w.whyFailed(&w.p.Steps[w.r.Step]); text != "" {
			return text
		}
	}
	return w.whyNext()
}

// whyFailed is the rule for an attempt that failed.
func (w *words) whyFailed(ps *core.Step) string {
	r, id := w.r, ""
	switch r.Kind {
	case core.KindRefused, core.KindFailed, core.KindOverdue:
		switch {
		case w.before.State == core.StateUndoing:
			id = "rule.undoing"
		case r.Kind == core.KindRefused:
			id = "rule.refused"
		case r.Final():
			id = "rule.final"
		case r.StepStatus == core.StepWaiting && r.State == core.StatePending:
			id = "rule.pause"
		case r.StepStatus == core.StepWaiting:
			id = "rule.backoff"
		case w.attempt() < ps.AttemptsMax || ps.OnExhausted == core.PolicyWait:
			id = "rule.no-time"
		default:
			id = "rule.exhausted"
		}
	case core.KindProbed:
		switch {
		case r.StepStatus == core.StepDone:
			id = "rule.probed-done"
		case r.Code == 0:
			id = "rule.probed-undo"
		case r.Code == core.CodeAbsent:
			id = "rule.probed-absent"
		default:
			id = "rule.probed-unknown"
		}
	case core.KindLate:
		id = "rule.late"
		if r.Code != 0 {
			id = "rule.late-refused"
		}
	case core.KindUndoLate:
		id = "rule.undo-late"
	case core.KindUndoFailed, core.KindUndoOverdue:
		id = "rule.undo-failed"
	case core.KindUndoRefused:
		id = "rule.undo-refused"
	case core.KindUndoGaveUp:
		id = "rule.undo-gave-up"
	default:
		return ""
	}
	return say.Of(id, "policy", ps.OnExhausted, "n", w.attempt(), "most", ps.AttemptsMax, "pause", ps.Pause, "wait", backoffMost(ps, w.attempt()), "at", when(w.before.Deadline))
}

// whyNext is the rule by which the task goes on, waits or ends.
func (w *words) whyNext() string {
	r, was := w.r, core.StateProcessing
	if w.before != nil {
		was = w.before.State
	}
	late := w.before != nil && was != core.StateUndoing && r.State == core.StateUndoing && w.before.Deadline != 0 && r.At >= w.before.Deadline
	switch {
	case late || r.Kind == core.KindExpired && w.before != nil:
		return say.Of("rule.deadline", "at", when(w.before.Deadline))
	case r.Kind == core.KindResolved:
		return say.Of("rule.resolved", "by", core.AskedBy(r.Actor))
	case r.Kind == core.KindAsked:
		return say.Of("rule.asked")
	case r.Kind == core.KindWentBack:
		return say.Of("rule.went-back")
	case r.Next >= 0 && r.Undo && r.Kind == core.KindStarted:
		return say.Of("rule.undo-safe")
	case r.Next >= 0 && r.Undo:
		return say.Of("rule.undo-order")
	case r.Next >= 0:
		return w.whyStep(r.Next, was)
	case r.State == core.StateProcessed:
		return say.Of("rule.processed")
	case r.State == core.StateUndone:
		return say.Of("rule.undone")
	case r.State == core.StateError && r.Reason != "" && was == core.StateUndoing:
		return core.ShortText(r.Reason, 200)
	case r.State == core.StatePending && r.Due == 0:
		return say.Of("rule.parked")
	case r.State == core.StateUndoing && w.before != nil && w.before.Out() >= 0 && r.Step != w.before.Out():
		return say.Of("rule.undo-waits")
	}
	return ""
}

// afterNamed is how many steps a sentence names.
const afterNamed = 5

// whyStep says why the do of a step may leave.
func (w *words) whyStep(i int, was core.State) string {
	switch {
	case i >= len(w.p.Steps):
		return ""
	case was == core.StatePending:
		return say.Of("rule.room")
	case w.r.Kind == core.KindStarted:
		return say.Of("rule.wait-over")
	case w.r.Kind == core.KindResubmitted && w.r.Step >= 0:
		return say.Of("rule.resubmitted")
	case len(w.p.Steps[i].After) == 0:
		return say.Of("rule.first")
	case len(w.p.Steps[i].After) > afterNamed:
		return say.Of("rule.after-many", "n", len(w.p.Steps[i].After))
	}
	var names []string
	for _, a := range w.p.Steps[i].After {
		names = append(names, w.p.Steps[a].Name)
	}
	return say.Of("rule.after", "n", len(names), "names", strings.Join(names, ", "))
}

// backoffMost is how long the wait before the next attempt is at most.
func backoffMost(ps *core.Step, attempt int) string {
	return core.Backoff(ps.Backoff, ps.BackoffCap, attempt, 1).Round(time.Millisecond).String()
}

func when(i core.Instant) string { return i.Time().Format("2006-01-02T15:04:05.999Z07:00") }
