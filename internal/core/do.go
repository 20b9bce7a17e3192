package core

import "time"

// The do of a step: its answer, its failure, its next attempt, its pause.

// reply takes an agent's answer to a do or an undo: only of the command now out, under its
// own number and before its complete-by.
func (d *decision) reply() error {
	i := d.answered()
	if i < 0 {
		return d.late("no command is out under the reply's number")
	}
	s := &d.t.Steps[i]
	// The complete-by counts, whether the supervisor has asked or not: a reply must mean the same to any owner.
	if d.at >= s.Due {
		return d.late("the reply came after its complete-by")
	}
	if !s.answers(d.ev) {
		return d.stale("it answers another copy of the command")
	}
	// The copy of the other owner is at work: its answer counts, or its complete-by.
	if d.ev.Code == CodeTooEarly && s.Effect.resent() {
		return d.stale("the command was sent more than once, and is at work elsewhere")
	}
	busy := BusyCode(d.ev.Code)
	if s.again() && d.at > s.Heard && !(busy && s.Said != 0) { // of a wait that began with a busy answer the journal knows enough
		d.heard(i) // its row says how old the key is
	}
	switch undo := d.t.Steps[i].Status == StepUndoing; {
	case busy:
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

// done ends a step. When two owners sent the command, the other copy may still be
// at work: no undo before it must be silent.
func (d *decision) done(i int) {
	r := d.record(KindDone, i)
	r.StepStatus = StepDone
	r.Result, r.EffectsPossibleUntil = d.ev.Result, d.t.Steps[i].Effect.answered(d.quietAfter(i))
	d.finish(&r, d.t.goesOn())
}

// goesOn is the state in which a task advances: one that waits for nothing but instants, signals and children goes on
// with them.
func (t *Task) goesOn() State {
	if t.State == StatePending {
		return StateProcessing
	}
	return t.State
}

// quietAfter is when the command now out at step i can no longer take effect even without an answer. It is never
// sooner than for the attempts before: one with a shorter complete-by does not speak for them.
func (d *decision) quietAfter(i int) Instant {
	s := &d.t.Steps[i]
	if s.kind != kindCall {
		return s.Effect.Open // no command is on its way
	}
	return max(s.Effect.Open, s.Due.Add(d.p.Grace))
}

// failed ends an attempt of do that was answered with an error.
func (d *decision) failed(i int) {
	kind := KindFailed
	if FinalCode(d.ev.Code) {
		kind = KindRefused
	}
	r := d.record(kind, i)
	r.Code, r.Error = d.ev.Code, cut(d.ev.Error)
	r.EffectsPossibleUntil = d.t.Steps[i].Effect.answered(d.quietAfter(i))
	state := d.failing(&r, i, r.Final())
	d.finish(&r, state)
}

// failing decides between another attempt, a pause, the end, going on without the step, and the undo. It completes
// r, the row of a do that failed, and returns the state that the task goes to. final: no attempt would do better,
// whatever is left of them. Under the policy to wait, too, the task is undone then, but for a key that is too old:
// about that a person decides.
func (d *decision) failing(r *Record, i int, final bool) State {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	if d.t.State == StateUndoing { // whatever the do came to, it is undone now
		r.StepStatus = StepFailed
		return StateUndoing
	}
	r.StepStatus = StepWaiting
	if !final && s.Attempt < ps.AttemptsMax {
		pause := backoff(ps, s.Attempt, d.ev.Rand)
		if s.Attempt == 0 { // it was not tried: the agent has said that its old key is free
			pause = 0
		}
		if s.kind.parent() { // what its children came to before is told by when they ended
			pause = max(pause, time.Microsecond)
		}
		return d.retry(r, d.at.Add(pause))
	}
	if !final && ps.OnExhausted == PolicyWait {
		if state := d.retry(r, d.at.Add(ps.Pause)); state != StateProcessing {
			return state
		}
		r.Attempt = 0 // a paused step's attempts start again
		return StateProcessing
	}
	r.StepStatus = StepFailed
	switch {
	case ps.OnExhausted == PolicyError, ps.OnExhausted == PolicyWait && final && (r.Kind == KindExpired || r.Kind == KindProbed): // once nothing is at work: see settle
		d.endWaits(i)
		return StateProcessing
	case ps.OnExhausted == PolicySkip && d.t.WentBackAt == 0: // else later steps may have an effect
		if none := r.Kind == KindRefused || r.Kind == KindProbed || s.Effect.refusedLate(); !ps.Undoable || none && !s.Effect.Possible() && r.EffectsPossibleUntil <= r.At {
			r.StepStatus = StepSkipped // there is nothing to undo
		}
		return StateProcessing
	}
	return StateUndoing
}

// retry lets step r.Step wait until next, unless the task's deadline comes
// first: then there is nothing to wait for, and the task is undone whatever the
// step's policy.
func (d *decision) retry(r *Record, next Instant) State {
	if next >= d.t.workUntil(d.p) {
		r.StepStatus = StepFailed
		r.noteDeadline()
		return StateUndoing
	}
	r.Due = next
	return StateProcessing
}

// Final reports whether a row ends a do for good, whatever attempts are left.
func (r *Record) Final() bool {
	return r.Kind == KindRefused || r.Kind == KindFailed && r.Code == CodeFailed
}

// noteDeadline gives the reason, unless a person gave one.
func (r *Record) noteDeadline() {
	switch {
	case r.Reason != "":
	case r.Kind == KindSubmitted:
		r.Reason = neverBegan
	default:
		r.Reason = noTime
	}
}

// noTime is the reason of a row that undoes a task because of its deadline.
const noTime = "the task's deadline leaves no time for another try"

// neverBegan is the reason of a birth that undoes its task because of its deadline.
const neverBegan = "no time was left when the task came up in the queue; nothing of it began"

// missedTurn is that of one whose time would have counted from its turn.
const missedTurn = "the task waited for its turn longer than its plan's queue_for; nothing of it began"

// MissesDeadline reports whether the row says that the task's deadline has passed or leaves no time.
func (r *Record) MissesDeadline() bool {
	return r.Kind == KindExpired || r.Reason == noTime || r.Reason == neverBegan || r.Reason == missedTurn
}

// backoff is the wait before attempt number attempt+1: base × 2^(attempt-1), capped, full
// jitter.
func backoff(s *Step, attempt int, rand float64) time.Duration {
	return Backoff(s.Backoff, s.BackoffCap, attempt, rand)
}

// Backoff is the pause before attempt n+1 of anything: first, doubled for each attempt after the
// first one, at most most. It is multiplied by chance, drawn from 0 to 1 for full jitter;
// 1 is for no jitter.
func Backoff(first, most time.Duration, n int, chance float64) time.Duration {
	d := first
	for i := 1; i < n && 0 < d && d < most; i++ {
		d *= 2
	}
	return time.Duration(chance * float64(min(d, most)))
}
