package duly

import (
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// Wait is a step that waits for an instant. A task that waits holds no memory of the server, and waits through
// restarts.
type Wait[In any] struct{ def definition }

// WaitEnd says until when a [Wait] lasts: [For] or [Until].
type WaitEnd struct {
	timed      bool // d counts
	d          time.Duration
	expression string
}

// For ends a wait so long after it has begun.
func For(d time.Duration) WaitEnd { return WaitEnd{timed: true, d: d} }

// Until ends a wait at an instant, an expression in CEL over input and results that is a timestamp:
//
//	duly.Until("timestamp(input.departure) - duration('24h')")
//
// One that has passed ends the wait at once.
func Until(expression string) WaitEnd { return WaitEnd{expression: expression} }

// NewWait defines a wait. name is unique within the plan, 1 to 64 of A–Z a–z 0–9 _ -. It must end before the task's
// deadline ([TaskCompleteBy]).
func NewWait[In any](name string, end WaitEnd, options ...WaitOption) *Wait[In] {
	w := &Wait[In]{define(name, core.WaitStep)}
	if end.timed {
		w.def.duration("For", &w.def.step.For, end.d)
	} else {
		w.def.expression("Until", &w.def.step.Until, end.expression)
	}
	for _, option := range options {
		option.forWait(&w.def)
	}
	return w
}

// Name is the step's name.
func (w *Wait[In]) Name() string {
	if w == nil {
		return "" // refused where it is used
	}
	return w.def.step.Name
}

func (w *Wait[In]) takes(In) {}
func (w *Wait[In]) define() definition {
	if w == nil {
		return definition{err: errNilStep}
	}
	return w.def
}

// Giving is a step that takes In and has a result Out: a [Check], a [Step] or a [Child].
type Giving[In, Out any] interface {
	StepOf[In]
	gives() Out
}

// Mapped is a step in a plan with another input: see [With].
type Mapped[In, Out any] struct{ def definition }

// With makes of a step, whose handlers take what they take, a step of a plan whose input is In. expression is CEL over
// the task's input and the results of earlier steps, and makes the step's own input:
//
//	var Ship = duly.NewStep[Parcel, Label]("ship", "parcel.send")
//	…
//	duly.NewPlan("order", 1, Charge, duly.With[Order](Ship, "{'to': input.address, 'paid': results.charge.id}"))
//
// The handlers are served, and its options are given, at the step itself.
func With[In, StepIn, Out any](step Giving[StepIn, Out], expression string) *Mapped[In, Out] {
	if step == nil {
		return &Mapped[In, Out]{definition{err: errNilStep}}
	}
	m := &Mapped[In, Out]{step.define()}
	m.def.expression("With", &m.def.step.Input, expression)
	return m
}

// Name is the step's name.
func (m *Mapped[In, Out]) Name() string {
	if m == nil {
		return "" // refused where it is used
	}
	return m.def.step.Name
}

// Result reads what the step answered, in a later step of the same task.
func (m *Mapped[In, Out]) Result(in Earlier[In]) (Out, error) { return result[Out](m.Name(), in) }

func (m *Mapped[In, Out]) takes(In)          {}
func (m *Mapped[In, Out]) gives() (none Out) { return none }
func (m *Mapped[In, Out]) define() definition {
	if m == nil {
		return definition{err: errNilStep}
	}
	return m.def
}

// Child is a step that is a task of another plan: it is done when that task is processed, and fails when it is undone.
// When the parent is undone, so is the child, also after it was processed. In is the input of the child, Out its
// result.
type Child[In, Out any] struct{ def definition }

// PlanOf is a plan whose tasks take In and have the result Out: a [Plan], whose Out is [NoResult], or a
// [PlanWithResult].
type PlanOf[In, Out any] interface {
	Name() string
	Spec() (core.Plan, error)
	takes(In)
	gives() Out
}

// NewChild defines a child of a plan, whose newest version is taken. name is unique within the parent's plan, 1 to 64
// of A–Z a–z 0–9 _ -. The child's input is the parent's, or what [With] makes of it:
//
//	BookFlight = duly.ResultOf(duly.NewPlan("flight", 1, Search, Reserve), Reserve)
//	Flight     = duly.NewChild("flight", BookFlight)
//	Travel     = duly.NewPlan("travel", 1, duly.With[Trip](Flight, "input.flight"))
func NewChild[In, Out any](name string, plan PlanOf[In, Out], options ...ChildOption) *Child[In, Out] {
	c := &Child[In, Out]{define(name, core.TaskStep)}
	c.def.child(plan)
	for _, option := range options {
		option.forChild(&c.def)
	}
	return c
}

// child names the plan of a step's children. What cannot be is refused where the step is used.
func (d *definition) child(plan interface{ Spec() (core.Plan, error) }) {
	if plan == nil {
		d.refuse("its plan is nil")
		return
	}
	spec, err := plan.Spec()
	if err != nil {
		d.refuse("its plan: %w", err)
		return
	}
	d.step.Child = spec.Name
}

// Name is the step's name.
func (c *Child[In, Out]) Name() string {
	if c == nil {
		return "" // refused where it is used
	}
	return c.def.step.Name
}

// Result reads the result of the child, in a later step of the same task.
func (c *Child[In, Out]) Result(in Earlier[In]) (Out, error) { return result[Out](c.Name(), in) }

func (c *Child[In, Out]) takes(In)          {}
func (c *Child[In, Out]) gives() (none Out) { return none }
func (c *Child[In, Out]) define() definition {
	if c == nil {
		return definition{err: errNilStep}
	}
	return c.def
}

// Each is a step that has a child for each element of a list. It is done when all of them have ended, and fails when
// more than [FailuresMax] of them were undone. In is the input of the parent.
type Each[In any] struct{ def definition }

// Counts is the result of an [Each].
type Counts struct {
	Done   int `json:"done"`   // children that were processed
	Failed int `json:"failed"` // that were undone
}

// ElementList is the list of an [Each]: see [Elements].
type ElementList struct {
	expression string
	most       int
}

// Elements is an expression in CEL over input and results that is a list; each element is the input of one child,
// or what [ElementInput] makes of it. A list of more than most elements, 1 to 100,000, fails the step.
func Elements(expression string, most int) ElementList { return ElementList{expression, most} }

// NewEach defines a step with a child of a plan for each element, whose newest version is taken. name is unique within
// the parent's plan, 1 to 64 of A–Z a–z 0–9 _ -.
func NewEach[In, ChildIn, Out any](name string, plan PlanOf[ChildIn, Out], elements ElementList, options ...EachOption) *Each[In] {
	e := &Each[In]{define(name, core.EachStep)}
	e.def.child(plan)
	e.def.expression("Elements", &e.def.step.Elements, elements.expression)
	e.def.count("Elements", &e.def.step.ElementsMax, elements.most, core.ElementsLimit)
	for _, option := range options {
		option.forEach(&e.def)
	}
	return e
}

// Name is the step's name.
func (e *Each[In]) Name() string {
	if e == nil {
		return "" // refused where it is used
	}
	return e.def.step.Name
}

// Result reads how many children there were, in a later step of the same task.
func (e *Each[In]) Result(in Earlier[In]) (Counts, error) { return result[Counts](e.Name(), in) }

func (e *Each[In]) takes(In) {}
func (e *Each[In]) define() definition {
	if e == nil {
		return definition{err: errNilStep}
	}
	return e.def
}

// NoResult is the result of a task whose plan has none.
type NoResult struct{}

// PlanWithResult is a [Plan] whose tasks have a result of the type Out.
type PlanWithResult[In, Out any] struct{ *Plan[In] }

// ResultAs says of which type the result of a plan's tasks is: what the expression of [Result] makes. A plan without
// one is refused where it is used.
func ResultAs[Out, In any](plan *Plan[In]) *PlanWithResult[In, Out] {
	with := plan.With()
	if with.said.Result == "" {
		with.refuse(fmt.Errorf("plan %s: ResultAs: it has no result, see Result", with.said.Name))
	}
	return &PlanWithResult[In, Out]{with}
}

// ResultOf makes the result of a step that of the plan's tasks. A step that is not of the plan is refused where the
// plan is used.
func ResultOf[In, Out any](plan *Plan[In], step Giving[In, Out]) *PlanWithResult[In, Out] {
	if step == nil || step.Name() == "" {
		with := plan.With()
		with.refuse(fmt.Errorf("plan %s: ResultOf: %w", with.said.Name, errNilStep))
		return &PlanWithResult[In, Out]{with}
	}
	with := plan.With(Result(fmt.Sprintf("results[%q]", step.Name())))
	if with.steps[step.Name()] != step.define().self {
		with.refuse(fmt.Errorf("plan %s: ResultOf: %s is not a step of it", with.said.Name, step.Name()))
	}
	return &PlanWithResult[In, Out]{with}
}

func (p *PlanWithResult[In, Out]) gives() (none Out) { return none }

// With returns the plan with options applied; the receiver stays as it is.
func (p *PlanWithResult[In, Out]) With(options ...PlanOption) *PlanWithResult[In, Out] {
	return &PlanWithResult[In, Out]{p.Plan.With(options...)}
}
