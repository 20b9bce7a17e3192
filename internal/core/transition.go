package core

import (
	"fmt"
	"time"
)

// The transitions: one method per event, each first refusing every state in
// which the event means nothing.

// undoUnservedFactor: an undo that nobody is there to hear is tried this many
// times its attempts before a person is called.
const undoUnservedFactor = 10

func (d *decision) stale(why string) error {
	return fmt.Errorf("%w: task %s is %s: %s", ErrStale, d.t.ID, d.t.State, why)
}

func (d *decision) notAllowed(why string) error {
	return fmt.Errorf("%w: task %s is %s: %s", ErrNotAllowed, d.t.ID, d.t.State, why)
}

// answered finds the step whose command is out under the event's number.
func (d *decision) answered() int {
	i := d.t.Out()
	if i < 0 || d.ev.Seq == 0 || d.t.Steps[i].Out != d.ev.Seq {
		return -1
	}
	return i
}

func (d *decision) reply() error {
	i := d.answered()
	if i < 0 {
		return d.stale("no command is out under the reply's number")
	}
	if s := &d.t.Steps[i]; d.at >= s.Due {
		return d.stale("the reply came after its complete-by")
	}
	switch undo := d.t.Steps[i].Status == StepUndoing; {
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

func (d *decision) done(i int) {
	r := d.record(KindDone, i)
	r.StepStatus = StepDone
	r.Result = d.ev.Result
	if d.t.Steps[i].Resent {
		r.Quiet = d.quietAfter(i)
	}
	d.finish(&r, d.t.State)
}

// quietAfter is when the command now out at step i can no longer take effect
// even if nobody answers.
func (d *decision) quietAfter(i int) Instant {
	s := &d.t.Steps[i]
	return max(s.Quiet, s.Due.Add(d.p.Grace))
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
		r.Quiet = d.quietAfter(i)
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
		r.Attempt = 0
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
// first: then there is nothing to wait for.
func (d *decision) retry(r *Record, next Instant, state State) {
	if next >= d.t.Deadline {
		r.StepStatus = StepFailed
		r.noteDeadline()
		d.finish(r, StateUndoing)
		return
	}
	r.Due = next
	d.finish(r, state)
}

func (r *Record) noteDeadline() {
	if r.Reason == "" {
		r.Reason = "the task's deadline leaves no time for another try"
	}
}

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

// unserved takes back a command that nobody was there to hear. It is no
// attempt. When the command was sent twice, one copy may have been heard: then
// only its answer or its complete-by counts.
func (d *decision) unserved() error {
	i := d.answered()
	if i < 0 {
		return d.stale("no command is out under the number")
	}
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	if s.Resent {
		return d.stale("the command was sent more than once")
	}
	next := d.at.Add(backoff(ps, s.Unserved+1, d.ev.Rand))
	if s.Status == StepUndoing {
		d.undoUnserved(i, next)
		return nil
	}
	r := d.record(KindUnserved, i)
	r.StepStatus, r.Attempt = StepWaiting, s.Attempt-1
	r.Error = "no agent listens on " + ps.Agent
	if d.t.State == StateProcessing {
		r.Due = min(next, d.t.Deadline)
	}
	d.finish(&r, d.t.State)
	return nil
}

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

// wake continues after a backoff or a grace. It never ends a command that is
// out: only the supervisor's question does.
func (d *decision) wake() error {
	if d.t.State != StateProcessing && d.t.State != StateUndoing {
		return d.stale("it waits for nothing")
	}
	if d.t.Out() >= 0 {
		return d.stale("a command is out")
	}
	if due := d.t.NextDue(d.p); d.at < due {
		d.wakeAt(due)
		return nil
	}
	d.moveOn()
	return nil
}

// moveOn lets a task whose wait is over advance.
func (d *decision) moveOn() {
	kind := KindStarted
	if d.t.State != StateUndoing && d.at >= d.t.Deadline {
		kind = KindExpired
	}
	r := d.record(kind, -1)
	state := d.t.State
	if state == StatePending {
		state = StateProcessing
		d.t.LockedBy, d.t.WaitsFor = d.ev.Actor, ""
	}
	d.finish(&r, state)
}

// claim takes a parked task up again: its agent has room, or its pause is over.
func (d *decision) claim() error {
	if d.t.State != StatePending {
		return d.stale("it is not parked")
	}
	if i := d.t.nextStep(d.p); i >= 0 && d.t.Steps[i].Due > d.at && d.at < d.t.Deadline {
		return d.stale("its pause is not over")
	}
	if i := d.t.nextStep(d.p); i >= 0 && d.ev.Full&(1<<uint(i)) != 0 && d.at < d.t.Deadline {
		return d.stale("its agent has no room")
	}
	d.moveOn()
	return nil
}

// overdue answers the supervisor's question about a task whose bound has
// passed: the bound is raised to the truth, or what is late is declared so. A
// question that comes before the step's own deadline does no harm.
func (d *decision) overdue() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	due := d.t.NextDue(d.p)
	if d.at < due {
		if d.t.Bound >= due {
			return d.stale("it is not due")
		}
		r := d.record(KindAsked, -1)
		d.raise(&r, due)
		return nil
	}
	d.out.Row = true
	i := d.t.Out()
	if i < 0 {
		return d.overdueWait()
	}
	s := &d.t.Steps[i]
	if s.Status == StepUndoing {
		r := d.record(KindUndoOverdue, i)
		r.Error = "no answer by " + stamp(s.Due)
		d.afterUndoFailure(&r, i, false)
		return nil
	}
	r := d.record(KindOverdue, i)
	r.Error = "no answer by " + stamp(s.Due)
	r.Quiet = d.quietAfter(i)
	d.afterFailure(&r, i, false)
	return nil
}

// raise journals that the supervisor asked and moves the bound of the row.
func (d *decision) raise(r *Record, due Instant) {
	r.State = d.t.State
	d.t.foldBegin(r)
	d.t.foldEnd(r)
	d.t.Bound = due
	d.out.Row = true
	d.out.Records = append(d.out.Records, *r)
}

// overdueWait serves a wait whose timer was lost, a pause that is over, and a
// deadline that passed while nothing was out.
func (d *decision) overdueWait() error {
	if d.t.State == StatePending && d.t.WaitsFor != "" && d.at < d.t.Deadline {
		return d.stale("it waits for room")
	}
	d.moveOn()
	return nil
}

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

// resubmit starts again: at the failed step of a task in error, or at the first
// step, in a new round with new keys, of a task that was undone.
func (d *decision) resubmit() error {
	failed := -1
	switch d.t.State {
	case StateError:
		for i := range d.t.Steps {
			switch d.t.Steps[i].Status {
			case StepUndoing, StepUndone:
				return d.notAllowed("its undo has begun: finish the undo before a resubmit")
			case StepFailed:
				failed = i
			}
		}
		if failed >= 0 && d.ev.Step != "" && d.p.Steps[failed].Name != d.ev.Step {
			return d.notAllowed("step " + quoteShort(d.ev.Step) + " did not fail; step " + d.p.Steps[failed].Name + " did")
		}
	case StateUndone:
		if d.ev.Step != "" && d.ev.Step != d.p.Steps[0].Name {
			return d.notAllowed("after an undo a task starts again at its first step, " + d.p.Steps[0].Name)
		}
	default:
		return d.notAllowed("only a task in error or undone can be resubmitted")
	}
	until := d.ev.Until
	if until == 0 {
		until = d.at.Add(d.p.CompleteBy)
	}
	if until <= d.at {
		return d.notAllowed("the new deadline " + stamp(until) + " has passed")
	}
	r := d.record(KindResubmitted, failed)
	r.StepStatus, r.Attempt, r.Deadline = StepWaiting, 0, until
	if d.t.State == StateUndone {
		r.Round++
	}
	d.t.LockedBy = d.ev.Actor
	d.finish(&r, StateProcessing)
	return nil
}

// resolve records that a person settled a task in error by hand.
func (d *decision) resolve() error {
	if d.t.State != StateError {
		return d.notAllowed("only a task in error can be resolved")
	}
	if d.ev.As != StateProcessed && d.ev.As != StateUndone {
		return d.notAllowed("it can be resolved as processed or undone, not as " + quoteShort(string(d.ev.As)))
	}
	r := d.record(KindResolved, -1)
	d.finish(&r, d.ev.As)
	d.out.Row = true
	return nil
}

// extend gives the task a later deadline. A command that is out keeps its own.
func (d *decision) extend() error {
	if d.t.State != StatePending && d.t.State != StateProcessing {
		return d.notAllowed("only a task that is pending or processing has a deadline to extend")
	}
	if d.ev.Until <= d.t.Deadline {
		return d.notAllowed("the new deadline " + stamp(d.ev.Until) + " is not after the present one, " + stamp(d.t.Deadline))
	}
	r := d.record(KindExtended, -1)
	r.Deadline = d.ev.Until
	d.t.foldBegin(&r)
	d.raise(&r, d.t.NextDue(d.p))
	return nil
}

// poison puts the task in error, whatever it was doing, with its input kept.
func (d *decision) poison() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	i := d.t.Out()
	r := d.record(KindPoisoned, i)
	r.Error = cut(d.ev.Error)
	if i >= 0 && d.t.Steps[i].Status == StepRunning {
		r.StepStatus, r.Quiet = StepFailed, d.quietAfter(i)
	}
	d.finish(&r, StateError)
	return nil
}

// withoutPlan serves a task whose plan version is unknown or that was cancelled
// before it was submitted: it has no steps.
func (d *decision) withoutPlan() error {
	switch d.ev.Kind {
	case EventResolve:
		return d.resolve()
	case EventResubmit:
		return d.resubmitPlanless()
	case EventCancel, EventUndo:
		if d.t.State != StateError {
			return d.stale("it has no steps")
		}
		kind := KindCancelled
		if d.ev.Kind == EventUndo {
			kind = KindUndoAsked
		}
		r := d.record(kind, -1)
		d.finish(&r, StateUndone)
		return nil
	}
	return d.stale("its plan is unknown")
}

// resubmitPlanless starts a task whose plan was unknown when it came and is
// known now.
func (d *decision) resubmitPlanless() error {
	if d.t.State != StateError || d.p == nil {
		return d.notAllowed("its plan is unknown")
	}
	until := d.ev.Until
	if until == 0 {
		until = d.at.Add(d.p.CompleteBy)
	}
	if until <= d.at {
		return d.notAllowed("the new deadline " + stamp(until) + " has passed")
	}
	d.t.PlanVersion = d.p.Version
	d.t.Steps = make([]StepState, len(d.p.Steps))
	d.t.LockedBy = d.ev.Actor
	r := d.record(KindResubmitted, -1)
	r.Deadline = until
	d.finish(&r, StateProcessing)
	return nil
}

// backoff is the wait before try attempt+1: base × 2^(attempt-1), capped, full
// jitter.
func backoff(s *Step, attempt int, rand float64) time.Duration {
	d := s.Backoff
	for i := 1; i < attempt && d < s.BackoffCap; i++ {
		d *= 2
	}
	return time.Duration(rand * float64(min(d, s.BackoffCap)))
}

func stamp(i Instant) string { return i.Time().Format(time.RFC3339Nano) }
