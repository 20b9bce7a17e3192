package core

// earlier is the earlier of two instants; 0 is none.
func earlier(a, b Instant) Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// NextDue is the earliest instant at which something of the task can be
// overdue: the complete-by of a command, a signal or children that are out, the instant of a wait, or the
// task's own deadline. The zero Instant means that the task has ended.
func (t *Task) NextDue(p *Plan) Instant {
	switch {
	case t.State.Ended():
		return 0
	case p == nil: // it waits for its plan
		return t.Deadline
	case t.State == StateUndoing:
		return t.undoDue(p)
	}
	due, out, again := t.workUntil(p), false, Instant(0)
	for i := range t.Steps {
		switch s := &t.Steps[i]; {
		case s.Status.over():
		case s.Out != 0 && s.Out != s.Awaits, s.probing():
			due, out = min(due, s.Due), true
		case t.skips(p, i):
			due = min(due, t.undoBound(p, i))
		case s.Due > 0 && s.Awaits == 0 && t.beginnable(p, i):
			if s.Due > t.UpdatedAt {
				due = min(due, s.Due)
			} else {
				again = earlier(again, s.Due)
			}
		}
	}
	if again != 0 && !out && t.WaitsFor == "" { // else its pause is over, and it waits for room
		due = min(due, again)
	}
	if t.StartAt > t.UpdatedAt {
		return min(due, t.StartAt)
	}
	return due
}

// nextWake is the earliest instant at which the owner itself has to do something about a task that it holds; 0: it has
// only to wait for what others do.
func (t *Task) nextWake(p *Plan, at Instant) (next Instant) {
	if !t.Active() {
		return 0
	}
	until := t.Deadline
	if p != nil {
		until = t.workUntil(p)
	}
	for i := range t.Steps {
		switch s := &t.Steps[i]; {
		case s.Status == StepDone:
		case s.again():
			next = earlier(next, s.Heard)
		case t.State == StateUndoing:
		case s.probing():
			next = earlier(next, s.Due)
		case s.Out != 0:
			if s.kind == kindWait && (at < until || p == nil || !t.stopping(p)) {
				next = earlier(next, min(s.Due, until))
			}
		case (s.Awaits != 0 || s.Due > at) && t.beginnable(p, i):
			next = earlier(next, min(s.Due, until))
		case t.skips(p, i):
			next = earlier(next, min(t.undoWake(p, i, at), until))
		}
	}
	if t.State == StateUndoing && !t.working() {
		t.undos(p, func(i int) {
			if t.Steps[i].Out == 0 {
				next = earlier(next, t.undoWake(p, i, at))
			}
		})
	}
	if next != 0 {
		next = max(next, at)
	}
	return next
}

// nextStep is the first step that waits and may run now, or -1 when there is none.
func (t *Task) nextStep(p *Plan) int {
	for i := range t.Steps {
		if t.beginnable(p, i) {
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

// undos calls yield with the steps that are undone now, or whose undo may leave when its time has come, last
// step first. A step waits for the undo of all that come after it, directly or through others, but for those that have
// given up.
func (t *Task) undos(p *Plan, yield func(i int)) {
	var held StepBuilder // steps that one which is not undone yet came after
	for i := len(t.Steps) - 1; i >= 0; i-- {
		open, waits := t.openUndo(p, i), held.Has(i)
		if open || waits {
			for _, a := range p.Steps[i].After {
				held.Add(a)
			}
		}
		if open && !waits {
			yield(i)
		}
	}
}

// undoWhen is when the next attempt of the undo of step i may leave.
func (t *Task) undoWhen(i int) Instant {
	s := &t.Steps[i]
	if s.Status == StepUndoing {
		return max(s.Effect.Open, s.Due)
	}
	return s.Effect.Open
}

// undoWake is when the owner goes on with the undo of step i, which is not out: its next attempt, or what it has waited too
// long for.
func (t *Task) undoWake(p *Plan, i int, at Instant) Instant {
	when := max(at, t.undoWhen(i))
	if t.Steps[i].undoAwaits() {
		when = min(when, t.alarm(p, i))
	}
	return when
}

// nextUndo is the step whose undo leaves next, and when it may; -1: none is left that is not out. Of
// several that may leave now those not in trouble come first.
func (t *Task) nextUndo(p *Plan, at Instant) (next int, when Instant) {
	next = -1
	t.undos(p, func(i int) {
		if t.Steps[i].Out != 0 && t.Steps[i].Status == StepUndoing {
			return
		}
		w := max(at, t.undoWhen(i))
		if next < 0 || w < when || w == when && t.Steps[next].Alerted && !t.Steps[i].Alerted {
			next, when = i, w
		}
	})
	return next, when
}

// undoBound is the earliest instant at which the undo of step i can be overdue. The
// retries of one that waits for its agent are not: there is no command that the journal
// knows of.
func (t *Task) undoBound(p *Plan, i int) Instant {
	s := &t.Steps[i]
	switch {
	case s.undoAwaits():
		return max(t.alarm(p, i), t.UpdatedAt)
	case s.Out != 0 && s.Status == StepUndoing:
		return s.Due
	}
	return max(t.undoWhen(i), t.UpdatedAt)
}

// undoDue is NextDue of a task that is undone.
func (t *Task) undoDue(p *Plan) Instant {
	due := Instant(0)
	for i := range t.Steps { // a do that is out comes first
		if s := &t.Steps[i]; s.Out != 0 && s.kind == kindCall && s.Status == StepRunning {
			due = earlier(due, s.Due)
		}
	}
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Out != 0 && s.Status == StepUndoing && !s.again() {
			due = earlier(due, s.Due)
		}
	}
	if t.working() {
		return due
	}
	t.undos(p, func(i int) { due = earlier(due, t.undoBound(p, i)) })
	if due == 0 {
		return t.UpdatedAt
	}
	return due
}

// alarm is when an undo has been tried for so long that an operator is told or, later,
// that it gives up.
func (t *Task) alarm(p *Plan, i int) Instant {
	s := &t.Steps[i]
	if end := t.undoEnd(p, i); s.Alerted || end < s.Since.Add(undoAlertAfter) {
		return end
	}
	return s.Since.Add(undoAlertAfter)
}

// nextAlarm is a step whose undo waits for its agent and has waited too long; -1: there is none.
func (t *Task) nextAlarm(p *Plan, at Instant) int {
	found := -1
	look := func(i int) {
		if s := &t.Steps[i]; found < 0 && s.undoAwaits() && s.Out == 0 && (at >= t.alarm(p, i) || t.undoOld(p, i, at)) {
			found = i
		}
	}
	if t.State == StateUndoing {
		t.undos(p, look)
		return found
	}
	for i := range t.Steps {
		if t.skips(p, i) {
			look(i)
		}
	}
	return found
}
