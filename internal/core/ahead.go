package core

import "iter"

// What is ahead of a task: one pass over its steps, by which the owner begins steps and undos, wakes, and knows what is due.

// verb is what is next with a step.
type verb uint8

const (
	verbHeld  verb = iota // it has been tried, and others come first
	verbWork              // a command of it, or its children, are out
	verbWait              // it waits for an instant or a signal
	verbAsk               // its agent is asked what became of its do
	verbBegin             // it begins, or its do is tried again
	verbUndo              // its undo leaves, or is tried again
)

// next is what is next with a step.
type next struct {
	verb verb
	when Instant // of what leaves: when it may; of what is out: its complete-by
	ends bool    // the deadline of the task ends it: the task is undone
}

// active reports whether the owner holds a task for what is next with the step. A child is held as a task of its
// own, so that a parent which waits for one need not be; that of an each is, unless it Rests, because its owner bears
// further children as others end, and so is one whose children are being undone. A step between two attempts is held for
// its backoff; one in the pause of its policy, whose attempts start again at 0, is not: a pause is long, and the
// supervisor's question ends it. The retries of a wait for an agent are known to memory alone, so that it is held
// even where other steps come first.
func (s *StepState) active(v verb, at Instant) bool {
	switch v {
	case verbWork:
		return s.kind != kindTask || s.Status == StepUndoing
	case verbBegin:
		return s.Awaits != 0 || s.Due > at && s.Attempt > 0
	case verbHeld:
		return s.Awaits != 0
	}
	return v == verbAsk || v == verbUndo
}

// ahead goes through the steps with which something is next: of a task that is undone the last step first. Who is told of a step
// may change it.
func (t *Task) ahead(p *Plan) iter.Seq2[int, next] {
	return func(yield func(int, next) bool) {
		if t.State == StateUndoing {
			t.aheadBack(p, yield)
		} else {
			t.aheadForward(p, yield)
		}
	}
}

// aheadForward is ahead of a task that goes forward. What is at an agent is never ended by the task's deadline: its
// complete-by is not later. But an undo of an optional step is, for then the whole task is undone. While the task
// stops nothing begins, and a wait or a signal is not ended by the deadline either: the row for it would lead to
// the next one in the same instant, without end.
func (t *Task) aheadForward(p *Plan, yield func(int, next) bool) {
	stopping, asked := false, false // it is looked for where it counts, and once
	for i := range t.Steps {
		s := &t.Steps[i]
		n := next{when: s.Due}
		switch {
		case s.Status.over(), s.Status == StepWaiting && s.Due == 0 && s.Awaits == 0 && !t.ready(p, i): // most steps
			continue
		case t.skips(p, i) && (s.Out == 0 || s.again()):
			n = next{verbUndo, t.undoWhen(i), true}
		case s.probing():
			n.verb = verbAsk
		case s.Out != 0 && !s.kind.passive():
			n.verb, n.ends = verbWork, t.skips(p, i)
		default:
			if !asked {
				stopping, asked = t.stopping(p), true
			}
			switch {
			case s.Out != 0:
				n.verb, n.ends = verbWait, !stopping
			case stopping || s.Status != StepWaiting:
				continue
			case t.beginnable(p, i):
				n.verb, n.ends = verbBegin, true
			default:
				n.verb = verbHeld
			}
		}
		if !yield(i, n) {
			return
		}
		// The step may just have failed: what comes behind it in the list does not begin any more.
		stopping = stopping || asked && t.stops(p, i)
	}
}

// aheadBack is ahead of a task that is undone. No undo leaves while a do is at an agent. A step waits for the undo
// of all that come after it, directly or through others, but for those that have given up. One that has to wait for
// nothing but the dos at work is held: it is told of, because a task with an undo to come has not ended.
func (t *Task) aheadBack(p *Plan, yield func(int, next) bool) {
	working := t.working()
	var held StepBuilder // steps that one which is not undone yet came after
	for i := len(t.Steps) - 1; i >= 0; i-- {
		s, open, waits := &t.Steps[i], t.openUndo(p, i), held.Has(i)
		if open || waits {
			for _, a := range p.Steps[i].After {
				held.Add(a)
			}
		}
		n := next{when: s.Due}
		switch {
		case open && !waits && !working && (!s.undoOut() || s.again()):
			n.verb, n.when = verbUndo, t.undoWhen(i)
		case s.Out != 0 && (s.kind == kindCall || s.Status == StepUndoing):
			n.verb = verbWork
		case !open || waits:
			continue
		}
		if !yield(i, n) {
			return
		}
	}
}
