package core

// NextDue is the earliest instant at which something of the task can be
// overdue: the complete-by of the command out, or the wait that is on, or the
// task's own deadline. The zero Instant means that the task has ended.
func (t *Task) NextDue(p *Plan) Instant {
	if t.State.Ended() {
		return 0
	}
	if i := t.Out(); i >= 0 && !t.Steps[i].again() {
		return t.Steps[i].Due
	}
	if t.State == StateUndoing {
		return t.undoDue(p)
	}
	if i := t.nextStep(p); i >= 0 && t.WaitsFor == "" && t.Steps[i].Due > 0 && t.Steps[i].Awaits == 0 {
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

// openUndo reports whether the undo of a step is still to come, or to be tried again.
func (t *Task) openUndo(p *Plan, i int) bool {
	s := &t.Steps[i]
	return s.MayHaveEffect && p.Steps[i].Undoable && s.Left == ""
}

// undos calls yield with the steps whose undo may leave when its time has come, last
// step first. The order of undo is the reverse of the plan's: a step waits for the undo
// of all later ones. Once the undo of a later step is known to be in trouble, only the
// steps that it came after, directly or through others, wait for it any longer; once it
// has given up, none does.
func (t *Task) undos(p *Plan, yield func(i int)) {
	var after uint64 // steps that one in trouble came after
	for i := len(t.Steps) - 1; i >= 0; i-- {
		open, held := t.openUndo(p, i), after&(1<<uint(i)) != 0
		if open && !held {
			yield(i)
			if !t.Steps[i].Alerted {
				return
			}
		}
		if open || held {
			for _, a := range p.Steps[i].After {
				after |= 1 << uint(a)
			}
		}
	}
}

// undoWhen is when the next try of the undo of step i may leave.
func (t *Task) undoWhen(i int) Instant {
	s := &t.Steps[i]
	if s.Status == StepUndoing {
		return max(s.EffectsPossibleUntil, s.Due)
	}
	return s.EffectsPossibleUntil
}

// nextUndo is the step whose undo leaves next, and when it may; -1: none is left. Of
// several that may leave now those not in trouble come first.
func (t *Task) nextUndo(p *Plan, at Instant) (next int, when Instant) {
	next = -1
	t.undos(p, func(i int) {
		w := max(at, t.undoWhen(i))
		if next < 0 || w < when || w == when && t.Steps[next].Alerted && !t.Steps[i].Alerted {
			next, when = i, w
		}
	})
	return next, when
}

// undoDue is the earliest instant at which something of the undo can be overdue. The
// retries of one that waits for its agent are not: there is no command that the journal
// knows of.
func (t *Task) undoDue(p *Plan) Instant {
	due := Instant(0)
	t.undos(p, func(i int) {
		w := t.undoWhen(i)
		if t.Steps[i].undoAwaits() {
			w = t.alarm(p, i)
		}
		if w = max(w, t.UpdatedAt); due == 0 || w < due {
			due = w
		}
	})
	if due == 0 {
		return t.UpdatedAt
	}
	return due
}

// alarm is when an undo has been tried for so long that an operator is told or, later,
// that it gives up.
func (t *Task) alarm(p *Plan, i int) Instant {
	s := &t.Steps[i]
	if end := s.Since.Add(p.Steps[i].undoPatience()); s.Alerted || end < s.Since.Add(undoAlertAfter) {
		return end
	}
	return s.Since.Add(undoAlertAfter)
}

// nextAlarm is the first alarm of the undos that wait for their agents, and its step;
// -1: none waits.
func (t *Task) nextAlarm(p *Plan) (at int, when Instant) {
	at = -1
	t.undos(p, func(i int) {
		if s := &t.Steps[i]; s.undoAwaits() && s.Out == 0 {
			if w := t.alarm(p, i); at < 0 || w < when {
				at, when = i, w
			}
		}
	})
	return at, when
}
