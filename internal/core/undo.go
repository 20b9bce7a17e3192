package core

import (
	"cmp"
	"time"
)

// The undo of a task: begun by a person or by a failure, step by step, until
// nothing is left, or operator action is required.

// An operator is told that an undo is in trouble after so many failed attempts, or when it
// has not come to its end so long after its first.
const (
	undoAlertAttempts = 10
	undoAlertAfter    = time.Minute
)

func (s *Step) undoPatience() time.Duration {
	return cmp.Or(s.UndoPatience, defaultUndoPatience)
}

// undoBackoff is the wait before attempt number attempt+1 of an undo.
func (s *Step) undoBackoff(attempt int, rand float64) time.Duration {
	most := cmp.Or(s.UndoBackoffCap, max(s.BackoffCap, defaultUndoBackoffCap))
	return Backoff(s.Backoff, most, attempt, rand)
}

// undo begins to undo the task, or begins again where an undo gave up.
func (d *decision) undo() error {
	kind := KindCancelled
	if d.ev.Kind == EventUndo {
		kind = KindUndoAsked
	}
	switch d.t.State {
	case StateUndone:
		if kind == KindUndoAsked && d.ev.Step != "" {
			return d.undoOnceMore()
		}
		return d.stale("it is undone already or about to be")
	case StateUndoing:
		return d.stale("it is undone already or about to be")
	case StateProcessed:
		// A cancel stops what is not done yet. That what is done be undone is said by an undo.
		if kind == KindCancelled {
			return d.stale("it is too late to cancel")
		}
	}
	if d.ev.Step != "" {
		return d.notAllowed("only the undo of a task that is undone names a step")
	}
	if err := d.foundUndone(); err != nil {
		return err
	}
	d.noteBefore()
	d.noteFound(-1)
	for i := range d.t.Steps {
		if s := &d.t.Steps[i]; s.again() && s.Status == StepUndoing {
			d.heard(i) // of an optional step: its undo goes on
		}
	}
	step := d.t.awaiting() // its wait ends with this row
	for i := range d.t.Steps {
		if s := &d.t.Steps[i]; s.Status == StepUndoing && s.Out == 0 {
			step = i
		}
	}
	r := d.record(kind, step)
	if step < 0 || r.StepStatus == StepUndoing {
		r.Attempt = 0
	}
	d.finish(&r, StateUndoing)
	return nil
}

// undoOnceMore undoes one step of a task that is undone once more, because the step's service says that its effect stands,
// whatever the journal says of it. An effect that is possible now is what the row tells replays.
func (d *decision) undoOnceMore() error {
	i := d.p.StepIndex(d.ev.Step)
	switch {
	case i < 0:
		return d.notAllowed("its plan has no step " + QuoteShort(d.ev.Step))
	case !d.p.Steps[i].Undoable:
		return d.notAllowed("step " + d.ev.Step + " is a check and leaves no effect")
	}
	if err := d.foundUndone(); err != nil {
		return err
	}
	d.noteBefore()
	d.noteFound(-1)
	r := d.record(KindUndoAsked, i)
	r.Attempt, r.EffectsPossibleUntil = 0, max(r.EffectsPossibleUntil, d.at)
	if r.StepStatus == StepSkipped {
		r.StepStatus = StepWaiting
	}
	d.finish(&r, StateUndoing)
	return nil
}

// backward undoes, last steps first, whatever may have left an effect. An undo leaves only when no do is at an
// agent, and none of its step can still take effect. When nothing more can be undone, what was left makes the task
// an error. Undos whose key is too old give up first, wherever they stand: their key does not get younger until
// their turn, and what they came after need not wait for them.
func (d *decision) backward() {
	t := d.t
	for i := t.undoKeyOver(d.p, d.at); i >= 0; i = t.undoKeyOver(d.p, d.at) {
		d.endUndoKey(i)
	}
	open := false
	for i, n := range t.ahead(d.p) {
		if open = true; n.verb == verbUndo {
			d.tryUndo(i)
		}
	}
	if open {
		return
	}
	t.State = StateUndone
	if left := t.left(d.p); left != "" {
		t.State = StateError
		d.row().Reason = cut(left)
	}
}

