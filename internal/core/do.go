package core

import "time"

// The do of a step: its answer, its failure, its next try, its pause.

// reply takes an agent's answer to a do or an undo: only of the command now out, under its
// own number and before its complete-by.
func (d *decision) reply() error {
	i := d.answered()
	if i < 0 {
		return d.stale("no command is out under the reply's number")
	}
	s := &d.t.Steps[i]
	if d.at >= s.Due {
		return d.stale("the reply came after its complete-by")
	}
	// The copy at work has the same number: its answer counts, or its complete-by.
	if d.ev.Code == CodeTooEarly && s.Resent {
		return d.stale("the command was sent more than once, and is at work elsewhere")
	}
	switch undo := d.t.Steps[i].Status == StepUndoing; {
	case BusyCode(d.ev.Code):
		d.busy(i)
	case d.ev.Code == 0 && undo:
		d.undone(i)
	case d.ev.Code == 0:
		d.done(i)
	case undo:
		d.undoFailed(i)
	default:
		d.failed(i)
	}
	return nil
}

// done ends a step. When the command was sent twice, the other copy may still be
// at work: no undo before it must be silent.
func (d *decision) done(i int) {
	r := d.record(KindDone, i)
	r.StepStatus = StepDone
	r.Result = d.ev.Result
	if d.t.Steps[i].Resent {
		r.EffectsPossibleUntil = d.quietAfter(i)
	}
	d.finish(&r, d.t.State)
}

// quietAfter is when the command now out at step i can no longer take effect
// even without an answer.
func (d *decision) quietAfter(i int) Instant {
	s := &d.t.Steps[i]
	return max(s.EffectsPossibleUntil, s.Due.Add(d.p.Grace))
}

// failed ends a try of do that was answered with an error.
func (d *decision) failed(i int) {
	kind := KindFailed
	if FinalCode(d.ev.Code) {
		kind = KindRefused
	}
	r := d.record(kind, i)
	r.Code, r.Error = d.ev.Code, cut(d.ev.Error)
	if d.t.Steps[i].Resent {
		r.EffectsPossibleUntil = d.quietAfter(i)
	}
	d.afterFailure(&r, i, kind == KindRefused)
}

// afterFailure decides between another try, a pause, the end and the undo.
func (d *decision) afterFailure(r *Record, i int, final bool) {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	if d.t.State == StateUndoing { // whatever the do came to, it is undone now
		r.StepStatus = StepFailed
		d.finish(r, StateUndoing)
		return
	}
	r.StepStatus = StepWaiting
	if !final && s.Attempt < ps.AttemptsMax {
		d.retry(r, d.at.Add(backoff(ps, s.Attempt, d.ev.Rand)), StateProcessing)
		return
	}
	if !final && ps.OnExhausted == PolicyWait {
		d.retry(r, d.at.Add(ps.Pause), StatePending)
		return
	}
	r.StepStatus = StepFailed
	if ps.OnExhausted == PolicyError {
		d.finish(r, StateError)
		return
	}
	d.finish(r, StateUndoing)
}

// retry lets step r.Step wait until next, unless the task's deadline comes
// first: then there is nothing to wait for, and the task is undone whatever the
// step's policy. A parked step's attempts start again.
func (d *decision) retry(r *Record, next Instant, state State) {
	if next >= d.t.Deadline {
		r.StepStatus = StepFailed
		r.noteDeadline()
		d.finish(r, StateUndoing)
		return
	}
	if state == StatePending {
		r.Attempt = 0
	}
	r.Due = next
	d.finish(r, state)
}

// noteDeadline gives the reason, unless a person gave one.
func (r *Record) noteDeadline() {
	if r.Reason == "" {
		r.Reason = "the task's deadline leaves no time for another try"
	}
}

// backoff is the wait before try attempt+1: base × 2^(attempt-1), capped, full
// jitter.
func backoff(s *Step, attempt int, rand float64) time.Duration {
	return Backoff(s.Backoff, s.BackoffCap, attempt, rand)
}

// Backoff is the pause before try n+1 of anything: first, doubled for each try after the
// first one, at most most. It is multiplied by chance, drawn from 0 to 1 for full jitter;
// 1 is for no jitter.
func Backoff(first, most time.Duration, n int, chance float64) time.Duration {
	d := first
	for i := 1; i < n && 0 < d && d < most; i++ {
		d *= 2
	}
	return time.Duration(chance * float64(min(d, most)))
}
