package core

// The undo of a task: begun by a person or by a failure, step by step, until
// nothing is left or a person must look.

// undoUnservedFactor: an undo that nobody is there to hear is tried this many
// times its attempts before a person is called.
const undoUnservedFactor = 10

// undo begins to undo the task, or begins again where an undo gave up.
func (d *decision) undo() error {
	kind := KindCancelled
	if d.ev.Kind == EventUndo {
		kind = KindUndoAsked
	}
	switch d.t.State {
	case StateUndoing, StateUndone:
		return d.stale("it is undone already or about to be")
	case StateProcessed:
		if kind == KindCancelled {
			return d.stale("it is too late to cancel")
		}
	}
	stuck := -1
	for i := range d.t.Steps {
		if d.t.Steps[i].Status == StepUndoing {
			stuck = i
		}
	}
	r := d.record(kind, stuck)
	r.Attempt = 0
	d.finish(&r, StateUndoing)
	return nil
}

// backward undoes, last step first, whatever may have left an effect. An undo
// leaves only when no do of its step can still take effect.
func (d *decision) backward(r *Record) {
	t := d.t
	if t.Out() >= 0 {
		return // a do is still out: its answer, or its complete-by, comes first
	}
	i := t.nextUndo(d.p)
	if i < 0 {
		t.State = StateUndone
		return
	}
	s := &t.Steps[i]
	switch {
	case s.Quiet > d.at:
		d.wakeAt(s.Quiet)
	case s.Status == StepUndoing && s.Due > d.at:
		d.wakeAt(s.Due)
	default:
		d.issue(r, i, true)
	}
}

// undone ends the undo of one step; backward goes on with the one before it.
func (d *decision) undone(i int) {
	r := d.record(KindUndone, i)
	r.StepStatus = StepUndone
	d.finish(&r, d.t.State)
}

// undoFailed ends a try of undo that was answered with an error.
func (d *decision) undoFailed(i int) {
	kind := KindUndoFailed
	if FinalCode(d.ev.Code) {
		kind = KindUndoRefused
	}
	r := d.record(kind, i)
	r.Code, r.Error = d.ev.Code, cut(d.ev.Error)
	d.afterUndoFailure(&r, i, kind == KindUndoRefused)
}

// afterUndoFailure tries the undo again or, when it must give up, calls a
// person: what is left is never hidden.
func (d *decision) afterUndoFailure(r *Record, i int, final bool) {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	r.StepStatus = StepUndoing
	if final || s.Attempt >= ps.UndoAttemptsMax {
		if r.Reason == "" {
			r.Reason = "the undo of step " + ps.Name + " gave up"
		}
		d.finish(r, StateError)
		return
	}
	r.Due = d.at.Add(backoff(ps, s.Attempt, d.ev.Rand))
	d.finish(r, StateUndoing)
}

// undoUnserved waits for an undo agent that is not there, at length, but not for
// ever: a task that nobody can undo needs a person.
func (d *decision) undoUnserved(i int, next Instant) {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	r := d.record(KindUndoUnserved, i)
	r.Error = "no agent listens on " + ps.Agent
	r.Attempt = s.Attempt - 1
	if s.Unserved+1 >= undoUnservedFactor*ps.UndoAttemptsMax {
		r.Reason = "the undo of step " + ps.Name + " gave up: no agent"
		d.finish(&r, StateError)
		return
	}
	r.Due = next
	d.finish(&r, StateUndoing)
}
