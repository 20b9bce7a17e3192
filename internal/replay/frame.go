package replay

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
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
			if seq >= from && !yield(frame(p, &saved.Journal[seq-1], before, after), nil) {
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

func frame(p *core.Plan, r *core.Record, before, after *core.Task) Frame {
	w := words{p: p, r: r, before: before}
	return Frame{
		Seq: r.Seq, At: r.At, Kind: r.Kind, Actor: r.Actor, Happened: w.happened(), Decided: w.decided(), Why: w.why(),
		Sentence: after.Sentence(p, r.At), Task: after,
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
		return "a step that is not known"
	}
	return "step " + w.p.Steps[i].Name
}

// failure is the code and the text of the row's failure.
func (w *words) failure() string {
	switch {
	case w.r.Code != 0 && w.r.Error != "":
		return fmt.Sprintf("%d, %q", w.r.Code, core.ShortText(w.r.Error, 200))
	case w.r.Code != 0:
		return fmt.Sprintf("%d", w.r.Code)
	case w.r.Error != "":
		return fmt.Sprintf("%q", core.ShortText(w.r.Error, 200))
	}
	return "no text"
}

// attempt is the number of the try that the row ends.
func (w *words) attempt() int {
	if w.before != nil && w.r.Step >= 0 && w.r.Step < len(w.before.Steps) {
		return w.before.Steps[w.r.Step].Attempt
	}
	return w.r.Attempt
}

func (w *words) happened() string {
	step := w.step(w.r.Step)
	switch w.r.Kind {
	case core.KindSubmitted:
		return "the task was submitted"
	case core.KindStarted:
		if w.r.StepStatus == core.StepRunning && w.r.Next < 0 {
			return "the key of " + step + " was too old to be used again"
		}
		return "the time to go on had come"
	case core.KindDone:
		return "try " + fmt.Sprint(w.attempt()) + " of " + step + " answered: done"
	case core.KindRefused, core.KindFailed:
		return fmt.Sprintf("try %d of %s answered: failed (%s)", w.attempt(), step, w.failure())
	case core.KindOverdue:
		return fmt.Sprintf("try %d of %s was not answered by its complete-by", w.attempt(), step)
	case core.KindUnserved:
		if w.r.Code == core.CodeTooEarly {
			return "a try of " + step + " is still at work (" + w.failure() + ")"
		}
		return "no agent took the command of " + step + " (" + w.failure() + ")"
	case core.KindUndone:
		return "the undo of " + step + " answered: undone"
	case core.KindUndoRefused, core.KindUndoFailed:
		return fmt.Sprintf("try %d of the undo of %s answered: failed (%s)", w.attempt(), step, w.failure())
	case core.KindUndoOverdue:
		return fmt.Sprintf("try %d of the undo of %s was not answered by its complete-by", w.attempt(), step)
	case core.KindUndoUnserved:
		return "no agent took the undo of " + step + " (" + w.failure() + ")"
	case core.KindLate:
		if w.r.Code != 0 {
			return fmt.Sprintf("the only do of %s answered after its complete-by: refused (%s)", step, w.failure())
		}
		return "a do of " + step + " answered after its complete-by: done"
	case core.KindProbed:
		by := "the agent of " + step
		if w.before != nil && w.before.State.Ended() {
			by = "an operator"
		}
		switch w.r.Code {
		case 0:
			return by + " said that the do of " + step + " took effect"
		case core.CodeAbsent:
			return by + " said that the do of " + step + " had no effect"
		}
		return "the agent of " + step + " did not say what became of its do"
	case core.KindUndoLate:
		return "the undo of " + step + " answered after its complete-by: undone"
	case core.KindUndoGaveUp:
		return "the undo of " + step + " had used its attempts or its time (" + w.failure() + ")"
	case core.KindExpired:
		if w.r.StepStatus == core.StepFailed {
			return step + " could not be tried again" + w.reason()
		}
		return "the task's deadline passed"
	case core.KindCancelled:
		return "the task was cancelled" + w.reason()
	case core.KindUndoAsked:
		return "an undo was asked for" + w.reason()
	case core.KindResubmitted:
		if w.r.Input != nil && len(w.r.Result) > 0 {
			return "the task was resubmitted with another input, and what was answered for the old one is void" + w.reason()
		}
		if w.r.Input != nil {
			return "the task was resubmitted with another input" + w.reason()
		}
		return "the task was resubmitted" + w.reason()
	case core.KindAccepted:
		return step + " was accepted as done" + w.reason()
	case core.KindResolved:
		return "the task was resolved by hand" + w.reason()
	case core.KindExtended:
		return "the deadline was moved" + w.reason()
	case core.KindPoisoned:
		return "the task could not go on (" + w.failure() + ")"
	case core.KindMigrated:
		return "the task was moved to another version of its plan" + w.reason()
	case core.KindSkipped:
		return step + " is not wanted: its condition is false"
	case core.KindSignalled:
		return "the answer to " + step + " came before it began"
	case core.KindResult:
		return "the task's own result was made"
	case core.KindAsked:
		return "the supervisor asked whether it is late"
	case core.KindWentBack:
		return "the database went back in time: steps may have run that the journal does not know"
	}
	return "a row of kind " + string(w.r.Kind)
}

func (w *words) reason() string {
	if w.r.Reason == "" {
		return ""
	}
	return fmt.Sprintf(": %q", core.ShortText(w.r.Reason, 200))
}

func (w *words) decided() string {
	switch r := w.r; {
	case r.Next >= 0 && r.Undo:
		return fmt.Sprintf("the undo of %s leaves, try %d, to be answered by %s", w.step(r.Next), r.NextAttempt, when(r.Due))
	case r.Next >= 0:
		return fmt.Sprintf("the do of %s leaves, try %d, to be answered by %s", w.step(r.Next), r.NextAttempt, when(r.Due))
	case r.State.Ended():
		return "the task ends " + string(r.State)
	case r.State == core.StatePending:
		return "the task is parked"
	case r.Due != 0 && r.Step >= 0:
		return fmt.Sprintf("the next try of %s may leave at %s", w.step(r.Step), when(r.Due))
	case r.Kind == core.KindUnserved || r.Kind == core.KindUndoUnserved:
		return "the step waits for its agent; that is no attempt"
	case r.State == core.StateUndoing:
		return "the undo goes on when no do can take effect any more"
	}
	return "nothing else changes"
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

// whyFailed is the rule for a try that failed.
func (w *words) whyFailed(ps *core.Step) string {
	r := w.r
	switch r.Kind {
	case core.KindRefused:
		if w.before.State == core.StateUndoing {
			return undoneAlready
		}
		return "a refusal is final, and what it leads to is the step's policy: " + string(ps.OnExhausted)
	case core.KindFailed, core.KindOverdue:
		switch tries := fmt.Sprintf("%d of %d tries are used", w.attempt(), ps.AttemptsMax); {
		case w.before.State == core.StateUndoing:
			return undoneAlready
		case r.Final():
			return "the same would fail again, and may have had an effect; what it leads to is the step's policy: " + string(ps.OnExhausted)
		case r.StepStatus == core.StepWaiting && r.State == core.StatePending:
			return tries + ", and the policy is pause: " + ps.Pause.String()
		case r.StepStatus == core.StepWaiting:
			return tries + "; the backoff is drawn from " + backoffRange(ps, w.attempt())
		case w.attempt() < ps.AttemptsMax || ps.OnExhausted == core.PolicyWait:
			return tries + ", but the deadline, " + when(w.before.Deadline) + ", leaves no time for another"
		default:
			return tries + ", and the policy is " + string(ps.OnExhausted)
		}
	case core.KindLate:
		if r.Code != 0 {
			return "its command was sent once and no other try was: there is no effect, and nothing to undo"
		}
		return "a late answer never completes a step: it is kept, and an undo of the step has its result"
	case core.KindProbed:
		switch {
		case r.StepStatus == core.StepDone:
			return "the step is done: its agent knows the effect, and there is time"
		case r.Code == 0:
			return "the step is not wanted any more: its undo has the result"
		case r.Code == core.CodeAbsent:
			return "there is no effect: the step is tried again, or fails by its policy"
		}
		return "its agent had time until then: the step goes on as one of which it is not known"
	case core.KindUndoLate:
		return "an effect that is gone is gone, whenever that is known"
	case core.KindUndoFailed, core.KindUndoOverdue:
		return "an undo is tried until its attempts or its time are used up"
	case core.KindUndoRefused:
		return "a refusal of an undo is final: what the step left stays, and the task ends in error when all else is undone"
	case core.KindUndoGaveUp:
		return "what the step left stays, and the task ends in error when all else is undone"
	}
	return ""
}

const undoneAlready = "the task is being undone already, so the step is not tried again"

// whyNext is the rule by which the task goes on, waits or ends.
func (w *words) whyNext() string {
	r, was := w.r, core.StateProcessing
	if w.before != nil {
		was = w.before.State
	}
	late := w.before != nil && was != core.StateUndoing && r.State == core.StateUndoing && w.before.Deadline != 0 && r.At >= w.before.Deadline
	switch {
	case late || r.Kind == core.KindExpired && w.before != nil:
		return "the task's deadline was " + when(w.before.Deadline) + ": what is begun is undone"
	case r.Kind == core.KindResolved:
		return "a person said so; no step is tried and none is undone"
	case r.Kind == core.KindAsked:
		return "nothing was late yet"
	case r.Kind == core.KindWentBack:
		return "every step counts as one that may have taken effect; it is done again by the same key"
	case r.Next >= 0 && r.Undo && r.Kind == core.KindStarted:
		return "no do of the step can take effect any more"
	case r.Next >= 0 && r.Undo:
		return "what was done last is undone first"
	case r.Next >= 0:
		return w.whyStep(r.Next, was)
	case r.State == core.StateProcessed:
		return "every step is done"
	case r.State == core.StateUndone:
		return "nothing of it is left to undo"
	case r.State == core.StateError && r.Reason != "" && was == core.StateUndoing:
		return core.ShortText(r.Reason, 200)
	case r.State == core.StatePending && r.Due == 0:
		return "the agent of the next step takes no command now: it has as many as it may, or is paused"
	case r.State == core.StateUndoing && w.before != nil && w.before.Out() >= 0 && r.Step != w.before.Out():
		return "a command is out: its answer, or its complete-by, comes first"
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
		return "its agent takes commands again"
	case w.r.Kind == core.KindStarted:
		return "the wait before this try is over"
	case w.r.Kind == core.KindResubmitted && w.r.Step >= 0:
		return "the task goes on at the step that stopped it"
	case len(w.p.Steps[i].After) == 0:
		return "no step has to come before it"
	case len(w.p.Steps[i].After) > afterNamed:
		return fmt.Sprintf("all %d steps that have to come before it are done", len(w.p.Steps[i].After))
	}
	var names []string
	for _, a := range w.p.Steps[i].After {
		names = append(names, w.p.Steps[a].Name)
	}
	return "what has to come before it is done: " + strings.Join(names, ", ")
}

// backoffRange is from where to where the wait before the next try is drawn.
func backoffRange(ps *core.Step, attempt int) string {
	return "0s to " + core.Backoff(ps.Backoff, ps.BackoffCap, attempt, 1).Round(time.Millisecond).String()
}

func when(i core.Instant) string { return i.Time().Format("2006-01-02T15:04:05.999Z07:00") }
