package core

import (
	"errors"
	"fmt"
)

// ErrStale is returned for an event that no longer means anything: a reply to a
// command that is not out, a wake for nothing, a cancel of what has ended.
// Nothing changed.
var ErrStale = errors.New("stale event")

// ErrNotAllowed is returned for an operator's request that the task's state
// forbids. Nothing changed.
var ErrNotAllowed = errors.New("not allowed")

// Apply decides what ev means for t, changes t, and writes into out the journal
// records that make the change durable and the effects that may leave once they
// are committed. On an error nothing changed and out is empty.
//
// p is the plan version of t; it is nil only when that plan is unknown, which
// allows EventPoison, EventResolve and EventCancel alone.
func Apply(p *Plan, t *Task, ev *Event, out *Outcome) error {
	out.Reset()
	d := decision{p: p, t: t, ev: ev, out: out, at: max(ev.At, t.UpdatedAt), before: t.State}
	if p == nil || t.Steps == nil {
		return d.withoutPlan()
	}
	switch ev.Kind {
	case EventReply:
		return d.reply()
	case EventUnserved:
		return d.unserved()
	case EventWake:
		return d.wake()
	case EventClaim:
		return d.claim()
	case EventOverdue:
		return d.overdue()
	case EventCancel, EventUndo:
		return d.undo()
	case EventResubmit:
		return d.resubmit()
	case EventResolve:
		return d.resolve()
	case EventExtend:
		return d.extend()
	case EventPoison:
		return d.poison()
	}
	return fmt.Errorf("%w: event kind %d", ErrNotAllowed, ev.Kind)
}

// Birth writes the first record of a new task. The caller has filled in what
// the submission and the owner know (Partition, Number, ID, Type, Input,
// InputHash, ReplyTo, Trace, Origin, CreatedAt) and Deadline, if the submission
// names one. A nil plan puts the task in error, its input kept.
func Birth(p *Plan, t *Task, ev *Event, out *Outcome) {
	out.Reset()
	d := decision{p: p, t: t, ev: ev, out: out, at: ev.At}
	if t.CreatedAt == 0 {
		t.CreatedAt = ev.At
	}
	if p == nil {
		r := d.record(KindPoisoned, -1)
		r.Error = cut(ev.Error)
		d.finish(&r, StateError)
		return
	}
	t.PlanVersion = p.Version
	t.Steps = make([]StepState, len(p.Steps))
	t.LockedBy = ev.Actor
	r := d.record(KindSubmitted, -1)
	r.Deadline = t.Deadline
	if r.Deadline == 0 {
		r.Deadline = t.CreatedAt.Add(p.CompleteBy)
	}
	out.Effects = append(out.Effects, Effect{Kind: EffectReceived})
	d.finish(&r, StateProcessing)
	t.Bound = min(t.Bound, ev.At.Add(p.ShortestTimeout()), t.Deadline)
}

// BirthCancelled writes the first and only record of a task that was cancelled
// before it was submitted: it takes the id, so that the submission, when it
// comes, starts nothing.
func BirthCancelled(t *Task, ev *Event, out *Outcome) {
	out.Reset()
	d := decision{t: t, ev: ev, out: out, at: ev.At}
	if t.CreatedAt == 0 {
		t.CreatedAt = ev.At
	}
	r := d.record(KindCancelled, -1)
	d.finish(&r, StateUndone)
}

// decision is one call of Apply: what is known, and the record being built.
type decision struct {
	p      *Plan
	t      *Task
	ev     *Event
	out    *Outcome
	at     Instant // the event's time, never before the newest journal row
	before State
}

// record begins the journal row of this event.
func (d *decision) record(kind Kind, step int) Record {
	r := Record{
		Seq: d.t.Seq + 1, Kind: kind, At: d.at, Actor: d.ev.Actor, Reason: cut(d.ev.Reason),
		State: d.t.State, Round: d.t.Round, Step: step, Next: -1,
	}
	if step >= 0 {
		s := &d.t.Steps[step]
		r.StepStatus, r.Attempt, r.Quiet = s.Status, s.Attempt, s.Quiet
	}
	return r
}

// finish keeps what r says so far, moves the task to state, lets it advance as
// far as it can, and closes the record.
func (d *decision) finish(r *Record, state State) {
	d.t.foldBegin(r)
	d.t.State = state
	d.advance(r)
	r.State = d.t.State
	d.t.foldEnd(r)
	if d.t.State.Ended() {
		d.out.Effects = append(d.out.Effects, Effect{Kind: EffectEnded, Seq: r.Seq})
	}
	d.out.Records = append(d.out.Records, *r)
	d.touchRow()
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
// steps it must come after is honoured as it stands.
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
	case s.Due > d.at:
		d.wakeAt(min(s.Due, t.Deadline))
	case d.ev.Full&(1<<uint(i)) != 0:
		t.State = StatePending
		t.WaitsFor = d.p.Steps[i].Agent
	default:
		d.issue(r, i, false)
	}
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
	d.out.Effects = append(d.out.Effects, Effect{Kind: kind, Step: i, Attempt: r.NextAttempt, Seq: r.Seq, At: r.Due})
}

func (d *decision) wakeAt(at Instant) {
	d.out.Effects = append(d.out.Effects, Effect{Kind: EffectWake, At: at})
}

// touchRow says whether the task's own row must follow: when its state changed,
// and when its complete_by would otherwise be above the truth (lowered eagerly,
// raised lazily).
func (d *decision) touchRow() {
	due := d.t.NextDue(d.p)
	if d.before != d.t.State || due < d.t.Bound {
		d.out.Row = true
	}
	if d.out.Row {
		d.t.Bound = due
	}
}

// NextDue is the earliest instant at which something of the task can be
// overdue: the complete-by of the command out, or the wait that is on, or the
// task's own deadline. The zero Instant means that the task has ended.
func (t *Task) NextDue(p *Plan) Instant {
	if t.State.Ended() {
		return 0
	}
	if i := t.Out(); i >= 0 {
		return t.Steps[i].Due
	}
	if t.State == StateUndoing {
		if i := t.nextUndo(p); i >= 0 {
			s := &t.Steps[i]
			if s.Status == StepUndoing {
				return max(s.Quiet, s.Due)
			}
			return max(s.Quiet, t.UpdatedAt)
		}
		return t.UpdatedAt
	}
	if i := t.nextStep(p); i >= 0 && t.WaitsFor == "" && t.Steps[i].Due > 0 {
		return min(t.Steps[i].Due, t.Deadline)
	}
	return t.Deadline
}

// nextStep is the first step that waits and may run now, or -1 when all are done.
func (t *Task) nextStep(p *Plan) int {
	for i := range t.Steps {
		if t.Steps[i].Status == StepWaiting && t.ready(p, i) {
			return i
		}
	}
	return -1
}

func (t *Task) ready(p *Plan, i int) bool {
	for _, a := range p.Steps[i].After {
		if t.Steps[a].Status != StepDone {
			return false
		}
	}
	return true
}

// nextUndo is the last step that may have left an effect, or -1.
func (t *Task) nextUndo(p *Plan) int {
	for i := len(t.Steps) - 1; i >= 0; i-- {
		if t.Steps[i].Dirty && p.Steps[i].Undoable {
			return i
		}
	}
	return -1
}

// cut bounds a text that will be journalled.
func cut(s string) string {
	if len(s) > ErrorBytesMax {
		return s[:ErrorBytesMax]
	}
	return s
}