// tryUndo lets the undo of step i leave if it may, and is not out.
func (d *decision) tryUndo(i int) {
	switch s := &d.t.Steps[i]; {
	case s.undoOut():
	case d.t.undoWhen(i) > d.at:
	case d.t.undoOld(d.p, i, d.at):
		d.endUndoKey(i)
	case s.undoAwaits():
		d.again(i)
	default:
		d.issue(i, true)
	}
}

// left names the steps whose effects may still be there because their undo gave up, and
// why it did; empty: there are none.
func (t *Task) left(p *Plan) string {
	text := ""
	for i := range t.Steps {
		if t.Steps[i].Left == "" {
			continue
		}
		if text != "" {
			text += "; "
		}
		text += gaveUpBegin + p.Steps[i].Name + " gave up: " + t.Steps[i].Left
	}
	return text
}

// undone ends the undo of one step; backward goes on with the one before it.
func (d *decision) undone(i int) {
	r := d.record(KindUndone, i)
	r.StepStatus = StepUndone
	if d.t.State == StateProcessing {
		r.StepStatus = StepSkipped // it is optional, and the task goes on without it
	}
	d.finish(&r, d.t.State)
}

// undoFailed ends an attempt of undo that was answered with an error.
func (d *decision) undoFailed(i int) {
	kind := KindUndoFailed
	if FinalCode(d.ev.Code) {
		kind = KindUndoRefused
	}
	r := d.record(kind, i)
	r.Code, r.Error = d.ev.Code, cut(d.ev.Error)
	d.afterUndoFailure(&r, i, kind == KindUndoRefused)
}

// afterUndoFailure tries the undo again or, when that was refused for good, or its
// attempts or its time are used up, leaves the step as it is and goes on with the others.
func (d *decision) afterUndoFailure(r *Record, i int, final bool) {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	r.StepStatus = StepUndoing
	// The last attempt leaves when the undo's time is over: what is repaired shortly before is still noticed.
	end, ends := s.Since.Add(ps.undoPatience()), d.t.undoKeyEnds(d.p, i)
	next := min(d.at.Add(ps.undoBackoff(s.Attempt, d.ev.Rand)), end)
	switch {
	case final: // the row says it by its kind
	// The next attempt would use a key that its service may have forgotten, so that none is waited for.
	case ends != 0 && next >= ends:
		r.Kind, r.Error = KindUndoGaveUp, cut(r.Error+"; "+d.t.oldKey(d.p, i, true))
	case d.at >= end || ps.UndoAttemptsMax != 0 && s.Attempt >= ps.UndoAttemptsMax:
		r.Kind = KindUndoGaveUp
	default:
		d.alert(r, i)
		r.Due = next
	}
	if r.Due == 0 && d.t.State == StateProcessing {
		d.endWaits(i) // the task stops: see settle
	}
	d.finish(r, d.t.State)
}

// alert tells an operator, once for each undo that is asked for, that the undo of step i is in trouble. The reason
// of the row is how replays know it: see applyToStep.
func (d *decision) alert(r *Record, i int) {
	s := &d.t.Steps[i]
	if s.Alerted || s.Attempt < undoAlertAttempts && d.at < s.Since.Add(undoAlertAfter) {
		return
	}
	if r.Reason == "" {
		r.Reason = "the undo of step " + d.p.Steps[i].Name + " is in trouble and goes on"
	}
	d.out.Effects = append(d.out.Effects, Effect{Kind: EffectAlert, Step: i, Attempt: s.Attempt, Seq: r.Seq})
}

// undoAlarm notes that an undo has waited for its agent so long that an operator is told, or that it gives up. Its
// retries have no rows, so that no failure would say so. When an operator is told the wait goes on in this row,
// with the retry that is next.
func (d *decision) undoAlarm(i int) {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	r := d.record(KindUndoUnserved, i)
	r.Code, r.Error = int(s.Said), "no agent takes the undo on "+ps.Agent
	if old := d.t.undoOld(d.p, i, d.at); old || d.at >= d.t.undoEnd(d.p, i) {
		r.Kind = KindUndoGaveUp
		if old {
			r.Error = cut(d.t.oldKey(d.p, i, true))
		}
		if d.t.State == StateProcessing {
			d.endWaits(i)
		}
		d.finish(&r, d.t.State)
		return
	}
	d.alert(&r, i)
	d.retryAt = max(s.Due, d.at)
	d.finish(&r, d.t.State)
}
