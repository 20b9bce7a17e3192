package core

// Waits and deadlines: what ends a backoff, a grace, a pause, a silence.

// wake continues after a backoff or a grace. It never ends a command that is out: only the supervisor's question
// does. A wait is done only in the time for work; after that the deadline undoes the task.
func (d *decision) wake() error {
	if !d.t.Active() {
		return d.stale("it waits for nothing")
	}
	did, over := false, false
	for i := range d.t.Steps { // retries that no one has given back
		if s := &d.t.Steps[i]; s.again() && d.at >= s.Heard {
			d.heard(i)
			did = true
		}
	}
	for i := range d.t.Steps {
		if d.t.waitIsOver(i, d.at) && d.t.State == StateProcessing && d.at < d.t.workUntil(d.p) {
			d.waited(i)
			did = true
		}
		if s := &d.t.Steps[i]; s.probing() && d.at >= s.Due {
			d.probeOver(i)
			over = true
		}
	}
	if a := d.t.nextAlarm(d.p, d.at); a >= 0 {
		d.undoAlarm(a)
		return nil
	}
	switch {
	case d.t.State.Ended():
		return nil
	case d.movable():
		d.moveOn()
		return nil
	case d.retryNow():
		did = true
	case over: // its row says when to wake
		return nil
	}
	if d.wakeNext() || did {
		return nil
	}
	return d.stale("a command is out")
}

// waitIsOver reports whether step i is a wait whose instant has come.
func (t *Task) waitIsOver(i int, at Instant) bool {
	s := &t.Steps[i]
	return s.kind == kindWait && s.Out != 0 && at >= s.Due
}

// retryNow lets the retries leave that steps which wait for their agents have now, and reports whether there is one.
func (d *decision) retryNow() bool {
	did := false
	for i, n := range d.t.ahead(d.p) {
		if s := &d.t.Steps[i]; (n.verb == verbBegin || n.verb == verbUndo) && s.Awaits != 0 && s.Out == 0 && d.at >= n.when {
			d.again(i)
			did = true
		}
	}
	return did
}

// movable reports whether the task can go on by a row: something may begin, its deadline has come, or nothing is
// left. What it says must agree with what forward and backward then do: a row that moves nothing would be followed
// by the next one at once. Retries of waits are not counted, because they leave without a row: see retryNow. A task
// that the owner holds for no step any more and that only lacks room needs a row as well, by which it is parked; so does
// one that no owner has in memory when its start or the end of its pause finds no room: it is in no agent's queue yet.
func (d *decision) movable() bool {
	t := d.t
	if t.State != StateUndoing && t.StartAt > d.at {
		return false
	}
	late, nothing, active, full, parks := d.at >= t.workUntil(d.p), true, false, false, false
	for i, n := range t.ahead(d.p) {
		s := &t.Steps[i]
		nothing, active = false, active || s.active(n.verb, d.at) || s.Out == 0 && s.Due > d.at
		room := s.kind != kindCall || !d.ev.Full.Has(i)
		switch {
		case late && n.ends:
			return true
		case n.verb == verbUndo && s.Awaits == 0 && d.at >= n.when:
			return true
		case n.verb == verbBegin && (t.keyOver(d.p, i, d.at) || s.Awaits == 0 && d.at >= n.when && (room || d.backTooLate(i))):
			return true
		}
		full = full || n.verb == verbBegin && !room
		parks = parks || n.verb == verbBegin && !room && d.at >= n.when
	}
	return nothing && (t.State == StateUndoing || t.over()) || full && !active && t.State == StateProcessing ||
		parks && t.State == StatePending && t.WaitsFor == "" // then it is parked
}

// moveOn lets a task whose wait is over advance. Its row is of no step, unless the deadline ends a step's wait for
// its agent, which is then the reason.
func (d *decision) moveOn() {
	kind := KindStarted
	if d.t.State != StateUndoing && d.at >= d.t.workUntil(d.p) {
		kind = KindExpired
	}
	step := -1
	if kind == KindExpired {
		step = d.t.awaiting() // its wait ends with this row
	}
	r := d.record(kind, step)
	if step >= 0 {
		r.Reason = d.waitedTooLong(step)
	}
	d.finish(&r, d.t.goesOn())
}

// waitedTooLong is the reason of a task whose deadline ends a wait for an agent: of one for an attempt that is still at work, what
// is known of that.
func (d *decision) waitedTooLong(step int) string {
	why := "the task's deadline came while step " + d.p.Steps[step].Name
	if d.t.Steps[step].Said != CodeTooEarly {
		return why + " waited for agent " + d.p.Steps[step].Agent
	}
	return cut(d.t.Why + "; " + why + " was at work elsewhere")
}

// claim takes up a task with a step that waits for room at its agent, or for the end of its pause. It may be one
// that its owner holds: a branch of it is blocked. Stale says to the scheduler that the room has gone to another,
// or that the task moved on.
func (d *decision) claim() error {
	if d.t.State != StatePending && d.t.State != StateProcessing {
		return d.stale("it is not parked")
	}
	_, _, plan := AwaitedPlan(d.t.WaitsFor) // which is known now, and says when it is to be looked at
	if d.t.StartAt > d.at && !plan {
		return d.stale("it does not begin yet")
	}
	if plan || d.movable() {
		d.moveOn()
		return nil
	}
	if i := d.t.nextStep(d.p); i >= 0 && d.t.Steps[i].Due > d.at {
		return d.stale("its pause is not over")
	}
	return d.stale("its agent has no room")
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
	for i := range d.t.Steps {
		s := &d.t.Steps[i]
		switch {
		case d.t.State.Ended():
			return nil
		case s.probing() && d.at >= s.Due:
			d.probeOver(i)
		case s.Out == 0:
			continue
		case s.again(): // without a row its silence could not be journalled: it is made a command first
			if d.heard(i); d.at >= s.Due {
				d.silent(i)
			}
		case d.at < s.Due:
			continue
		case s.kind == kindWait && d.at >= d.t.workUntil(d.p):
			continue // the task's deadline came first
		case s.kind == kindWait:
			d.waited(i)
		default:
			d.silent(i)
		}
	}
	if d.t.State.Ended() {
		return nil
	}
	switch alarm := d.t.nextAlarm(d.p, d.at); {
	case alarm >= 0:
		d.undoAlarm(alarm)
	case d.movable():
		d.moveOn() // a timer was lost, a pause is over, or the deadline passed while nothing was out
	default:
		d.retryNow()
		d.touchRow()
		d.stillDue()
	}
	return nil
}

// stillDue answers a question that changed nothing: a step waits for room at its agent, and another one is at work. The
// bound moves to what is due of that, or the question would come again until there is room.
func (d *decision) stillDue() {
	asked := *d.t
	asked.UpdatedAt = d.at
	if due := asked.NextDue(d.p); len(d.out.Records) == 0 && due > d.at && d.t.Bound <= d.at {
		r := d.record(KindAsked, -1)
		d.raise(&r, due)
	}
}

// silent ends an attempt that did not answer by its complete-by. A do that is silent
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
	// Only of a do that was sent once, and was the first, would a late refusal prove that there is no effect.
	only := s.firstCopy()
	if !s.Effect.refusedLate() {
		r.EffectsPossibleUntil = d.quietAfter(i)
	}
	state := d.t.State
	if s.kind != kindCall || !d.probe(&r, i) {
		state = d.failing(&r, i, false)
	}
	if only && s.kind == kindCall {
		s.Effect.copies = copyOnly
	}
	d.finish(&r, state)
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
