package core

import (
	"cmp"
	"math"
)

// earlier is the earlier of two instants; 0 is none.
func earlier(a, b Instant) Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// NextDue is the earliest instant at which something of the task can be overdue: the complete-by of a command, a
// signal or children that are out, the instant of a wait, or the task's own deadline. The zero Instant means that
// the task has ended.
//
// The store keeps a lower bound of it in the task's row, and the supervisor asks the owner once that has passed.
// Too early a bound costs a question; one too late would hide a task whose timer was lost.
func (t *Task) NextDue(p *Plan) Instant {
	switch {
	case t.State.Ended():
		return 0
	case p == nil: // it waits for its plan
		return t.Deadline
	}
	due, out, again := Instant(0), false, Instant(0)
	if t.State != StateUndoing {
		due = t.workUntil(p)
		if t.StartAt > t.UpdatedAt {
			due = min(due, t.StartAt)
		}
	}
	for i, n := range t.ahead(p) {
		s := &t.Steps[i]
		switch {
		case n.verb == verbUndo && s.undoAwaits(): // its retries have no rows
			due = earlier(due, max(t.UpdatedAt, t.alarm(p, i)))
		case n.verb == verbUndo:
			due = earlier(due, max(t.UpdatedAt, n.when))
		// A do that waits for its agent ends with the deadline, which counts already: nothing else of it is late.
		case s.Awaits != 0:
		case n.verb == verbWork, n.verb == verbWait, n.verb == verbAsk:
			due, out = earlier(due, n.when), true
		case n.verb == verbBegin && n.when > t.UpdatedAt:
			due = earlier(due, n.when)
		case n.verb == verbBegin: // its pause is over
			again = earlier(again, n.when)
		}
	}
	// A step whose pause is over and that has not begun waits for its turn or for room. It is what is due only
	// where nothing else will make the owner look at the task: an answer to a signal may be long in coming.
	if t.WaitsFor == "" && (!out || t.State == StatePending) { // else it waits for room
		due = earlier(due, again)
	}
	// Nothing is ahead of a task that has not ended: it is to be looked at, now.
	return cmp.Or(due, t.UpdatedAt)
}

// nextWake is the earliest instant at which the owner itself has to do something about a task that it holds; 0: it
// has only to wait for what others do: an answer, or the supervisor, which asks when a complete-by has passed.
// Timers end at the deadline at the latest, because then the task is undone.
func (t *Task) nextWake(p *Plan, at Instant) (next Instant) {
	if !t.Active() {
		return 0
	}
	until := Instant(math.MaxInt64) // in which something leaves
	if p != nil && t.State == StateProcessing {
		until = t.workUntil(p)
	}
	for i, n := range t.ahead(p) {
		switch s := &t.Steps[i]; {
		case s.again():
			next = earlier(next, s.Heard)
		case n.verb == verbAsk:
			next = earlier(next, n.when)
		case n.verb == verbUndo && s.undoAwaits():
			next = earlier(next, min(max(at, n.when), t.alarm(p, i), until))
		case n.verb == verbUndo && s.Out == 0:
			next = earlier(next, min(max(at, n.when), until))
		case n.verb == verbWait && s.kind == kindWait && (at < until || n.ends), n.verb == verbBegin && (s.Awaits != 0 || s.Due > at):
			next = earlier(next, min(n.when, until))
		}
	}
	if next != 0 {
		next = max(next, at)
	}
	return next
}

// nextStep is the first step that waits and may run now, or -1 when there is none.
func (t *Task) nextStep(p *Plan) int {
	for i, n := range t.ahead(p) {
		if n.verb == verbBegin {
			return i
		}
	}
	return -1
}

// openUndo reports whether the undo of a step is still to come, or to be tried again.
func (t *Task) openUndo(p *Plan, i int) bool {
	s := &t.Steps[i]
	return s.Effect.Possible() && p.Steps[i].Undoable && s.Left == ""
}

// undoWhen is when the next attempt of the undo of step i may leave: not before every do of it is quiet. Due counts
// from the first attempt of the undo on; before that it is a time of the do.
func (t *Task) undoWhen(i int) Instant {
	s := &t.Steps[i]
	if s.Status == StepUndoing {
		return max(s.Effect.Open, s.Due)
	}
	return s.Effect.Open
}

// nextUndo is the step whose undo leaves next, and when it may; -1: none is left that is not out. Of
// several that may leave now those not in trouble come first.
func (t *Task) nextUndo(p *Plan, at Instant) (next int, when Instant) {
	next = -1
	for i, n := range t.ahead(p) {
		w := max(at, n.when)
		if n.verb == verbUndo && (next < 0 || w < when || w == when && t.Steps[next].Alerted && !t.Steps[i].Alerted) {
			next, when = i, w
		}
	}
	return next, when
}

// alarm is when an undo has been tried for so long that an operator is told or, later, that it gives up. Where it
// gives up before the operator would be told there is only the second.
func (t *Task) alarm(p *Plan, i int) Instant {
	s := &t.Steps[i]
	if end := t.undoEnd(p, i); s.Alerted || end < s.Since.Add(undoAlertAfter) {
		return end
	}
	return s.Since.Add(undoAlertAfter)
}

// nextAlarm is a step whose undo waits for its agent and has waited too long; -1: there is none.
func (t *Task) nextAlarm(p *Plan, at Instant) int {
	for i := range t.ahead(p) {
		if s := &t.Steps[i]; s.undoAwaits() && s.Out == 0 && (at >= t.alarm(p, i) || t.undoOld(p, i, at)) {
			return i
		}
	}
	return -1
}
