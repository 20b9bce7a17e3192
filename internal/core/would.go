package core

import "fmt"

// What a door says of a request before it is stored: the owner's own decision, played on what the door has read.

// Event is the request as its task's owner applies it; at is when it reads it. A signal without a result refuses.
func (c *Control) Event(at Instant) Event {
	ev := Event{
		Kind: c.Kind, At: at, Actor: c.Actor, Reason: c.Reason, Type: c.Type, Step: c.Step, Until: c.Until, As: c.As,
		IfSeq: c.IfSeq, Input: c.Input, Result: c.Result, Found: c.Found, Version: c.Version, AskToken: c.Ask,
	}
	if c.Kind == EventSignal && len(c.Result) == 0 {
		ev.Code, ev.Error = CodeRefused, c.Reason
	}
	return ev
}

// Plan is the plan that the view was made by; nil: it is not known, or the view is not of a journal.
func (v *View) Plan() *Plan { return v.plan }

// Would says what the task's owner would make of a request now, by the journal that the view was made of: nil, or an error
// that wraps ErrNotAllowed or ErrStale. Nothing changes. p is the plan to go by: the view's own, or one that is known only
// since. ok is false for a view without a journal: of a list, or of a task whose journal is forgotten.
func (v *View) Would(p *Plan, ev *Event) (ok bool, err error) {
	if v.task == nil {
		return false, nil
	}
	return true, v.task.would(p, *ev)
}

// Answers is the step whose result a request gives: of a signal that which it names, of an accept that which the task
// stopped at; -1: none.
func (t *Task) Answers(p *Plan, ev *Event) int {
	if p == nil || t == nil || t.Steps == nil {
		return -1
	}
	switch ev.Kind {
	case EventSignal:
		return p.StepIndex(ev.Step)
	case EventAccept:
		at, _ := t.stoppedAt(p, ev.Step)
		return at
	}
	return -1
}

// Answers is the same of the task of a view.
func (v *View) Answers(p *Plan, ev *Event) int { return v.task.Answers(p, ev) }

// FitsInput says how an input does not fit the plan's input schema; check is nil: all fits.
func (p *Plan) FitsInput(input []byte, check func(*Plan, []byte) error) error {
	if p.InputSchema == "" || check == nil {
		return nil
	}
	if err := check(p, input); err != nil {
		return fmt.Errorf("input does not fit the input schema of plan %s version %d: %w", p.Name, p.Version, err)
	}
	return nil
}

// Fits says how what a request gives does not fit the schemas of the task's plan: the input of an edit, those of a task that
// is moved to another version, the result of a signal or an accept. input and answer check by a schema; nil: all fits.
func (t *Task) Fits(p *Plan, ev *Event, input func(*Plan, []byte) error, answer func(*Step, []byte) error) error {
	var by *Plan
	var inputs [][]byte
	switch {
	case t == nil:
	case ev.Kind == EventEdit:
		by, inputs = p, [][]byte{ev.Input}
	case ev.Kind == EventMigrate:
		by, inputs = ev.Plan, t.Inputs()
	}
	if by != nil {
		for _, in := range inputs {
			if err := by.FitsInput(in, input); err != nil {
				return err
			}
		}
	}
	i := t.Answers(p, ev)
	if i < 0 || p.Steps[i].Schema == "" || answer == nil || ev.Code != 0 { // a refusal gives no result
		return nil
	}
	if err := answer(&p.Steps[i], ev.Result); err != nil {
		return fmt.Errorf("payload does not fit the schema of step %s: %w", p.Steps[i].Name, err)
	}
	return nil
}

// Fits is the same of the task of a view.
func (v *View) Fits(p *Plan, ev *Event, input func(*Plan, []byte) error, answer func(*Step, []byte) error) error {
	return v.task.Fits(p, ev, input, answer)
}
