package core

import (
	"fmt"
	"time"
)

// decision is one call of Apply: what is known, and the record being built.
type decision struct {
	p      *Plan
	t      *Task
	ev     *Event
	out    *Outcome
	at     Instant // the event's time, never before the newest journal row
	before State

	retryAt Instant // of a wait for an agent that this row begins: its first retry; 0: it begins none
}

// record begins the journal row of this event.
func (d *decision) record(kind Kind, step int) Record {
	r := Record{
		Seq: d.t.Seq + 1, Kind: kind, At: d.at, Actor: d.ev.Actor, Reason: cut(d.ev.Reason),
		State: d.t.State, Round: d.t.Round, Step: step, Next: -1,
	}
	if step >= 0 {
		s := &d.t.Steps[step]
		r.StepStatus, r.Attempt, r.EffectsPossibleUntil = s.Status, s.Attempt, s.EffectsPossibleUntil
	}
	return r
}

// finish keeps what r says so far, moves the task to state, lets it advance as
// far as it can, and closes the record.
func (d *decision) finish(r *Record, state State) {
	was := d.t.State
	d.t.beginTransition(r)
	if d.retryAt != 0 {
		d.t.Steps[r.Step].Due = d.retryAt
	}
	d.t.State = state
	d.advance(r)
	r.State = d.t.State
	d.t.completeTransition(r, was)
	d.lock()
	if d.t.State.Ended() {
		d.out.Effects = append(d.out.Effects, Effect{Kind: EffectEnded, Seq: r.Seq})
	}
	d.out.Records = append(d.out.Records, *r)
	d.touchRow()
}

// lock names the owner of a task that was taken up by this event.
func (d *decision) lock() {
	if !d.t.Active() || d.t.LockedBy != "" {
		return
	}
	d.t.LockedBy = d.ev.Node
	if d.ev.Node == "" {
		d.t.LockedBy = d.ev.Actor
	}
}

// advance decides what the task does next at d.at: issue the next command (into
// r), wait, park or end.
func (d *decision) advance(r *Record) {
	if d.t.State == StateProcessing {
		d.forward(r)
	}
	if d.t.State == StateUndoing { // also when forward ran into the deadline
		d.backward(r)
	}
}

// forward starts the next step that is ready. One runs at a time; the set of
// steps it must come after is looked at, not only the one before.
func (d *decision) forward(r *Record) {
	t := d.t
	if t.Out() >= 0 {
		return
	}
	i := t.nextStep(d.p)
	if i < 0 {
		t.State = StateProcessed
		return
	}
	s := &t.Steps[i]
	switch {
	case d.at >= t.Deadline:
		r.noteDeadline()
		t.State = StateUndoing
	case d.retryAt != 0 && i != r.Step:
		// After the database went back an earlier step is done again, and the row that
		// begins a wait gives its number to the wait's retries alone.
		d.wakeAt(min(d.retryAt, t.Deadline))
	case s.Due > d.at:
		d.wakeAt(min(s.Due, t.Deadline))
	case s.Awaits != 0:
		d.again(i)
	case d.ev.Full&(1<<uint(i)) != 0:
		t.State = StatePending
		t.WaitsFor = d.p.Steps[i].Agent
	default:
		d.issue(r, i, false)
	}
}

// issue puts the next command of step i into the record.
func (d *decision) issue(r *Record, i int, undo bool) {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	r.Next, r.Undo, r.NextAttempt = i, undo, s.Attempt+1
	kind := EffectDo
	if undo {
		kind = EffectUndo
		r.Due = d.at.Add(ps.UndoCompleteBy)
		if s.Status != StepUndoing {
			r.NextAttempt = 1
		}
	} else {
		r.Due = min(d.at.Add(ps.CompleteBy), d.t.Deadline)
	}
	if r.Step < 0 {
		r.Attempt = r.NextAttempt
	} else {
		d.t.Steps[r.Step].Due = 0 // the row has one Due, and it is the command's
	}
	d.out.Effects = append(d.out.Effects, Effect{Kind: kind, Step: i, Attempt: r.NextAttempt, Seq: r.Seq, At: r.Due})
}

func (d *decision) wakeAt(at Instant) {
	d.out.Effects = append(d.out.Effects, Effect{Kind: EffectWake, At: at})
}

// touchRow says whether the task's own row must follow: when its state changed,
// and when its complete_by would otherwise be above the truth (lowered eagerly,
// raised lazily): too low costs a question of the supervisor, too high hides what is late.
func (d *decision) touchRow() {
	due := d.t.NextDue(d.p)
	if d.before != d.t.State || due < d.t.Bound {
		d.out.Row = true
	}
	if d.out.Row {
		d.t.Bound = due
	}
}

func (d *decision) stale(why string) error {
	return fmt.Errorf("%w: task %s is %s: %s", ErrStale, d.t.ID, d.t.State, why)
}

func (d *decision) notAllowed(why string) error {
	return fmt.Errorf("%w: task %s is %s: %s", ErrNotAllowed, d.t.ID, d.t.State, why)
}

// answered finds the step whose command is out under the event's number.
func (d *decision) answered() int {
	i := d.t.Out()
	if i < 0 || d.t.State.Ended() || d.ev.Seq == 0 || d.t.Steps[i].Out != d.ev.Seq {
		return -1
	}
	return i
}

// cut bounds a text that will be journalled.
func cut(s string) string { return CutText(s, ErrorBytesMax) }

func stamp(i Instant) string { return i.Time().Format(time.RFC3339Nano) }
