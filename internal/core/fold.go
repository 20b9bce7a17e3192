package core

import "fmt"

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
	case KindRefused, KindUndoRefused, KindUndoFailed, KindUndoOverdue:
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
	s.Status = StepRunning
	if r.Undo {
		s.Status = StepUndoing
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

// Replay rebuilds a task from its row and its journal. p is the plan version of
// the row; nil when that plan was unknown.
func Replay(p *Plan, saved *Saved) (*Task, error) {
	t := saved.Row
	endNumber, waitsFor, lockedBy := t.EndNumber, t.WaitsFor, t.LockedBy
	t.Seq, t.Failures, t.Round = 0, 0, 0
	t.FailedStep, t.Why = 0, ""
	if p != nil {
		t.Steps = make([]StepState, len(p.Steps))
	}
	for i := range saved.Journal {
		r := &saved.Journal[i]
		if r.Seq != t.Seq+1 {
			return nil, fmt.Errorf("task %s: journal row %d follows row %d", t.ID, r.Seq, t.Seq)
		}
		if max(r.Step, r.Next) >= len(t.Steps) {
			return nil, fmt.Errorf("task %s: journal row %d names step %d of %d", t.ID, r.Seq, max(r.Step, r.Next)+1, len(t.Steps))
		}
		t.fold(r)
	}
	if t.Seq == 0 {
		return nil, fmt.Errorf("task %s: its journal is empty", t.ID)
	}
	if t.State.Ended() {
		t.EndNumber = endNumber
	} else {
		t.LockedBy = lockedBy
	}
	if t.State == StatePending {
		t.WaitsFor, t.LockedBy = waitsFor, ""
	}
	return &t, nil
}

// Resume writes into out what a new owner does with a task it has just
// replayed: the command out is sent again, with the same attempt and key, while
// its complete-by is ahead; a wait is waited for again. It journals nothing.
// From here on the command may be in two pairs of hands, so an answer no longer
// proves that nobody is at work on it: an undo of that step will wait for its
// complete-by and the grace.
func Resume(p *Plan, t *Task, at Instant, out *Outcome) {
	out.Reset()
	if t.State != StateProcessing && t.State != StateUndoing {
		return
	}
	i := t.Out()
	if i < 0 {
		out.Effects = append(out.Effects, Effect{Kind: EffectWake, At: max(at, t.NextDue(p))})
		return
	}
	s := &t.Steps[i]
	s.Resent = true
	if at >= s.Due {
		return // the supervisor will ask
	}
	kind := EffectDo
	if s.Status == StepUndoing {
		kind = EffectUndo
	}
	out.Effects = append(out.Effects, Effect{Kind: kind, Step: i, Attempt: s.Attempt, Seq: s.Out, At: s.Due})
}
