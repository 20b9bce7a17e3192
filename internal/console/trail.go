package console

import (
	"cmp"
	"fmt"
	"iter"

	"duly.dev/duly/internal/core"
)

// verdict is what is left of a task, in words and a sign of its own shape.
type verdict struct {
	Icon, Class, Title, Text string
}

// trailStep is one step on the way forward and back.
type trailStep struct {
	Name     string
	Forward  look // what became of the step
	Back     look // what became of its undo; Icon empty: there was nothing to undo
	Evidence string
	Left     bool // an effect of it may be there
}

// trail is the way of a task forward and back.
type trail struct {
	Verdict verdict
	Steps   []trailStep
	Partial bool // older journal rows were not read: evidence may be missing
}

// newTrail says of each step whether what it did stands, is undone, or is not known, and by which evidence. records are
// journal rows in their order; partial: there are older ones.
func newTrail(p *core.Plan, v *core.View, records iter.Seq[*core.Record], partial bool) trail {
	t := trail{Partial: partial}
	newest := map[int]*core.Record{} // newest row about a step's end
	outside := map[int]bool{}        // an answer of a try is not known: it may have left something
	asked := false
	for r := range records {
		if r.Round != v.Round {
			continue
		}
		if r.Kind == core.KindUndoAsked || r.Kind == core.KindCancelled {
			asked = true
		}
		if r.Step < 0 || r.Kind == core.KindStarted {
			continue
		}
		if r.Kind != core.KindLate && !r.Evidence() {
			newest[r.Step] = r
		}
		switch r.Kind {
		case core.KindLate:
			outside[r.Step] = r.Code == 0
		case core.KindProbed:
			outside[r.Step] = outside[r.Step] && r.Code != core.CodeAbsent
		case core.KindFailed, core.KindOverdue:
			outside[r.Step] = true
		case core.KindRefused:
			outside[r.Step] = outside[r.Step] || r.EffectsPossibleUntil > r.At
		case core.KindUndone, core.KindUndoLate:
			outside[r.Step] = false
		}
	}
	begun, undone, stands, unknown, undoing := 0, 0, 0, 0, v.State == core.StateUndoing
	for i := range v.Steps {
		s := &v.Steps[i]
		step := trailStep{Name: s.Name}
		undoable := p == nil || i >= len(p.Steps) || p.Steps[i].Undoable
		r := newest[i]
		switch s.Status {
		case "waiting", "skipped":
			step.Forward = look{"minus", "not begun", "calm"}
			if s.Status == "skipped" && v.State != core.StateUndone {
				step.Forward.Word = "skipped"
			}
			if outside[i] {
				step.Forward, step.Left = look{"question", "unknown: may have taken effect", "warn"}, true
			}
		case core.SignalledWord:
			step.Forward = look{"clock", "not begun, its signal has come", "calm"}
		case "running":
			step.Forward, step.Left = look{"play", "at work", "busy"}, true
		case "done":
			step.Forward, step.Left = look{"check", "done", "good"}, undoable
			switch {
			case !undoable:
				step.Back = look{"minus", "nothing to undo: a " + cmp.Or(string(s.Kind), "check"), "calm"}
			case undoing:
				step.Back = look{"clock", "to be undone", "busy"}
			case v.State == core.StateError && asked:
				step.Back = look{"warning", "not undone", "bad"}
			}
		case "failed":
			step.Forward = look{"cross", "failed, left nothing", "calm"}
			if undoable && (outside[i] || r != nil && (r.Kind == core.KindOverdue || r.Kind == core.KindFailed)) {
				step.Forward, step.Left = look{"question", "failed, may have taken effect", "warn"}, true
			}
		case "undoing":
			step.Forward, step.Left = look{"check", "done or unknown", "good"}, true
			step.Back = look{"play", "undo is at work", "busy"}
		case core.GaveUpWord:
			step.Forward, step.Left = look{"check", "done or unknown", "good"}, true
			step.Back = look{"warning", "undo gave up: it is still there", "bad"}
		case "undone":
			step.Forward, step.Back = look{"check", "done or unknown", "calm"}, look{"back", "undone", "good"}
		}
		if r != nil {
			step.Evidence = fmt.Sprintf("row %d: %s", r.Seq, endWord(string(r.Kind)))
			if r.Actor != "" {
				step.Evidence += ", by " + r.Actor
			}
		} else if s.By != "" {
			step.Evidence = "by " + s.By
		}
		if step.Forward.Icon != "minus" {
			begun++
		}
		switch {
		case s.Status == "undone":
			undone++
		case step.Left && step.Forward.Icon == "question":
			unknown++
		case step.Left:
			stands++
		}
		t.Steps = append(t.Steps, step)
	}
	t.Verdict = verdictOf(v, begun, undone, stands, unknown, asked)
	return t
}

// verdictOf tells a failure that was rolled back from one that was not, by words and sign.
func verdictOf(v *core.View, begun, undone, stands, unknown int, asked bool) verdict {
	left := stands + unknown
	switch v.State {
	case core.StateProcessed:
		return verdict{"check", "good", "Done", "Every step has passed; what they did stands."}
	case core.StateUndone:
		if v.FailedStep == "" && asked {
			return verdict{"back", "calm", "Cancelled, rolled back", fmt.Sprintf("%s undone; nothing is left.", steps(undone))}
		}
		return verdict{"back", "calm", "Failed, rolled back", fmt.Sprintf("%s undone; nothing is left.", steps(undone))}
	case core.StateUndoing:
		return verdict{"play", "busy", "Rolling back", fmt.Sprintf("%s undone, %d to go.", steps(undone), left)}
	case core.StateError:
		if undone > 0 || asked {
			return verdict{"warning", "bad", "Failed, rollback incomplete", fmt.Sprintf("%s undone; %d may still be there, %d of them unknown.", steps(undone), left, unknown)}
		}
		if left == 0 {
			return verdict{"cross", "bad", "Failed, nothing to roll back", "No step has left anything."}
		}
		return verdict{"warning", "bad", "Failed, not rolled back", fmt.Sprintf("Nothing was undone; %d of the steps begun may be there, %d of them unknown.", left, unknown)}
	}
	return verdict{"play", "busy", "On its way", fmt.Sprintf("%s begun.", steps(begun))}
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}
