package expr

import (
	"errors"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"duly.dev/duly/internal/core"
)

// Evidence is why the condition of a step is what it is.
type Evidence struct {
	Step      string
	Condition string // the expression
	Holds     bool   // what it comes to
	Failed    string // why it comes to nothing; empty: it does not fail
	Terms     []Term
}

// Term is a part of a condition, as it is written.
type Term struct {
	Text   string
	Value  string // JSON, cut to valueBytesMax; empty: it has none
	Failed string // why it has none
}

// Bounds of an evidence.
const (
	termsMax      = 64
	valueBytesMax = 200
)

// Evidence gives the value of each term of a step's condition: of input.total > 5 && has(results.risk) those of
// input.total, of the comparison and of the test. Terms that CEL would not have had to look at are in it too. False: the
// step has no condition.
func (p *Program) Evidence(t *core.Task, step int) (Evidence, bool) {
	x := p.exprs[place{step, fieldWhen}]
	if x == nil {
		return Evidence{}, false
	}
	e := Evidence{Step: p.plan.Steps[step].Name, Condition: x.source}
	var err error
	if e.Holds, err = p.When(t, step); err != nil {
		e.Failed = err.Error()
	}
	all, err := program(plainEnv, x.ast, cel.OptExhaustiveEval)
	if err != nil { // it was made before, for the answer
		e.Failed = reword(plainEnv, x.source, 1, 0, err.Error())
		return e, true
	}
	v := &view{p: p, t: t, step: step, x: x}
	_, details, _ := all.Eval(v) // what fails, fails in its term as well
	if details == nil || v.err != nil {
		return e, true
	}
	w := witness{x: x, details: details, seen: map[string]bool{}}
	w.visit(x.ast.NativeRep().Expr())
	e.Terms = w.terms
	return e, true
}

type witness struct {
	x       *expression
	details *cel.EvalDetails
	terms   []Term
	seen    map[string]bool
}

// visit notes the terms of an expression, what a term is made of before it.
func (w *witness) visit(e ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind, ast.IdentKind:
		w.note(e)
	case ast.CallKind:
		c := e.AsCall()
		if path(e) {
			w.note(e)
			return
		}
		if c.IsMemberFunction() {
			w.visit(c.Target())
		}
		for _, x := range c.Args() {
			w.visit(x)
		}
		switch c.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
		default:
			w.note(e)
		}
	case ast.ComprehensionKind:
		w.visit(e.AsComprehension().IterRange())
		w.note(e)
	}
}

// path reports whether an expression is a variable with members and indexes.
func path(e ast.Expr) bool {
	switch e.Kind() {
	case ast.IdentKind:
		return true
	case ast.SelectKind:
		return path(e.AsSelect().Operand())
	case ast.CallKind:
		c := e.AsCall()
		return c.FunctionName() == operators.Index && path(c.Args()[0]) && c.Args()[1].Kind() == ast.LiteralKind
	}
	return false
}

func (w *witness) note(e ast.Expr) {
	text, err := cel.ExprToString(e, w.x.ast.NativeRep().SourceInfo())
	if err != nil || w.seen[text] || len(w.terms) >= termsMax {
		return
	}
	w.seen[text] = true
	term := Term{Text: text}
	v, ok := w.details.State().Value(e.ID())
	if !ok {
		return
	}
	data, err := toJSON(v, core.InputBytesMax)
	switch {
	case errors.Is(err, errLong):
		term.Failed = "too long to show"
	case err != nil:
		term.Failed = reword(plainEnv, w.x.source, 1, 0, err.Error())
	default:
		term.Value = core.ShortText(string(data), valueBytesMax)
	}
	w.terms = append(w.terms, term)
}
