package core

import "fmt"

// What people ask for, and what only a person can settle.

// EditsMax bounds the edits of one round of a task: the inputs before them are kept for the undos of what ran by them.
const EditsMax = 16

// resubmit starts again: at the failed step of a task in error, or at the first
// step, in a new round with new keys, of a task that was undone. An edit is a
// resubmit with another input. What ran by the old one and is not tried again is undone by it.
func (d *decision) resubmit() error {
	step := -1
	if d.t.State == StateUndone {
		if d.ev.Found != "" {
			return d.notAllowed("after an undo its keys are new: nothing is to be found")
		}
		if d.ev.Step != "" && d.ev.Step != d.p.Steps[0].Name {
			return d.notAllowed("after an undo a task starts again at its first step, " + d.p.Steps[0].Name)
		}
	} else {
		var err error
		if step, err = d.stopped("only a task in error or undone can be resubmitted"); err != nil {
			return err
		}
	}
	input, err := d.newInput()
	if err != nil {
		return err
	}
	until, err := d.newDeadline()
	if err != nil {
		return err
	}
	if step >= 0 {
		if err := d.found(step); err != nil {
			return err
		}
	}
	if why := d.t.lostStep(d.p, d.ev.WentBack != 0); why != "" && d.t.State == StateError {
		return d.notAllowed(why + ": undo it, or resolve it")
	}
	// What the database lost, then what a person found, then the request: each row goes by those before it.
	d.noteBefore()
	d.noteFound(step)
	r := d.record(KindResubmitted, step)
	r.StepStatus, r.Attempt, r.Deadline, r.Input = StepWaiting, 0, until, input
	switch again := d.t.opensAgain(d.p); {
	case d.t.State == StateUndone:
		r.Round++
	case input != nil && !again.Empty():
		r.Result = stepList(again)
	}
	d.finish(&r, StateProcessing)
	return nil
}

// accept lets the step that a task in error stopped at count as done, with a given result, and goes on. It may have
// an effect, by whatever hand: it is undone with the task. After the database went back it is not allowed any more: a
// service takes the undo of a key once, and may have taken it in the time that is lost; what is accepted then could not
// be undone.
func (d *decision) accept() error {
	step, err := d.stopped("only a task in error has a step to accept")
	if err != nil {
		return err
	}
	if d.ev.WentBack != 0 || d.t.WentBackAt != 0 {
		return d.notAllowed("the database went back since it began, and whether step " + d.p.Steps[step].Name + " was undone meanwhile is not known: resubmit it, undo it or resolve it")
	}
	if d.p.Steps[step].Kind == WaitStep {
		return d.notAllowed("step " + d.p.Steps[step].Name + " is a wait, which has no result: resubmit it, edit the input, undo it or resolve it")
	}
	if n, most := len(d.ev.Result), d.p.Steps[step].ResultMax; n == 0 || n > most {
		return d.notAllowed(fmt.Sprintf("the result has %d bytes, want 1 to %d, the result_max of step %s", n, most, d.p.Steps[step].Name))
	}
	until, err := d.newDeadline()
	if err != nil {
		return err
	}
	r := d.record(KindAccepted, step)
	r.StepStatus, r.Result, r.Deadline = StepDone, d.ev.Result, until
	d.finish(&r, StateProcessing)
	return nil
}

// stopped finds the step that a task in error stopped at, and that may be tried again or accepted. why refuses a task
// in another state.
func (d *decision) stopped(why string) (int, error) {
	if d.t.State != StateError {
		return -1, d.notAllowed(why)
	}
	at, why := d.t.stoppedAt(d.p, d.ev.Step)
	if at < 0 {
		return -1, d.notAllowed(why)
	}
	if d.ev.Step != "" && d.p.Steps[at].Name != d.ev.Step {
		return -1, d.notAllowed("step " + QuoteShort(d.ev.Step) + " is not the one to start from; step " + d.p.Steps[at].Name + " is")
	}
	return at, nil
}

