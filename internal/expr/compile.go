package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/jsonschema"
)

// Program is the expressions of one plan version, compiled. It is not changed, so that any number of goroutines may use
// it. Bind makes a core.Asker of it.
type Program struct {
	plan    *core.Plan
	exprs   map[place]*expression
	schemas map[string]*jsonschema.Schema // by their text
}

// expression is one of them.
type expression struct {
	at      place
	source  string
	ast     *cel.Ast
	program cel.Program
	sees    sees
}

// Error is what is wrong with one expression of a plan. It wraps core.ErrPlan.
type Error struct {
	Plan         string
	Step         int    // index; -1: the plan's own result
	StepName     string // empty: the plan's own result
	Field        string // when, with, until, elements or result
	Line, Column int    // in the expression, from 1; the column in characters
	Text         string // what is wrong
	Result       string // the step, where what is wrong is that its result may not be looked at
	source       string
}

// Error names plan, step, field and place, and shows the line with a caret below it.
func (e *Error) Error() string {
	step := ""
	if e.Step >= 0 {
		step = "step " + e.StepName + ": "
	}
	return fmt.Sprintf("%v: plan %s: %s%s, line %d, column %d: %s\n%s", core.ErrPlan, e.Plan, step, e.Field, e.Line, e.Column, e.Text, e.Caret())
}

// Caret is the line of the expression with a caret below the place.
func (e *Error) Caret() string {
	lines := strings.Split(e.source, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return ""
	}
	return Caret(lines[e.Line-1], e.Column)
}

// Caret is a line, bars before it, with a caret below the column, from 1 in characters.
func Caret(line string, column int) string {
	below := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string([]rune(line)[:min(max(column-1, 0), len([]rune(line)))]))
	return " | " + line + "\n | " + below + "^"
}

// Unwrap gives core.ErrPlan.
func (e *Error) Unwrap() error { return core.ErrPlan }

// Errors is all that is wrong with the expressions of a plan.
type Errors []*Error

// Error has one after the other.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap gives each.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i := range e {
		all[i] = e[i]
	}
	return all
}

// Compile compiles the expressions of a plan, of at most core.StepsMax steps. The error is an Errors with all that is wrong.
func Compile(plan *core.Plan) (*Program, error) {
	p := &Program{plan: plan, exprs: map[place]*expression{}, schemas: map[string]*jsonschema.Schema{}}
	var wrong Errors
	for _, x := range expressions(plan) {
		e, bad := p.compile(x.place, x.source)
		wrong = append(wrong, bad...)
		p.exprs[x.place] = e
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return p, nil
}

// has reports whether a plan has expressions.
func has(plan *core.Plan) bool {
	for i := range plan.Steps {
		if s := &plan.Steps[i]; s.When != "" || s.Input != "" || s.Until != "" || s.Elements != "" {
			return true
		}
	}
	return plan.Result != ""
}

type located struct {
	place
	source string
}

// expressions are those of a plan, in the order of its steps, the plan's own last.
func expressions(plan *core.Plan) (all []located) {
	add := func(step int, f field, source string) {
		if source != "" {
			all = append(all, located{place{step, f}, source})
		}
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		add(i, fieldWhen, s.When)
		add(i, fieldWith, s.Input)
		add(i, fieldUntil, s.Until)
		add(i, fieldElements, s.Elements)
	}
	add(-1, fieldResult, plan.Result)
	return all
}

// variables of expressions.
const (
	varInput   = "input"
	varResults = "results"
	varElement = "element"
	varIndex   = "index"
)

// environments are what an expression sees: no variable, those of plans, and the element of an each besides.
var bareEnv, plainEnv, elementEnv, errEnv = environments()

func environments() (bare, plain, element *cel.Env, err error) {
	library, err := standard()
	if err != nil {
		return nil, nil, nil, err
	}
	compared, err := sets()
	if err != nil {
		return nil, nil, nil, err
	}
	bare, err = cel.NewCustomEnv(append(append(library, compared...), cel.EagerlyValidateDeclarations(true),
		cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true), cel.EnableIdentifierEscapeSyntax(), cel.EnableMacroCallTracking(),
		cel.ParserRecursionLimit(nestingMax), cel.ParserExpressionSizeLimit(core.ExpressionBytesMax), cel.ExpressionNodeLimit(nodesMax), cel.RegexProgramSizeLimit(regexSizeMax),
		ext.Bindings(), ext.Math(), ext.TwoVarComprehensions())...)
	if err != nil {
		return nil, nil, nil, err
	}
	if plain, err = bare.Extend(cel.Variable(varInput, cel.DynType), cel.Variable(varResults, cel.MapType(cel.StringType, cel.DynType))); err != nil {
		return nil, nil, nil, err
	}
	element, err = plain.Extend(cel.Variable(varElement, cel.DynType), cel.Variable(varIndex, cel.IntType))
	return bare, plain, element, err
}

