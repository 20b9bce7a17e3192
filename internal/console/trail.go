package console

import (
	"cmp"
	"fmt"
	"iter"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
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
	outside := map[int]bool{}        // an answer of an attempt is not known: it may have left something
	asked, resolved := false, false
	for r := range records {
		if r.Round != v.Round {
			continue
		}
		if r.Kind == core.KindUndoAsked || r.Kind == core.KindCancelled {
			asked, resolved = true, false
		}
		resolved = resolved || r.Kind == core.KindResolved
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
				step.Forward, step.Left = look{"question", say.Of("trail.unknown"), "warn"}, true
			}
		case core.SignalledWord:
			step.Forward = look{"clock", say.Of("trail.answered"), "calm"}
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
				step.Forward, step.Left = look{"question", say.Of("trail.failed-unknown"), "warn"}, true
			}
		case "undoing":
			step.Forward, step.Left = look{"check", "done or unknown", "good"}, true
			step.Back = look{"play", say.Of("trail.undoing"), "busy"}
		case core.GaveUpWord:
			step.Forward, step.Left = look{"check", "done or unknown", "good"}, true
			step.Back = look{"warning", say.Of("trail.gave-up"), "bad"}
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
	if t.Verdict = verdictOf(v, begun, undone, stands, unknown, asked); resolved && v.State.Ended() {
		t.Verdict = verdict{"minus", "calm", "Resolved as " + string(v.State), say.Of("trail.resolved") + effectsLeft(stands, unknown)}
	}
	return t
}

// verdictOf tells a failure that was rolled back from one that was not, by words and sign.
func verdictOf(v *core.View, begun, undone, stands, unknown int, asked bool) verdict {
	left := stands + unknown
	switch v.State {
	case core.StateProcessed:
		return verdict{"check", "good", "Done", say.Of("trail.done")}
	case core.StateUndone:
		if v.FailedStep == "" && asked {
			return verdict{"back", "calm", "Cancelled and undone", say.Of("trail.undone", "n", undone)}
		}
		return verdict{"back", "calm", "Failed and undone", say.Of("trail.undone", "n", undone)}
	case core.StateUndoing:
		return verdict{"play", "busy", "Being undone", say.Of("trail.undoing-left", "n", undone, "left", left)}
	case core.StateError:
		if undone > 0 || asked {
			return verdict{"warning", "bad", "Failed, partly undone", say.Of("trail.incomplete", "n", undone) + effectsLeft(stands, unknown)}
		}
		if left == 0 {
			return verdict{"cross", "bad", say.Of("trail.title-nothing"), say.Of("trail.nothing")}
		}
		return verdict{"warning", "bad", say.Of("trail.title-not"), say.Of("trail.not-undone") + effectsLeft(stands, unknown)}
	}
	return verdict{"play", "busy", "On its way", say.Of("trail.begun", "n", begun)}
}

// effectsLeft says what is left of steps: those that took effect, and those of which it is not known.
func effectsLeft(stands, unknown int) (text string) {
	if stands > 0 {
		text = " " + say.Of("trail.stands", "n", stands)
	}
	if unknown > 0 {
		text += " " + say.Of("trail.may-stand", "n", unknown)
	}
	return text
}
