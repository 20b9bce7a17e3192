package core

import (
	"errors"
	"fmt"
)

// Waits, signals and children: steps that are out without a command at an agent.

// errNoAsker is the failure of a step with an expression where the event cannot answer it.
var errNoAsker = errors.New("its expression cannot be evaluated here")

// noAsker answers the expressions of an event that brings none to answer them.
type noAsker struct{}

func (noAsker) When(int) (bool, error)            { return false, errNoAsker }
func (noAsker) Input(int) ([]byte, error)         { return nil, errNoAsker }
func (noAsker) Until(int) (Instant, error)        { return 0, errNoAsker }
func (noAsker) Elements(int) ([]byte, int, error) { return nil, 0, errNoAsker }
func (noAsker) Result() ([]byte, error)           { return nil, errNoAsker }

// ask is what answers the expressions of the plan.
func (d *decision) ask() Asker {
	if d.ev.Ask == nil {
		return noAsker{}
	}
	return d.ev.Ask
}

// beginWait begins a wait, or ends it at once when its instant has come.
func (d *decision) beginWait(i int) {
	until, err := d.at.Add(d.p.Steps[i].For), error(nil)
	if d.p.Steps[i].Until != "" {
		until, err = d.ask().Until(i)
	}
	switch {
	case err != nil:
		d.failBegin(i, err)
	// A wait that is over before it begins has one row, and no timer.
	case until <= d.at:
		r := d.another(KindDone, i)
		r.StepStatus = StepDone
		d.begin(&r, d.t.State)
	default:
		d.issue(i, false)
		d.row().Due = until
	}
}

// waited ends a wait whose instant has come.
func (d *decision) waited(i int) {
	r := d.record(KindDone, i)
	r.StepStatus = StepDone
	d.finish(&r, StateProcessing)
}

// beginSignal begins to wait for a signal, or takes the one that has come already.
func (d *decision) beginSignal(i int) {
	s := &d.t.Steps[i]
	own := s.Own()
	if !own.Early {
		d.issue(i, false)
		return
	}
	if own.Code != 0 {
		r := d.another(KindRefused, i)
		r.Code, r.Error = own.Code, own.Refusal
		state := d.failing(&r, i, true)
		d.begin(&r, state)
		return
	}
	r := d.another(KindDone, i)
	r.StepStatus, r.Result = StepDone, s.Result
	d.begin(&r, d.t.State)
}

// signal takes the answer that a signal step waits for, or will wait for.
func (d *decision) signal() error {
	i := d.p.StepIndex(d.ev.Step)
	switch {
	case i < 0:
		return d.notAllowed("its plan has no step " + QuoteShort(d.ev.Step))
	case d.t.Steps[i].kind != kindSignal:
		return d.notAllowed("step " + d.ev.Step + " waits for no signal")
	}
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	wrong := d.t.WrongAsk(d.p, i, d.ev.AskToken)
	// Who sends twice hears of the first answer, whatever has become of the step and the task since.
	switch own := s.Own(); {
	case own.Signal != 0:
		return d.notAllowed(fmt.Sprintf("step %s has had its signal, in journal row %d", ps.Name, own.Signal))
	case s.Status == StepSkipped && !d.t.State.Ended():
		return d.notAllowed("step " + ps.Name + " was skipped")
	case s.Status == StepDone:
		return d.notAllowed("step " + ps.Name + " is done")
	case s.Status == StepFailed:
		return d.notAllowed("step " + ps.Name + " has failed: the signal comes too late")
	case d.t.State == StateError:
		return d.notAllowed("the task is in error: send the signal for step " + ps.Name + " when it goes on again")
	case d.t.State != StatePending && d.t.State != StateProcessing:
		return d.notAllowed("the signal for step " + ps.Name + " comes too late")
	case s.Out != 0 && d.at >= s.Due:
		return d.notAllowed("the signal for step " + ps.Name + " comes too late: it had to come by " + stamp(s.Due))
	case wrong != "":
		return d.notAllowed(wrong)
	case len(d.ev.Result) > ps.ResultMax:
		return d.notAllowed(fmt.Sprintf("the payload has %d bytes, want at most %d, the result_max of step %s", len(d.ev.Result), ps.ResultMax, ps.Name))
	}
	if s.Out == 0 {
		// Kept until the step begins, which takes it at once: see beginSignal. Nothing else of the task changes.
		r := d.record(KindSignalled, i)
		r.Result, r.Code, r.Error, r.Due = d.ev.Result, d.ev.Code, cut(d.ev.Error), s.Due // of a pause that is on
		d.t.applyRecord(&r)
		d.out.Records = append(d.out.Records, r)
		d.touchRow()
		return nil
	}
	if d.ev.Code != 0 {
		r := d.record(KindRefused, i)
		r.Code, r.Error = d.ev.Code, cut(d.ev.Error)
		state := d.failing(&r, i, true)
		d.finish(&r, state)
		return nil
	}
	r := d.record(KindDone, i)
	r.StepStatus, r.Result = StepDone, d.ev.Result
	d.finish(&r, StateProcessing)
	return nil
}

// child takes the end of the children of a step, or of their undo. What ends after the step's complete-by is
// silence, whatever the children came to, as it is for a call; the end of their undo counts whenever it comes.
func (d *decision) child() error {
	i := d.t.OutSeq(d.ev.Seq)
	if i < 0 || d.t.State.Ended() || !d.t.Steps[i].kind.parent() {
		return d.stale("no children are out under the number")
	}
	s := &d.t.Steps[i]
	switch undo := s.Status == StepUndoing; {
	case undo && d.ev.Code == 0:
		d.undone(i)
	case undo:
		d.undoFailed(i)
	case d.at >= s.Due:
		d.silent(i)
	case d.ev.Code == 0:
		d.done(i)
	default:
		d.failed(i)
	}
	return nil
}
