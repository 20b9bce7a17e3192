package core

import (
	"fmt"
	"time"
)

// decision is one call of Apply: what is known, and the row being built.
type decision struct {
	p      *Plan
	t      *Task
	ev     *Event
	out    *Outcome
	at     Instant // the event's time, never before the newest journal row
	before State
	parked string      // the agent that it waited for then
	asked  OpenSignals // that it had then

	open    bool    // the last record of out is not complete
	was     State   // the task's state before that row
	retryAt Instant // of a wait for an agent that the open row begins: its first retry; 0: it begins none
	full    int     // 1 + the first step that may begin but for room at its agent; 0: none
}

// record begins the journal row of this event.
func (d *decision) record(kind Kind, step int) Record {
	r := Record{
		Seq: d.t.Seq + 1, Kind: kind, At: d.at, Actor: d.ev.Actor, Reason: cut(d.ev.Reason),
		State: d.t.State, Round: d.t.Round, Step: step, Next: -1,
	}
	if step >= 0 {
		s := &d.t.Steps[step]
		r.StepStatus, r.Attempt, r.EffectsPossibleUntil = s.Status, s.Attempt, s.Effect.Open
	}
	return r
}

// finish keeps what r says so far, moves the task to state, lets it advance as
// far as it can, and closes the record. What the event leads to beyond that has rows of its own.
func (d *decision) finish(r *Record, state State) {
	d.begin(r, state)
	d.advance()
	d.close()
	d.lock()
	if d.t.State.Ended() {
		d.out.Effects = append(d.out.Effects, Effect{Kind: EffectEnded, Seq: d.t.Seq})
	}
	d.wakeNext()
	d.touchRow()
}

// begin makes r the open row and keeps what it says of the step whose attempt ended. Until close what is decided
// goes into this row: its next command and the state. When the row takes the task out of its way forward, what
// waits for agents is journalled before it.
func (d *decision) begin(r *Record, state State) {
	if d.p != nil && d.t.State == StateProcessing && (state != StateProcessing || d.at >= d.t.workUntil(d.p) || d.t.stopping(d.p)) {
		d.endWaits(r.Step)
	}
	r.Seq = d.t.Seq + 1 // other rows may have come between
	d.was = d.t.State
	d.t.beginTransition(r)
	if d.retryAt != 0 {
		d.t.Steps[r.Step].Due = d.retryAt
	}
	d.t.State = state
	d.out.Records = append(d.out.Records, *r)
	d.open = true
}

// endWaits lets the journal know what only the owner's memory does of waits for agents, before the task goes another
// way: a retry that is out becomes a command like any other, and what retries may have done is noted. The row that
// comes says so itself of its own step.
func (d *decision) endWaits(but int) {
	for i := range d.t.Steps {
		s := &d.t.Steps[i]
		switch {
		case i == but || s.Awaits == 0 || s.Status == StepUndoing:
		case s.again():
			d.heard(i)
		case s.Effect.resent():
			r := d.record(KindStarted, i)
			r.Reason = ""
			d.t.applyRecord(&r)
			d.out.Records = append(d.out.Records, r)
		}
	}
}

// row is the record that is open.
func (d *decision) row() *Record { return &d.out.Records[len(d.out.Records)-1] }

// close completes it.
func (d *decision) close() {
	if !d.open {
		return
	}
	r := d.row()
	r.State = d.t.State
	d.t.completeTransition(r, d.was)
	d.open, d.retryAt = false, 0
}

// another is the next row of the same event, of which the owner is the actor: whoever raised the event asked for no
// more than the first. The reason of that is no reason of this one.
func (d *decision) another(kind Kind, step int) Record {
	d.close()
	r := d.record(kind, step)
	r.Reason = ""
	if d.ev.Node != "" {
		r.Actor = d.ev.Node
	}
	return r
}

// lock writes into the task's row which node has it in memory from this event on: one that was born, or claimed when it was
// parked, and has a step to go on with. A task that has a node keeps it.
func (d *decision) lock() {
	if !d.t.Active() || d.t.LockedBy != "" {
		return
	}
	d.t.LockedBy = d.ev.Node
	if d.ev.Node == "" {
		d.t.LockedBy = d.ev.Actor
	}
}

// advance decides what the task does next at d.at: begin steps, wait, park or end.
func (d *decision) advance() {
	if d.t.State == StateProcessing {
		d.forward()
	}
	if d.t.State == StateUndoing { // also when forward ran into the deadline
		d.backward()
	}
}

// issue puts the next command of step i into the open row, or into another one: a row has one command, and one Due.
// An open row whose Due is a backoff of another step, or that begins a wait for an agent, has none to give away.
func (d *decision) issue(i int, undo bool) {
	ps := &d.p.Steps[i]
	if r := d.row(); !d.open || r.Next >= 0 || r.Due != 0 && r.Step != i || d.retryAt != 0 {
		next := d.another(KindStarted, -1)
		d.begin(&next, d.t.State)
	}
	s, r := &d.t.Steps[i], d.row()
	r.Next, r.Undo, r.NextAttempt = i, undo, s.Attempt+1
	kind := EffectDo
	switch {
	case undo:
		kind = EffectUndo
		r.Due = d.tryUntil(i, true)
		// Attempts of the do do not count for the undo.
		if s.Status != StepUndoing {
			r.NextAttempt = 1
		}
		if s.kind.parent() { // its children keep their own times
			kind, r.Due = EffectUndoChildren, d.at.Add(ps.undoPatience())
		}
	default:
		r.Due = d.tryUntil(i, false)
		if s.kind.parent() {
			kind = EffectChildren
		}
	}
	if r.Step < 0 {
		r.Attempt = r.NextAttempt
	} else {
		d.t.Steps[r.Step].Due = 0 // the row has one Due, and it is the command's
	}
	if !s.kind.passive() { // of a wait or a signal nothing leaves
		d.out.Effects = append(d.out.Effects, Effect{Kind: kind, Step: i, Attempt: r.NextAttempt, Seq: r.Seq, At: r.Due})
	}
}

func (d *decision) wakeAt(at Instant) {
	d.out.Effects = append(d.out.Effects, Effect{Kind: EffectWake, At: at})
}

// wakeNext asks for a wake at the next instant at which the owner itself has to do something about the task.
func (d *decision) wakeNext() bool {
	at := d.t.nextWake(d.p, d.at)
	if at != 0 {
		d.wakeAt(at)
	}
	return at != 0
}

// touchRow says whether the task's own row must follow: when its state changed,
// and when its complete_by would otherwise be above the truth (lowered eagerly,
// raised lazily): too low costs a question of the supervisor, too high hides what is late.
func (d *decision) touchRow() {
	due := d.t.NextDue(d.p)
	if d.before != d.t.State || d.parked != d.t.WaitsFor || !d.asked.Equal(d.t.OpenSignals()) || due < d.t.Bound || d.t.State.Ended() && len(d.out.Records) > 0 {
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

// answered finds the step whose command is at an agent under the event's number; -1: none is, or the task has
// ended, where what was out is not waited for any more.
func (d *decision) answered() int {
	i := d.t.OutSeq(d.ev.Seq)
	if i < 0 || d.t.State.Ended() || d.t.Steps[i].kind != kindCall {
		return -1
	}
	return i
}

// cut bounds a text that will be journalled.
func cut(s string) string { return CutText(s, ErrorBytesMax) }

func stamp(i Instant) string { return i.Time().Format(time.RFC3339Nano) }
