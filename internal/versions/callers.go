package versions

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Limits of a look at what calls a plan.
const (
	callersMax  = 50  // steps
	callerTasks = 200 // of a version in a state, the newest
	elementsMax = 100 // of an each
)

// Caller is a step of a stored plan whose next children are of the version that is checked.
type Caller struct {
	Plan    string `json:"plan"`
	Version int64  `json:"version"`
	Step    string `json:"step"`
	Tasks   int    `json:"tasks"`             // in flight or in error, at which the step has not ended; the newest are looked at
	Unfit   int    `json:"unfit"`             // of these, whose input for a child does not fit
	Unknown int    `json:"unknown,omitempty"` // of these, whose input for it is not known yet, or cannot be told
	Task    string `json:"task,omitempty"`    // one of those that do not fit
	Why     string `json:"why,omitempty"`     // it does not
}

// Warning says whose children the version breaks, or may; empty: none that is known.
func (c *Caller) Warning() string {
	switch {
	case c.Unfit > 0:
		return say.Of("version.breaks", "plan", c.Plan, "version", c.Version, "step", c.Step, "unfit", c.Unfit, "n", c.Tasks, "task", c.Task, "why", c.Why)
	case c.Unknown > 0:
		return say.Of("version.may-break", "plan", c.Plan, "version", c.Version, "step", c.Step, "n", c.Unknown)
	}
	return ""
}

// Callers are the steps of stored plans with children of a plan, and what of their tasks in flight its new version breaks.
// There are none of a version that no child takes: a newer one is stored, or it takes any input.
func (c *Checker) Callers(ctx context.Context, to *core.Plan) (callers []Caller, err error) {
	all, err := c.Store.Plans(ctx)
	if _, newer := errors.AsType[core.UnreadablePlans](err); err != nil && !newer {
		return nil, fmt.Errorf("plans: %w", err)
	}
	if to.InputSchema == "" || c.Fits == nil || slices.ContainsFunc(all, func(p core.Plan) bool { return p.Name == to.Name && p.Version > to.Version }) {
		return nil, nil
	}
	for k := range all {
		p := &all[k]
		for i := range p.Steps {
			if p.Steps[i].Child != to.Name {
				continue
			}
			if len(callers) == callersMax {
				return callers, nil
			}
			caller := Caller{Plan: p.Name, Version: p.Version, Step: p.Steps[i].Name}
			for _, state := range inFlight {
				if state == core.StateUndoing {
					continue
				}
				if err := c.look(ctx, to, p, i, state, &caller); err != nil {
					return nil, err
				}
			}
			callers = append(callers, caller)
		}
	}
	return callers, nil
}

// look looks at the tasks of a version in a state.
func (c *Checker) look(ctx context.Context, to, p *core.Plan, step int, state core.State, caller *Caller) error {
	list, err := c.Store.List(ctx, core.Filter{Type: p.Name, PlanVersion: p.Version, State: state, Limit: callerTasks})
	if err != nil {
		return fmt.Errorf("tasks of type %s: %w", p.Name, err)
	}
	return c.read(ctx, list.Tasks, func(saved *core.Saved) {
		if saved.Row.PlanVersion != p.Version { // it was moved meanwhile
			return
		}
		t, err := core.Replay(p, saved)
		if err != nil || saved.Err != nil || t.Steps[step].Status != core.StepWaiting && (p.Steps[step].Kind != core.EachStep || t.Steps[step].Status != core.StepRunning) {
			return // it has its children, or cannot be read
		}
		caller.Tasks++
		why, known := c.unfit(to, p, t, step)
		switch {
		case !known:
			caller.Unknown++
		case why != nil:
			if caller.Unfit++; caller.Task == "" || t.ID < caller.Task {
				caller.Task, caller.Why = t.ID, core.ShortText(why.Error(), 400)
			}
		}
	})
}

// unfit says how an input that the step would give its child now does not fit; known: whether it can be told now.
func (c *Checker) unfit(to, p *core.Plan, t *core.Task, step int) (why error, known bool) {
	s := &p.Steps[step]
	inputs := [][]byte{t.Seen(step)}
	var asker core.Asker
	if c.Evaluate != nil {
		asker = c.Evaluate(p, t)
	}
	switch {
	case s.Kind == core.EachStep && (asker == nil || c.Children == nil), s.Input != "" && asker == nil:
		return nil, false
	case s.Kind == core.EachStep:
		list, _, err := asker.Elements(step)
		if err != nil {
			return nil, false
		}
		inputs = nil
		input := c.Children(p, t, step)
		for i, at := range core.Elements(list) {
			if i == elementsMax {
				break
			}
			one, err := input(i, list[at[0]:at[1]])
			if err != nil {
				return nil, false
			}
			inputs = append(inputs, one)
		}
	case s.Input != "":
		one, err := asker.Input(step)
		if err != nil {
			return nil, false
		}
		inputs[0] = one
	}
	for _, one := range inputs {
		if err := to.FitsInput(one, c.Fits); err != nil {
			return err, true
		}
	}
	return nil, true
}
