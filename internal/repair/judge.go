package repair

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// textMax bounds the text of a member's outcome, in bytes.
const textMax = 500

// verdict is what a member has come to.
type verdict struct {
	outcome     operate.Outcome // OutcomeAsked: nothing yet
	text        string
	fingerprint string
	still       bool // the task is as it was when the membership was frozen
}

// judge says what a member that was asked has come to. Done is what has passed or was undone, never what was only
// asked.
func judge(r *operate.Request, m *operate.Member, s *operate.Standing) verdict {
	switch {
	case s.Missing:
		return verdict{outcome: operate.OutcomeSkipped, text: say.Of("repair.forgotten")}
	case r.Action == operate.ActionMigrate && s.PlanVersion == r.Version:
		return verdict{outcome: operate.OutcomeDone}
	case r.Action == operate.ActionMigrate: // whatever it did meanwhile
		return verdict{outcome: operate.OutcomeAsked, still: true}
	case s.Seq == m.Seq: // the row may be of a moment before the journal, and say less
		return verdict{outcome: operate.OutcomeAsked, still: true}
	case !s.Asked: // the owner refuses what is about an earlier row
		return verdict{outcome: operate.OutcomeSkipped, text: say.Of("repair.changed", "state", s.State)}
	}
	failed := verdict{outcome: operate.OutcomeFailedAgain, text: core.ShortText(s.Text, textMax), fingerprint: s.Fingerprint}
	if failed.text == "" {
		failed.text = say.Of("repair.state", "state", s.State)
	}
	switch r.Action {
	case operate.ActionUndo:
		switch s.State {
		case core.StateUndone:
			return verdict{outcome: operate.OutcomeDone}
		case core.StateUndoing:
			return verdict{outcome: operate.OutcomeAsked}
		}
		return failed // its undo gave up, or another person stepped in
	case operate.ActionResolve:
		if s.State == r.As {
			return verdict{outcome: operate.OutcomeDone}
		}
		return failed
	}
	switch {
	case s.Passed, s.State == core.StateProcessed:
		return verdict{outcome: operate.OutcomeDone}
	case s.State.Ended():
		return failed
	}
	return verdict{outcome: operate.OutcomeAsked} // it runs, waits, or is undone; then it has failed again
}

// tally moves one member from an outcome to another.
func tally(t *operate.Tally, from, to operate.Outcome) {
	*t.Of(from)--
	*t.Of(to)++
}
