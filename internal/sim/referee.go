package sim

import (
	"fmt"

	"duly.dev/duly/internal/core"
)

// referee follows the journal of one task by rules of its own, knowing nothing
// of how the core came to it: one command is out at a time; only that one is
// answered, once, and before its complete-by; only after it is it overdue; time
// does not go back.
type referee struct {
	out  int64 // row that issued the command which is out; 0: none
	step int
	undo bool
	due  core.Instant
	at   core.Instant
}

// take follows one row; answered is the row of the command that it ends by an
// agent's answer, or 0.
func (r *referee) take(j *core.Record) (answered int64, err error) {
	if j.At < r.at {
		return 0, fmt.Errorf("it is dated %d, before the row before it at %d", j.At, r.at)
	}
	r.at = j.At
	switch j.Kind {
	case core.KindDone, core.KindFailed, core.KindRefused:
		answered, err = r.answer(j, false)
	case core.KindUndone, core.KindUndoFailed, core.KindUndoRefused:
		answered, err = r.answer(j, true)
	case core.KindOverdue:
		err = r.silence(j, false)
	case core.KindUndoOverdue:
		err = r.silence(j, true)
	case core.KindUnserved:
		err = r.over(j, false)
	case core.KindUndoUnserved:
		err = r.over(j, true)
	case core.KindPoisoned:
		if j.Step >= 0 { // an owner without the plan cannot say which step was out: it still is
			r.out = 0
		}
	}
	if err == nil && j.Next >= 0 {
		if r.out != 0 {
			return 0, fmt.Errorf("it issues a command while row %d's is out", r.out)
		}
		r.out, r.step, r.undo, r.due = j.Seq, j.Next, j.Undo, j.Due
	}
	return answered, err
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
