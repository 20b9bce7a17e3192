package core

// Waits and deadlines: what ends a backoff, a grace, a pause, a silence.

// wake continues after a backoff or a grace. It never ends a command that is
// out: only the supervisor's question does.
func (d *decision) wake() error {
	if d.t.State != StateProcessing && d.t.State != StateUndoing {
		return d.stale("it waits for nothing")
	}
	if i := d.t.Out(); i >= 0 {
		switch s := &d.t.Steps[i]; {
		case !s.again():
			return d.stale("a command is out")
		case d.at < s.Heard:
			d.wakeAt(s.Heard)
		default:
			d.heard(i)
		}
		return nil
	}
	if d.t.State == StateUndoing {
		return d.wakeUndo()
	}
	switch i := d.t.awaiting(); {
	case i >= 0 && d.at >= d.t.Deadline:
		d.moveOn()
	case i >= 0 && d.at < d.t.Steps[i].Due:
		d.wakeForRetry(i)
	case i >= 0:
		d.again(i)
	case d.at < d.t.NextDue(d.p):
		d.wakeAt(d.t.NextDue(d.p))
	default:
		d.moveOn()
	}
	return nil
}

// wakeUndo is wake for a task that is undone.
func (d *decision) wakeUndo() error {
	if a, alarm := d.t.nextAlarm(d.p); a >= 0 && d.at >= alarm {
		d.undoAlarm(a)
		return nil
	}
	switch i, when := d.t.nextUndo(d.p, d.at); {
	case i >= 0 && when > d.at:
		d.wakeForUndo(when)
	case i >= 0 && d.t.Steps[i].undoAwaits():
		d.again(i)
	default:
		d.moveOn()
	}
	return nil
}

// moveOn lets a task whose wait is over advance.
func (d *decision) moveOn() {
	kind := KindStarted
	if d.t.State != StateUndoing && d.at >= d.t.Deadline {
		kind = KindExpired
	}
	step := -1
	if kind == KindExpired {
		step = d.t.awaiting() // its wait ends with this row
	}
	r := d.record(kind, step)
	if step >= 0 {
		r.Reason = "the task's deadline came while step " + d.p.Steps[step].Name + " waited for an agent"
	}
	state := d.t.State
	if state == StatePending {
		state = StateProcessing
	}
	d.finish(&r, state)
}

// claim takes a parked task up again: its agent has room, or its pause is over.
func (d *decision) claim() error {
	if d.t.State != StatePending {
		return d.stale("it is not parked")
	}
	if i := d.t.nextStep(d.p); i >= 0 && d.at < d.t.Deadline {
		switch {
		case d.t.Steps[i].Due > d.at:
			return d.stale("its pause is not over")
		case d.ev.Full&(1<<uint(i)) != 0:
			return d.stale("its agent has no room")
		}
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
	d.out.Row = true // the bound has passed: unless it moves, the question comes again
	switch i := d.t.Out(); {
	case i >= 0 && d.at < d.t.Steps[i].Due:
		d.heard(i)
	case i >= 0:
		d.silent(i)
	case d.t.State == StateUndoing:
		return d.wakeUndo()
	default:
		d.moveOn() // a timer was lost, a pause is over, or the deadline passed while nothing was out
	}
	return nil
}

// silent ends a try that did not answer by its complete-by. A do that is silent
// may still take effect until the grace is over.
func (d *decision) silent(i int) {
	s := &d.t.Steps[i]
	undo := s.Status == StepUndoing
	kind := KindOverdue
	if undo {
		kind = KindUndoOverdue
	}
	r := d.record(kind, i)
	r.Error = "no answer by its complete-by"
	if undo {
		d.afterUndoFailure(&r, i, false)
		return
	}
	r.EffectsPossibleUntil = d.quietAfter(i)
	d.afterFailure(&r, i, false)
}

// raise closes a row that leaves the task where it is and moves the bound of
// its row to due.
func (d *decision) raise(r *Record, due Instant) {
	r.State = d.t.State
	d.t.applyRecord(r)
	d.t.Bound = due
	d.out.Row = true
	d.out.Records = append(d.out.Records, *r)
}
