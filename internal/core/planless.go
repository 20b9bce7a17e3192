package core

// Tasks without steps: their plan is unknown, it cannot be read, or they were cancelled before they
// were submitted. PlanVersion 0 says that no step of the task ever began.

// withoutPlan serves what still makes sense without steps. When steps may have
// begun that are not known any more, only a person can say what the task came to.
func (d *decision) withoutPlan() error {
	unread := d.t.unread()
	switch d.ev.Kind {
	case EventOverdue:
		if unread {
			return d.overdueUnread()
		}
	case EventResolve:
		return d.resolve()
	case EventPoison:
		return d.poisonPlanless()
	case EventResubmit, EventEdit:
		return d.resubmitPlanless()
	case EventExtend, EventAccept:
		return d.notAllowed("its plan is unknown")
	case EventCancel, EventUndo:
		if unread {
			return d.undoUnread()
		}
		return d.undoPlanless()
	}
	return d.stale("its plan is unknown")
}

// undoPlanless ends a task that was born in error because its plan was unknown: no step of it ever began, so that
// there is nothing to undo. Where a plan was known and is gone, steps may have left effects: only a person can say.
func (d *decision) undoPlanless() error {
	if d.t.PlanVersion != 0 {
		return d.notAllowed("its plan is gone: look at what its steps left, then resolve it")
	}
	if d.t.State != StateError {
		return d.stale("it has no steps")
	}
	kind := KindCancelled
	if d.ev.Kind == EventUndo {
		kind = KindUndoAsked
	}
	r := d.record(kind, -1)
	d.finish(&r, StateUndone)
	return nil
}

// poisonPlanless puts a task in error that has no steps or whose steps are not known: the database refuses its row,
// its plan is gone, or its deadline passed before a node could read the plan, and it may have run before the
// database went back.
func (d *decision) poisonPlanless() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	d.t.Steps = nil // without its plan they mean nothing
	r := d.record(KindPoisoned, -1)
	r.Error = cut(d.ev.Error)
	d.finish(&r, StateError)
	return nil
}

// resubmitPlanless starts a task whose plan was unknown when it came and is
// known now.
func (d *decision) resubmitPlanless() error {
	switch {
	case d.t.State != StateError:
		return d.notAllowed("it never had a step to start again")
	case d.p == nil || d.t.PlanVersion != 0:
		return d.notAllowed("its plan is unknown")
	case d.ev.Step != "" && d.ev.Step != d.p.Steps[0].Name:
		return d.notAllowed("it starts at its first step, " + d.p.Steps[0].Name)
	}
	input, err := d.newInput()
	if err != nil {
		return err
	}
	until, err := d.newDeadline()
	if err != nil {
		return err
	}
	d.t.PlanVersion = d.p.Version
	d.t.Steps = newSteps(d.p)
	r := d.record(KindResubmitted, -1)
	r.Deadline, r.Input = until, input
	d.finish(&r, StateProcessing)
	if d.ev.WentBack != 0 && !d.t.State.Ended() { // in the time that is lost it may have begun as well
		d.noteBefore()
		d.touchRow()
	}
	return nil
}
