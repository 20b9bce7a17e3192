package sim

import (
	"fmt"

	"duly.dev/duly/internal/core"
)

// Late answers, and what they may say.

// late judges a row of a late answer to a do: it comes after a complete-by that has passed, ends nothing, and says something
// that no row has said before.
func (s *refereed) late(j *core.Record, p *core.Plan) error {
	switch {
	case s.silent == 0 && (s.out == 0 || s.undo || j.At < s.due):
		return fmt.Errorf("it keeps a late answer of step %d, whose do had time or was answered", j.Step+1)
	case j.Code == 0 && s.known:
		return fmt.Errorf("it keeps a second late answer of step %d", j.Step+1)
	case j.Code != 0 && s.dos != 1:
		return fmt.Errorf("it takes a late refusal of step %d for all of %d tries", j.Step+1, s.dos)
	case j.Code != 0 && (s.open || s.done):
		return fmt.Errorf("it takes a late refusal of step %d, which is %s", j.Step+1, j.StepStatus)
	case j.StepStatus == core.StepDone || j.StepStatus == core.StepUndone:
		return fmt.Errorf("a late answer leaves step %d %s", j.Step+1, j.StepStatus)
	case j.StepStatus == core.StepSkipped && (j.Code == 0 || p == nil || p.Steps[j.Step].OnExhausted != core.PolicySkip):
		return fmt.Errorf("a late answer skips step %d", j.Step+1)
	}
	if j.Code != 0 && s.out == 0 { // what begins after it, in the same row or later, is again the only one
		s.dos = 0
	}
	s.known = s.known || j.Code == 0
	s.ok = s.ok || j.StepStatus == core.StepSkipped
	return nil
}

// lateUndo judges a row by which a late answer undoes a step: of an undo whose time was over.
func (s *refereed) lateUndo(j *core.Record) error {
	if s.silentUndo == 0 && (s.out == 0 || !s.undo || j.At < s.due) && s.waits == 0 {
		return fmt.Errorf("it takes a late answer to an undo of step %d which had time or was answered", j.Step+1)
	}
	if s.out != 0 && j.At < s.due {
		return fmt.Errorf("it ends the undo of row %d, which has time until %d, by the late answer of another", s.out, s.due)
	}
	s.out, s.waits, s.silentUndo, s.left = 0, 0, 0, false
	return nil
}

// overWithoutEffect reports whether a row says that a do was refused for good of which no copy is under way any more.
func overWithoutEffect(j *core.Record) bool {
	return j.Kind == core.KindRefused && j.EffectsPossibleUntil <= j.At
}

// checkLate: an agent gave the answer that the row keeps, and a refusal says that there is no effect only where one copy of
// one do had left.
func (w *World) checkLate(r *row, j *core.Record) {
	t, said, copies := &r.task, false, 0
	for i := range r.journal[:j.Seq-1] {
		is := &r.journal[i]
		if is.Step == j.Step && is.Round == j.Round && (overWithoutEffect(is) || is.Kind == core.KindLate && is.Code != 0 && is.StepStatus != core.StepRunning) {
			copies = 0
		}
		wait := is.Next < 0 && is.Step == j.Step && (is.Kind == core.KindUnserved || is.Kind == core.KindUndoUnserved)
		undo := is.Undo || is.Kind == core.KindUndoUnserved
		if is.Round != j.Round || undo != (j.Kind == core.KindUndoLate) || is.Next != j.Step && !wait {
			continue
		}
		at := commandRef{t.Partition, t.Number, is.Seq, r.commits[i]}
		said = said || w.said(at, j)
		if !wait {
			copies += w.copiesKnown(at, j.At)
		}
	}
	if !said {
		w.wrong(t.Partition, t.ID, "row %d is a late answer that no agent gave", j.Seq)
	}
	if j.Kind == core.KindUndoLate || j.Code == 0 {
		return
	}
	key := core.Key(t.ID, planBook{w}.Plan(t.Type, t.PlanVersion).Steps[j.Step].Name, j.Round)
	if copies > 1 {
		w.wrong(t.Partition, t.ID, "row %d takes %s to have no effect, and %d copies of its do have left", j.Seq, key, copies)
	}
	if w.books.live[key] && !w.forgotten(t.Partition, key) {
		w.wrong(t.Partition, t.ID, "row %d takes %s to have no effect, and it has", j.Seq, key)
	}
}

// copiesKnown is how many copies of a command the owner that takes an answer of that time for the only one had to count on. A
// former owner, whose successor the database has forgotten, does not know of that one's, unless it stood still when they left.
func (w *World) copiesKnown(at commandRef, answered core.Instant) int {
	slept := w.senders[at].slept
	if slept != 0 && w.backs > 0 && answered <= slept || slept == 0 && w.forgot.former[at.partition] {
		return min(1, w.sends[at])
	}
	return w.sends[at]
}

// refusedLate reports whether a later row says that the do of row i, the only one of its step, was refused.
func (r *row) refusedLate(i, step int) bool {
	for k := i + 1; k < len(r.journal); k++ {
		if j := &r.journal[k]; j.Kind == core.KindLate && j.Step == step && j.Code != 0 && j.Round == r.journal[i].Round {
			return true
		}
	}
	return false
}
