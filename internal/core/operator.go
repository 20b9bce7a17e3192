package core

// What people ask for, and what only a person can settle.

// resubmit starts again: at the failed step of a task in error, or at the first
// step, in a new round with new keys, of a task that was undone.
func (d *decision) resubmit() error {
	step, err := d.restart()
	if err != nil {
		return err
	}
	until, err := d.newDeadline()
	if err != nil {
		return err
	}
	r := d.record(KindResubmitted, step)
	r.StepStatus, r.Attempt, r.Deadline = StepWaiting, 0, until
	if d.t.State == StateUndone {
		r.Round++
	}
	d.finish(&r, StateProcessing)
	return nil
}

// restart finds the step that a resubmit starts from; -1: the first of a new
// round.
func (d *decision) restart() (int, error) {
	switch d.t.State {
	case StateUndone:
		if d.ev.Step != "" && d.ev.Step != d.p.Steps[0].Name {
			return -1, d.notAllowed("after an undo a task starts again at its first step, " + d.p.Steps[0].Name)
		}
		return -1, nil
	case StateError:
	default:
		return -1, d.notAllowed("only a task in error or undone can be resubmitted")
	}
	at := -1
	for i := range d.t.Steps {
		switch d.t.Steps[i].Status {
		case StepUndoing, StepUndone:
			return -1, d.notAllowed("its undo has begun: finish the undo before a resubmit")
		case StepRunning:
			return -1, d.notAllowed("a command was out when it was stopped: undo it")
		case StepFailed:
			at = i
		}
	}
	if at < 0 { // it was stopped between two tries
		at = d.t.nextStep(d.p)
	}
	if at < 0 {
		return -1, d.notAllowed("all its steps are done: undo it or resolve it")
	}
	if d.ev.Step != "" && d.p.Steps[at].Name != d.ev.Step {
		return -1, d.notAllowed("step " + QuoteShort(d.ev.Step) + " is not the one to start from; step " + d.p.Steps[at].Name + " is")
	}
	return at, nil
}

// newDeadline is the deadline that a resubmit gives the task.
func (d *decision) newDeadline() (Instant, error) {
	until := d.ev.Until
	if until == 0 {
		until = d.at.Add(d.p.CompleteBy)
	}
	if until <= d.at {
		return 0, d.notAllowed("the new deadline " + stamp(until) + " has passed")
	}
	return until, nil
}

// resolve records that a person settled a task in error by hand.
func (d *decision) resolve() error {
	if d.t.State != StateError {
		return d.notAllowed("only a task in error can be resolved")
	}
	if d.ev.As != StateProcessed && d.ev.As != StateUndone {
		return d.notAllowed("it can be resolved as processed or undone, not as " + QuoteShort(string(d.ev.As)))
	}
	r := d.record(KindResolved, -1)
	d.finish(&r, d.ev.As)
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
	if d.ev.Until <= d.at {
		return d.notAllowed("the new deadline " + stamp(d.ev.Until) + " has passed")
	}
	r := d.record(KindExtended, -1)
	r.Deadline = d.ev.Until
	d.t.foldBegin(&r) // the due time follows from the new deadline
	d.raise(&r, d.t.NextDue(d.p))
	return nil
}

// poison puts the task in error, whatever it was doing, with its input kept.
func (d *decision) poison() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	d.journalRetry()
	i := d.t.Out()
	if i < 0 {
		i = d.t.awaiting()
	}
	r := d.record(KindPoisoned, i)
	r.Error = cut(d.ev.Error)
	if i >= 0 && d.t.Steps[i].Status == StepRunning {
		r.StepStatus, r.Quiet = StepFailed, d.quietAfter(i)
	}
	if i >= 0 && d.t.Steps[i].Awaits != 0 && d.t.Steps[i].Status == StepWaiting {
		r.Quiet = d.t.retriesQuiet(d.p, i, d.at) // the owner may have just replayed it
	}
	d.finish(&r, StateError)
	return nil
}
