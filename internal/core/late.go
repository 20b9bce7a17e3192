package core

import (
	"cmp"

	"duly.dev/duly/internal/say"
)

// Late answers. An answer after its complete-by ends no do: it is kept as evidence, in a row that says what is known now and
// was not before. One that says nothing new is stale, so a step has at most one row of a late success and one of a late
// refusal in a round, and one of a late answer for each undo. docs/decisions/032-late-outcomes.md says why.

// late takes an answer that no command which is out waits for any more; why says what it is otherwise.
func (d *decision) late(why string) error {
	i, undo := d.t.silent(d.ev.Seq, d.at)
	if i < 0 || !d.t.Active() || d.t.WentBackAt != 0 { // in the time that is lost the step may have come further
		return d.stale(why)
	}
	s := &d.t.Steps[i]
	// A step with any other status has come to its end by an answer in time, a person's word or its undo.
	switch {
	case undo && d.ev.Code == 0 && s.Status == StepUndoing:
		d.undoneLate(i)
	case undo || s.Status != StepWaiting && s.Status != StepRunning && s.Status != StepFailed && s.Status != StepUndoing:
		return d.stale(why)
	case d.ev.Code == 0 && !s.Effect.known():
		d.evidence(i)
	case FinalCode(d.ev.Code) && !s.Effect.known() && d.onlyCopy(i):
		d.noEffect(i)
	default:
		return d.stale(why)
	}
	return nil
}

// LateOf is the step whose command of that number was not answered by its complete-by, in time before at, and whose late
// answer may still say something; -1: there is none.
func (t *Task) LateOf(seq int64, at Instant) int {
	i, _ := t.silent(seq, at)
	return i
}

// silent is LateOf, and whether the command was an undo.
func (t *Task) silent(seq int64, at Instant) (step int, undo bool) {
	if seq <= 0 {
		return -1, false
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		switch {
		case s.kind != kindCall:
		case s.Out == seq:
			if at < s.Due || s.again() && s.Status != StepUndoing { // a retry's number is that of the attempts before it
				return -1, false
			}
			return i, s.Status == StepUndoing
		case s.Effect.late == seq:
			return i, false
		case s.Status == StepUndoing && s.Effect.Asks == seq && s.Out == 0:
			return i, true
		}
	}
	return -1, false
}

// Silent are the rows of the newest do and undo of the step that were not answered by their complete-by, and whose late
// answer may still say something; 0: there is none.
func (s *StepState) Silent() (do, undo int64) {
	if s.Status == StepUndoing {
		undo = s.Effect.Asks
	}
	return max(0, s.Effect.late), undo
}

// onlyCopy reports whether the command that answers late is the only one by which the step can have an effect: the only do
// of the round, sent once.
func (d *decision) onlyCopy(i int) bool {
	s := &d.t.Steps[i]
	if s.Out == d.ev.Seq {
		return s.firstCopy()
	}
	return s.Out == 0 && s.Effect.copies == copyOnly && (s.Status == StepWaiting || s.Status == StepFailed || s.probing())
}

// firstCopy reports whether the do that is out is the only one that may have reached an agent.
func (s *StepState) firstCopy() bool {
	return s.Out != 0 && s.Effect.copies == copiesOne && !s.again() && s.Effect.unused()
}

// lateRow begins the row of a late answer. It leaves the step where it is.
func (d *decision) lateRow(kind Kind, i int) Record {
	r := d.record(kind, i)
	r.Code, r.Error, r.Result = d.ev.Code, cut(d.ev.Error), d.ev.Result
	return r
}

// evidence keeps what is known of the effect of a do now: its undo gets the result.
func (d *decision) evidence(i int) {
	r := d.lateRow(KindLate, i)
	d.keep(&r)
}

// keep closes a row that only says what is known.
func (d *decision) keep(r *Record) {
	d.t.applyRecord(r)
	d.out.Records = append(d.out.Records, *r)
	d.touchRow()
}

// noEffect keeps that the only do of a step was refused. A command that is out has still to come to its end, which
// is then no unknown one; otherwise nothing of the step is to be undone, and the task goes on with what is. An
// optional step would have been passed over by the end of its undo, which does not come: so this row does it. One
// that waits for its next attempt, or whose agent is asked, goes on with that.
func (d *decision) noEffect(i int) {
	s := &d.t.Steps[i]
	r := d.lateRow(KindLate, i)
	if s.Out != 0 {
		d.keep(&r)
		return
	}
	r.EffectsPossibleUntil, r.Due = 0, s.Due
	if s.Status == StepFailed && d.t.State == StateProcessing && d.p.Steps[i].OnExhausted == PolicySkip {
		r.StepStatus = StepSkipped
	}
	d.finish(&r, d.t.State)
}

// undoneLate ends the undo of a step by its late answer: whenever it came, the effect is gone.
func (d *decision) undoneLate(i int) {
	r := d.lateRow(KindUndoLate, i)
	r.StepStatus = StepUndone
	if d.t.State == StateProcessing {
		r.StepStatus = StepSkipped
	}
	d.finish(&r, d.t.State)
}

// Evidence reports whether a row only keeps that a do took effect: it ends no attempt.
func (r *Record) Evidence() bool {
	return r.Code == 0 && (r.Kind == KindLate || r.Kind == KindProbed && r.StepStatus != StepDone)
}

// applyLate keeps what a late answer to a do says.
func (t *Task) applyLate(r *Record) {
	s := &t.Steps[r.Step]
	s.Status = r.StepStatus
	if r.Code == 0 {
		s.Result = r.Result
		s.Effect.told(r.Kind == KindProbed)
		return
	}
	s.Effect.refused(s.Out != 0)
}

// applySilence keeps the number of a command that was not answered by its complete-by, and reports whether it is known all
// the same that it had no effect.
func (s *StepState) applySilence(r *Record, number int64) (none bool) {
	if number == 0 || s.kind != kindCall {
		return false
	}
	return s.Effect.silent(number, r.Kind != KindOverdue)
}

// numberOut is the number under which a command of the step has left: as the owner has it, or a replay.
func (s *StepState) numberOut() int64 { return cmp.Or(s.Out, s.Awaits) }

// known says what a late answer has told of a step.
func (w *sentence) known(i int) string {
	switch e := &w.t.Steps[i].Effect; {
	case e.known():
		return say.Of("why.known")
	case e.refusedLate():
		return say.Of("why.known.none")
	}
	return ""
}
