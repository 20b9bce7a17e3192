package expr

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"duly.dev/duly/internal/core"
)

// Bind is what answers the expressions for a task, as it is when it is asked.
func (p *Program) Bind(t *core.Task) core.Asker { return &bound{p, t} }

// bound implements core.Asker.
type bound struct {
	p *Program
	t *core.Task
}

func (b *bound) When(step int) (bool, error)            { return b.p.When(b.t, step) }
func (b *bound) Input(step int) ([]byte, error)         { return b.p.Input(b.t, step) }
func (b *bound) Until(step int) (core.Instant, error)   { return b.p.Until(b.t, step) }
func (b *bound) Elements(step int) ([]byte, int, error) { return b.p.Elements(b.t, step) }
func (b *bound) Result() ([]byte, error)                { return b.p.Result(b.t) }

// When is whether a step begins.
func (p *Program) When(t *core.Task, step int) (bool, error) {
	at := place{step, fieldWhen}
	v, err := p.eval(at, &view{p: p, t: t, step: step})
	if err != nil {
		return false, err
	}
	yes, ok := v.(types.Bool)
	if !ok {
		return false, p.failed(at, "it gives %s, want true or false", describe(v))
	}
	return bool(yes), nil
}

// Input is the input of a call's commands, or of a child. Of an each see Children.
func (p *Program) Input(t *core.Task, step int) ([]byte, error) {
	return p.json(place{step, fieldWith}, &view{p: p, t: t, step: step})
}

// Result is what a task comes to.
func (p *Program) Result(t *core.Task) ([]byte, error) {
	return p.json(place{-1, fieldResult}, &view{p: p, t: t, step: -1})
}

// Until is the instant that a wait waits for.
func (p *Program) Until(t *core.Task, step int) (core.Instant, error) {
	at := place{step, fieldUntil}
	v, err := p.eval(at, &view{p: p, t: t, step: step})
	if err != nil {
		return 0, err
	}
	instant, ok := v.(types.Timestamp)
	if !ok {
		return 0, p.failed(at, "it gives %s, want a timestamp, as timestamp(%q) is", describe(v), "2027-01-31T09:00:00Z")
	}
	return core.InstantOf(instant.Time), nil
}

// Elements are the elements of an each, and how many they are. null, as encoding/json writes an empty slice, has none.
func (p *Program) Elements(t *core.Task, step int) ([]byte, int, error) {
	at := place{step, fieldElements}
	v, err := p.eval(at, &view{p: p, t: t, step: step})
	if err != nil {
		return nil, 0, err
	}
	if v == types.NullValue {
		return []byte("[]"), 0, nil
	}
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, 0, p.failed(at, "it gives %s, want a list", describe(v))
	}
	n, ok := list.Size().(types.Int)
	if most := p.plan.Steps[step].ElementsMax; !ok || int64(n) > int64(most) {
		return nil, 0, p.failed(at, "it gives %v elements, elements_max is %d", list.Size(), most)
	}
	data, err := p.written(at, v)
	return data, int(n), err
}

// Children makes the inputs of an each's children: see Program.Children. It is for one goroutine at a time.
type Children struct {
	p    *Program
	view view
}

// Children is for the inputs of the children of an each: what they all see is read once.
func (p *Program) Children(t *core.Task, step int) *Children {
	return &Children{p: p, view: view{p: p, t: t, step: step}}
}

// Input is the input of the child of an element, which is JSON: what `with` makes of it, or the element itself where the
// step has no `with`. Errors name step, field and index.
func (c *Children) Input(index int, element []byte) ([]byte, error) {
	at := place{c.view.step, fieldWith}
	if c.p.exprs[at] == nil {
		return element, nil
	}
	c.view.index, c.view.element, c.view.shown = index, element, nil
	data, err := c.p.json(at, &c.view)
	if err != nil {
		return nil, fmt.Errorf("%w (element %d)", err, index)
	}
	return data, nil
}

// json evaluates an expression whose answer is JSON.
func (p *Program) json(at place, v *view) ([]byte, error) {
	value, err := p.eval(at, v)
	if err != nil {
		return nil, err
	}
	return p.written(at, value)
}

