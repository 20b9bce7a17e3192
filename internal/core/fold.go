package core

// fold changes t as r says. Apply makes the same two calls with its decision
// about what comes next between them, so a replayed task equals the live one.
func (t *Task) fold(r *Record) {
	t.foldBegin(r)
	t.foldEnd(r)
}

// foldBegin keeps what r says of the round, the deadline and the step whose try
// ended.
func (t *Task) foldBegin(r *Record) {
	if r.Round > t.Round {
		t.Round = r.Round
		clear(t.Steps)
	}
	if r.Deadline != 0 {
		t.Deadline = r.Deadline
	}
	if r.Step >= 0 {
		t.foldStep(r)
	}
	if r.Kind == KindWentBack {
		t.foldWentBack(r)
	}
}

// foldWentBack makes every step one that may have an effect, or may have been undone:
// what is done is done again, by the same key.
func (t *Task) foldWentBack(r *Record) {
	t.WentBackAt = r.At
	for i := range t.Steps {
		s := &t.Steps[i]
		if r.State == StateUndoing && s.Status == StepUndone {
			continue // its tombstone is from before, or from after the time that is lost
		}
		s.Dirty, s.Quiet = true, max(s.Quiet, r.Quiet)
		if r.State != StateUndoing && s.Status == StepDone {
			s.Status, s.Attempt, s.Due = StepWaiting, 0, 0
		}
	}
}

// foldStep changes the step whose try ended, or that was reset.
func (t *Task) foldStep(r *Record) {
	s := &t.Steps[r.Step]
	s.Status, s.Attempt, s.Quiet = r.StepStatus, r.Attempt, r.Quiet
	s.Out, s.Due, s.Resent = 0, 0, false
	if r.Next < 0 {
		s.Due = r.Due // of its next try; with Next the time belongs to that command
	}
	if r.Kind != KindUnserved && r.Kind != KindUndoUnserved {
		s.Unserved = 0
	}
	switch r.Kind {
	case KindDone:
		s.Dirty, s.Result = true, r.Result
	case KindFailed, KindOverdue, KindPoisoned:
		s.Dirty = true // no answer, or one that may hide an effect, is not "no effect"
		t.Failures++
	case KindRefused:
		// Only a command in one pair of hands is over with its refusal; Quiet
		// ahead says that another copy of this one, or an earlier try, may not be.
		s.Dirty = s.Dirty || r.Quiet > r.At
		t.Failures++
	case KindUndoRefused, KindUndoFailed, KindUndoOverdue:
		t.Failures++
	case KindUnserved, KindUndoUnserved:
		s.Unserved++
	case KindUndone:
		s.Dirty = false
	}
}

// foldNext puts out the command that the row issues.
func (t *Task) foldNext(r *Record) {
	s := &t.Steps[r.Next]
	switch {
	case !r.Undo:
		s.Status = StepRunning
	case s.Status != StepUndoing:
		s.Status = StepUndoing
		s.Unserved = 0 // what do waited for its agent does not count against undo
	}
	s.Attempt, s.Out, s.Due, s.Resent = r.NextAttempt, r.Seq, r.Due, false
}

// foldEnd keeps the command that r issues, the task's state, and what follows
// from it.
func (t *Task) foldEnd(r *Record) {
	if r.Next >= 0 {
		t.foldNext(r)
	}
	t.Seq, t.State, t.UpdatedAt = r.Seq, r.State, r.At
	t.foldWhy(r)
	if t.State != StatePending {
		t.WaitsFor = ""
	} else {
		t.LockedBy = ""
	}
	if !t.State.Ended() {
		t.EndedAt, t.EndNumber = 0, 0
		return
	}
	t.EndedAt = r.At
	t.LockedBy = ""
	if t.State == StateUndone {
		for i := range t.Steps {
			if t.Steps[i].Status == StepWaiting {
				t.Steps[i].Status = StepSkipped
			}
		}
	}
}

// foldWhy keeps what a person asks first: which step failed and why. What goes
// wrong while undoing matters only when the undo gives up.
func (t *Task) foldWhy(r *Record) {
	switch r.Kind {
	case KindResubmitted:
		t.FailedStep, t.Why = 0, ""
		return
	case KindRefused, KindFailed, KindOverdue, KindUnserved:
		if t.State == StateUndoing && t.FailedStep != 0 && r.StepStatus != StepFailed {
			return
		}
		t.FailedStep = r.Step + 1
	case KindUndoRefused, KindUndoFailed, KindUndoOverdue, KindUndoUnserved:
		if t.State != StateError {
			return
		}
		t.FailedStep = r.Step + 1
	}
	if r.Error != "" {
		t.Why = r.Error
	} else if r.Reason != "" {
		t.Why = r.Reason
	}
}