// stoppedAt is the step that a task in error stopped at, of several the one that is named or the last, or -1 and
// why it cannot go on from there. An undo that has begun has set a tombstone under the step's key, so that a do
// would be refused.
func (t *Task) stoppedAt(p *Plan, named string) (at int, why string) {
	at = -1
	for i := range t.Steps {
		switch t.Steps[i].Status {
		case StepUndoing, StepUndone:
			return -1, "its undo has begun: finish the undo before a resubmit"
		case StepRunning:
			return -1, "a command was out when it was stopped: undo it"
		case StepFailed:
			if at < 0 || p.Steps[at].Name != named {
				at = i
			}
		}
	}
	if at < 0 { // it was stopped between two attempts
		at = t.nextStep(p)
	}
	if at < 0 {
		return -1, "all its steps are done: undo it or resolve it"
	}
	return at, ""
}

// newInput is the input that an edit gives the task; nil: it keeps its own.
func (d *decision) newInput() ([]byte, error) {
	if d.ev.Kind != EventEdit {
		return nil, nil
	}
	if n := len(d.ev.Input); n == 0 || n > d.p.InputMax {
		return nil, d.notAllowed(fmt.Sprintf("the new input has %d bytes, want 1 to %d, the input_max of plan %s", n, d.p.InputMax, d.p.Name))
	}
	if len(d.t.Earlier) >= EditsMax && d.t.State != StateUndone {
		return nil, d.notAllowed(fmt.Sprintf("it has been edited %d times since its last undo, the limit: undo it first", len(d.t.Earlier)))
	}
	return d.ev.Input, nil
}

// newDeadline is the deadline that a resubmit or an accept gives the task. Its own has usually passed, or leaves
// too little: where none is named, the plan's time counts from now, or from the start of a task that starts later. A later
// one is kept: it was the submitter's word, or an operator's.
func (d *decision) newDeadline() (Instant, error) {
	until, from := d.ev.Until, max(d.at, d.t.StartAt)
	if until == 0 {
		until = max(from.Add(d.p.CompleteBy), d.t.Deadline)
	}
	switch {
	case until <= d.at:
		return 0, d.notAllowed("the new deadline " + stamp(until) + " has passed")
	case until <= from:
		return 0, d.notAllowed("the new deadline " + stamp(until) + " is not after its start, " + stamp(from))
	}
	return until, nil
}

// resolve records that a person settled a task in error by hand. Nothing is undone: effects that may be there stay
// so, and the task tells them together with the person's word.
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
	d.t.beginTransition(&r) // the due time follows from the new deadline
	d.raise(&r, d.t.NextDue(d.p))
	return nil
}

// poison puts the task in error, whatever it was doing, with its input kept. Each command that is out, and each
// wait, gets a row: the last is that of the task's end. What has left may still take effect, and a later undo must
// know until when.
func (d *decision) poison() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	last := -1
	for i := range d.t.Steps {
		if s := &d.t.Steps[i]; s.Out != 0 && s.kind == kindCall {
			last = i
		}
	}
	if last < 0 {
		last = d.t.awaiting()
	}
	for i := range d.t.Steps {
		if s := &d.t.Steps[i]; i != last && (s.Out != 0 && s.kind == kindCall || s.Awaits != 0) {
			r := d.poisoned(i)
			d.t.applyRecord(&r)
			d.out.Records = append(d.out.Records, r)
		}
	}
	r := d.poisoned(last)
	d.finish(&r, StateError)
	return nil
}

// poisoned is the row that ends what is out of step i, or its wait for an agent; -1: of none.
func (d *decision) poisoned(i int) Record {
	if i >= 0 && d.t.Steps[i].again() {
		d.heard(i)
	}
	r := d.record(KindPoisoned, i)
	r.Error = cut(d.ev.Error)
	if i >= 0 && d.t.Steps[i].Status == StepRunning {
		r.StepStatus, r.EffectsPossibleUntil = StepFailed, d.quietAfter(i)
	}
	if i >= 0 && d.t.Steps[i].Awaits != 0 && d.t.Steps[i].Status == StepWaiting {
		r.EffectsPossibleUntil = d.t.retriesQuiet(d.p, i, d.at) // the owner may have just replayed it
	}
	return r
}