func (p *Program) written(at place, v ref.Val) ([]byte, error) {
	data, err := toJSON(v, core.InputBytesMax)
	switch {
	case errors.Is(err, errLong):
		return nil, p.failed(at, "its answer has more than %d bytes", core.InputBytesMax)
	case err != nil:
		return nil, p.failed(at, "%v", plainText(err.Error()))
	}
	return data, nil
}

// eval evaluates an expression. Errors are one line that names step and field.
func (p *Program) eval(at place, v *view) (ref.Val, error) {
	x := p.exprs[at]
	if x == nil {
		return nil, p.failed(at, "the plan has no such expression")
	}
	v.x = x
	value, _, err := x.program.Eval(v)
	if v.err != nil {
		return nil, p.failed(at, "%v", v.err)
	}
	if err != nil {
		return nil, p.failed(at, "%s", x.reason(err))
	}
	return value, nil
}

// reason is where and why an expression failed at run time, in a line.
func (x *expression) reason(err error) string {
	if cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err); ok && cancelled.Cause == interpreter.CostLimitExceeded {
		return x.shown("in ", ": ") + fmt.Sprintf("it costs more than %d, the limit of one evaluation", costMax)
	}
	line, column, ok := spotOf(x, err)
	text := reword(plainEnv, x.source, line, column, err.Error())
	switch {
	case ok && strings.Contains(x.source, "\n"):
		return fmt.Sprintf("at line %d, column %d: %s", line, column, text)
	case ok:
		return fmt.Sprintf("at column %d%s: %s", column, x.shown(" of ", ""), text)
	}
	return x.shown("in ", ": ") + text
}

// shown is the expression between two texts, where it is short and of one line; otherwise nothing.
func (x *expression) shown(before, behind string) string {
	if len(x.source) > 80 || strings.ContainsAny(x.source, "\r\n") {
		return ""
	}
	return before + x.source + behind
}

// failed is an error at run time.
func (p *Program) failed(at place, format string, args ...any) error {
	return fmt.Errorf("%s: %s", at.name(p.plan), fmt.Sprintf(format, args...))
}

// view is what an expression sees of a task, read when it is looked at. It is an activation of CEL, for one goroutine.
type view struct {
	p    *Program
	t    *core.Task
	step int // -1: of the plan's own expression
	x    *expression

	index   int
	element []byte

	input, results, shown any   // as they were read; shown: the element
	err                   error // a payload that cannot be read
}

var _ cel.Activation = (*view)(nil)

// ResolveName implements cel.Activation.
func (v *view) ResolveName(name string) (any, bool) {
	switch name {
	case varInput:
		if v.input == nil {
			taken := v.t.Input
			if v.step >= 0 {
				taken = v.t.Seen(v.step)
			}
			v.input = v.read("the input", taken)
		}
		return v.input, true
	case varResults:
		if v.results == nil {
			v.results = v.readResults()
		}
		return v.results, true
	case varElement:
		if v.shown == nil {
			v.shown = v.read("the element", v.element)
		}
		return v.shown, v.element != nil
	case varIndex:
		return int64(v.index), v.element != nil
	}
	return nil, false
}

// Parent implements cel.Activation.
func (v *view) Parent() cel.Activation { return nil }

// AsPartialActivation implements cel.Activation.
func (v *view) AsPartialActivation() (interpreter.PartialActivation, bool) { return nil, false }

// readResults are those of the steps that the expression may name, each that is done.
func (v *view) readResults() any {
	all := map[string]any{}
	for i := range v.p.plan.Steps {
		s := &v.t.Steps[i]
		if s.Status != core.StepDone || !v.x.sees.results.Has(i) {
			continue
		}
		if name := v.p.plan.Steps[i].Name; len(s.Result) == 0 {
			all[name] = nil
		} else {
			all[name] = v.read("the result of step "+name, s.Result)
		}
	}
	return all
}

// read reads a payload; of one that cannot be read the evaluation fails.
func (v *view) read(what string, data []byte) any {
	value, err := Payload(what, data)
	switch {
	case err != nil && v.err == nil:
		v.err = err
		fallthrough
	case err != nil:
		return types.WrapErr(err)
	case value == nil:
		return types.NullValue
	}
	return value
}
