package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"duly.dev/duly/internal/core"
)

// sees is what an expression looks at, so that nothing else has to be read.
type sees struct {
	input, element bool
	results        core.StepSet // steps whose results it names, or may name
}

// may are the steps whose results an expression may name: those that its step comes after.
func (p *Program) may(at place) core.StepSet {
	if at.step >= 0 {
		return p.plan.Ancestors(at.step)
	}
	return core.StepsBelow(len(p.plan.Steps))
}

// look finds what an expression looks at, and results that it may not name.
func (p *Program) look(x *expression) (sees, Errors) {
	l := looker{p: p, x: x, may: p.may(x.at)}
	l.visit(x.ast.NativeRep().Expr(), nil)
	return l.sees, l.wrong
}

type looker struct {
	p     *Program
	x     *expression
	may   core.StepSet
	sees  sees
	wrong Errors
}

// visit walks an expression; own are the names that macros have bound in it.
func (l *looker) visit(e ast.Expr, own []string) {
	switch e.Kind() {
	case ast.IdentKind:
		l.ident(strings.TrimPrefix(e.AsIdent(), "."), own)
	case ast.SelectKind:
		s := e.AsSelect()
		if l.isResults(s.Operand(), own) {
			l.result(s.Operand(), s.FieldName())
			return
		}
		l.visit(s.Operand(), own)
	case ast.CallKind:
		l.call(e.AsCall(), own)
	case ast.ListKind:
		for _, x := range e.AsList().Elements() {
			l.visit(x, own)
		}
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			l.visit(x.AsMapEntry().Key(), own)
			l.visit(x.AsMapEntry().Value(), own)
		}
	case ast.StructKind:
		for _, x := range e.AsStruct().Fields() {
			l.visit(x.AsStructField().Value(), own)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		l.visit(c.IterRange(), own)
		l.visit(c.AccuInit(), own)
		inner := append(append([]string(nil), own...), c.IterVar(), c.IterVar2(), c.AccuVar())
		l.visit(c.LoopCondition(), inner)
		l.visit(c.LoopStep(), inner)
		l.visit(c.Result(), inner)
	}
}

func (l *looker) ident(name string, own []string) {
	if slices.Contains(own, name) {
		return
	}
	switch name {
	case varInput:
		l.sees.input = true
	case varElement, varIndex:
		l.sees.element = true
	case varResults: // as a whole
		l.sees.results = l.sees.results.Or(l.may)
	}
}

func (l *looker) call(c ast.CallExpr, own []string) {
	args := c.Args()
	if c.IsMemberFunction() {
		l.visit(c.Target(), own)
	}
	if len(args) == 2 {
		switch results, name := args[0], args[1]; c.FunctionName() {
		case operators.In:
			results, name = name, results
			fallthrough
		case operators.Index:
			if text, ok := constant(name); ok && l.isResults(results, own) {
				l.result(results, text)
				return
			}
		}
	}
	for _, x := range args {
		l.visit(x, own)
	}
}

func constant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

func (l *looker) isResults(e ast.Expr, own []string) bool {
	if e.Kind() != ast.IdentKind || strings.TrimPrefix(e.AsIdent(), ".") != varResults {
		return false
	}
	return !slices.Contains(own, varResults)
}

// result notes that the expression names the result of a step.
func (l *looker) result(at ast.Expr, name string) {
	i := l.p.plan.StepIndex(name)
	if i >= 0 && l.may.Has(i) {
		l.sees.results.Add(i)
		return
	}
	where := l.x.ast.NativeRep().SourceInfo().GetStartLocation(at.ID())
	text := fmt.Sprintf("results has no %q", name)
	switch {
	case i < 0:
		text += ": the plan has no such step"
	case i == l.x.at.step:
		text += ": that is the step itself"
	default:
		text += fmt.Sprintf(": step %s does not come after it", l.p.plan.Steps[l.x.at.step].Name)
	}
	wrong := l.p.wrong(l.x.at, l.x.source, max(where.Line(), 1), max(where.Column(), 0)+1, text+"; there is "+l.p.names(l.may))
	wrong.Result = name
	l.wrong = append(l.wrong, wrong)
}

// names are those of a set of steps.
func (p *Program) names(set core.StepSet) string {
	if set.Empty() {
		return "nothing"
	}
	var all []string
	set.Each(func(i int) { all = append(all, p.plan.Steps[i].Name) })
	return strings.Join(all, ", ")
}
