package sim

import (
	"fmt"
	"strings"

	"duly.dev/duly/internal/core"
)

// referee follows the journal of one task by rules of its own, knowing nothing
// of how the core came to it: one command is out at a time; only that one is
// answered, once, and before its complete-by; only after it is it overdue; time
// does not go back; what an operator accepted as done is not done again.
type referee struct {
	out  int64 // row that issued the command which is out; 0: none
	step int
	undo bool
	due  core.Instant
	at   core.Instant

	round int
	hand  [core.StepsMax]bool // by step: an operator has accepted it in this round

	waits [core.StepsMax]int64 // by step that waits for its agent: the row under whose number its retries leave
}

// take follows one row; answered is the row of the command that it ends by an
// agent's answer, or 0.
func (r *referee) take(j *core.Record) (answered int64, err error) {
	if j.At < r.at {
		return 0, fmt.Errorf("it is dated %d, before the row before it at %d", j.At, r.at)
	}
	r.at = j.At
	if j.Round != r.round {
		r.round = j.Round
		clear(r.hand[:])
	}
	if err := r.retry(j); err != nil {
		return 0, err
	}
	switch j.Kind {
	case core.KindDone, core.KindFailed, core.KindRefused:
		answered, err = r.answer(j, false)
	case core.KindUndone, core.KindUndoFailed, core.KindUndoRefused:
		answered, err = r.answer(j, true)
	case core.KindUndoGaveUp:
		switch {
		case r.out == 0: // it had waited for its agent for too long
		case j.Code != 0:
			answered, err = r.answer(j, true)
		default:
			err = r.silence(j, true)
		}
	case core.KindOverdue:
		err = r.silence(j, false)
	case core.KindUndoOverdue:
		err = r.silence(j, true)
	case core.KindUnserved, core.KindUndoUnserved:
		undo := j.Kind == core.KindUndoUnserved
		switch {
		case r.out == 0 && r.waits[j.Step] != 0 && undo: // an operator is told
		case j.Code != 0: // an agent that cannot take it
			answered, err = r.answer(j, undo)
		default:
			err = r.over(j, undo)
		}
		if j.State != core.StateUndoing || undo {
			r.waits[j.Step] = j.Seq
		}
	case core.KindAccepted:
		if r.out != 0 && r.step == j.Step {
			return 0, fmt.Errorf("it accepts step %d while row %d's command is out", j.Step+1, r.out)
		}
		r.hand[j.Step] = true
	case core.KindPoisoned:
		if j.Step >= 0 { // an owner without the plan cannot say which step was out: it still is
			r.out = 0
		}
	}
	if err == nil && j.Next >= 0 {
		if r.out != 0 {
			return 0, fmt.Errorf("it issues a command while row %d's is out", r.out)
		}
		if !j.Undo && r.hand[j.Next] {
			return 0, fmt.Errorf("it does step %d again, which was done by hand", j.Next+1)
		}
		r.out, r.step, r.undo, r.due = j.Seq, j.Next, j.Undo, j.Due
		if number := r.waits[j.Next]; number != 0 && j.Kind == core.KindStarted && j.Step == j.Next {
			r.out = number // a retry was heard
		}
		r.waits[j.Next] = 0
	}
	if j.State.Ended() || j.State == core.StatePending {
		clear(r.waits[:])
	}
	return answered, err
}

// retry takes a row that ends a retry which no row has issued: of a step that waits for
// its agent, under the number of the row that began the wait.
func (r *referee) retry(j *core.Record) error {
	if j.Step < 0 || r.waits[j.Step] == 0 || j.Kind == core.KindStarted {
		return nil
	}
	number := r.waits[j.Step]
	undo := false
	switch j.Kind {
	case core.KindUndone, core.KindUndoFailed, core.KindUndoRefused, core.KindUndoOverdue:
		undo = true
	case core.KindUndoUnserved, core.KindUndoGaveUp:
		undo = true
		if j.Code == 0 || !strings.HasPrefix(j.Actor, instance+"@") {
			return nil // nothing was out, or it was given back
		}
	case core.KindCancelled, core.KindUndoAsked, core.KindExpired, core.KindPoisoned:
		r.waits[j.Step] = 0
		return nil
	}
	if r.out != 0 {
		return fmt.Errorf("it ends a retry of step %d while row %d's command is out", j.Step+1, r.out)
	}
	r.out, r.step, r.undo, r.due = number, j.Step, undo, j.At+1
	if j.Kind == core.KindOverdue || j.Kind == core.KindUndoOverdue {
		r.due = j.At
	}
	r.waits[j.Step] = 0
	return nil
}

func (r *referee) answer(j *core.Record, undo bool) (int64, error) {
	if r.out != 0 && j.At >= r.due {
		return 0, fmt.Errorf("it takes an answer at %d to a command whose time was over at %d", j.At, r.due)
	}
	out := r.out
	return out, r.over(j, undo)
}

func (r *referee) silence(j *core.Record, undo bool) error {
	if r.out != 0 && j.At < r.due {
		return fmt.Errorf("it calls a command overdue at %d that has time until %d", j.At, r.due)
	}
	return r.over(j, undo)
}

// over ends the command that is out.
func (r *referee) over(j *core.Record, undo bool) error {
	if r.out == 0 || r.step != j.Step || r.undo != undo {
		return fmt.Errorf("a row %s of step %d, but the command out is row %d, step %d, undo %v", j.Kind, j.Step+1, r.out, r.step+1, r.undo)
	}
	r.out = 0
	return nil
}