func (p *Program) compile(at place, source string) (*expression, Errors) {
	env := plainEnv
	if at.field == fieldWith && p.plan.Steps[at.step].Kind == core.EachStep {
		env = elementEnv
	}
	if errEnv != nil {
		return nil, Errors{p.wrong(at, source, 1, 1, errEnv.Error())}
	}
	if len(source) > core.ExpressionBytesMax {
		return nil, Errors{p.wrong(at, source[:0], 1, 1, fmt.Sprintf("it has %d bytes, want at most %d", len(source), core.ExpressionBytesMax))}
	}
	ast, issues := env.Compile(source)
	if found := issues.Errors(); len(found) > 0 {
		var all Errors
		for _, e := range found {
			line, column := max(e.Location.Line(), 1), max(e.Location.Column(), 0)+1
			if all = append(all, p.wrong(at, source, line, column, reword(env, source, line, column, e.Message))); strings.HasPrefix(e.Message, syntaxError) {
				break // what follows on it is no error of the author
			}
		}
		return nil, all
	}
	if want := typeOf(at.field); want != nil && !ast.OutputType().IsExactType(want) && !ast.OutputType().IsExactType(cel.DynType) &&
		(at.field != fieldElements || ast.OutputType().Kind() != cel.ListKind) {
		return nil, Errors{p.wrong(at, source, 1, 1, "it gives "+typeWords(ast.OutputType().String())+", want "+typeWords(want.String()))}
	}
	x := &expression{at: at, source: source, ast: ast}
	var bad Errors
	x.sees, bad = p.look(x)
	for _, f := range p.arithmetic(x) {
		bad = append(bad, p.wrong(at, source, f.Line, f.Column, f.Text))
	}
	if len(bad) > 0 {
		return nil, bad
	}
	var err error
	if x.program, err = program(env, ast, cel.OptOptimize); err != nil {
		line, column, ok := spotOf(x, err)
		if !ok {
			line, column = 1, 1
		}
		return nil, Errors{p.wrong(at, source, line, column, reword(env, source, line, column, err.Error()))}
	}
	return x, nil
}

// arithmetic is what is wrong with the arithmetic of an expression, by the schemas of the plan.
func (p *Program) arithmetic(x *expression) []Fault {
	a := arithmetic{ast: x.ast.NativeRep(), text: []rune(x.source), step: func(name string) known {
		if i := p.plan.StepIndex(name); i >= 0 && p.plan.Steps[i].Kind == core.SignalStep {
			return p.schema("step "+name+" a schema", p.plan.Steps[i].Schema)
		}
		return dependent
	}}
	a.root = func(name string) known {
		switch name {
		case varInput:
			return p.schema("the plan an input_schema", p.plan.InputSchema)
		case varElement: // of what a list with a schema gives
			list, issues := plainEnv.Compile(p.plan.Steps[x.at.step].Elements)
			if issues.Err() != nil {
				return dependent
			}
			of := arithmetic{ast: list.NativeRep(), root: a.root, step: a.step}
			if k := of.of(list.NativeRep().Expr(), nil); k.is.Kind() == types.ListKind {
				return k.at(jsonschema.Step{Element: true, Index: -1})
			}
		}
		return dependent
	}
	a.visit(a.ast.Expr(), nil)
	return a.wrong
}

// schema is what a schema proves of a payload; hint says who has it. One that is wrong, which is told elsewhere, proves nothing.
func (p *Program) schema(hint, text string) known {
	if _, seen := p.schemas[text]; !seen && text != "" {
		p.schemas[text], _ = jsonschema.Compile(text)
	}
	return proven(p.schemas[text], nil, hint)
}

// typeOf is what an expression of that field has to give; nil: anything.
func typeOf(f field) *cel.Type {
	switch f {
	case fieldWhen:
		return cel.BoolType
	case fieldUntil:
		return cel.TimestampType
	case fieldElements:
		return cel.ListType(cel.DynType)
	}
	return nil
}

// syntaxError is what CEL's errors of the parser begin with.
const syntaxError = "Syntax error: "

// plainText is an error of CEL's without what means nothing here.
func plainText(text string) string {
	text = strings.ReplaceAll(text, " (in container '')", "")
	line, _, _ := strings.Cut(text, "\n")
	return core.ShortText(line, 500)
}

func (p *Program) wrong(at place, source string, line, column int, text string) *Error {
	e := &Error{Plan: p.plan.Name, Step: at.step, Field: string(at.field), Line: line, Column: column, Text: text, source: source}
	if at.step >= 0 {
		e.StepName = p.plan.Steps[at.step].Name
	}
	return e
}
