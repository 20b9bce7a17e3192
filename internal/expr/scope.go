package expr

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/seal"
)

// Type is what a variable is, or an expression has to give.
type Type uint8

// The types.
const (
	AnyType  Type = iota
	TextType      // a string
	IntType
	BoolType
	TextsType // a map from text to text
)

func (t Type) cel() *cel.Type {
	switch t {
	case TextType:
		return cel.StringType
	case IntType:
		return cel.IntType
	case BoolType:
		return cel.BoolType
	case TextsType:
		return cel.MapType(cel.StringType, cel.StringType)
	}
	return cel.DynType
}

// Variable is one that the expressions of a [Scope] see.
type Variable struct {
	Name string
	Of   Type
}

// Scope compiles expressions that belong to no plan: they see input and results, as those of plans do, and other variables.
type Scope struct{ env *cel.Env }

// NewScope is a scope with these variables besides input and results. Error: CEL's, about a program that is wrong.
func NewScope(more ...Variable) (*Scope, error) {
	return newScope(plainEnv, more...)
}

func newScope(base *cel.Env, more ...Variable) (*Scope, error) {
	if errEnv != nil {
		return nil, errEnv
	}
	options := make([]cel.EnvOption, len(more))
	for i, v := range more {
		options[i] = cel.Variable(v.Name, v.Of.cel())
	}
	env, err := base.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("variables of expressions: %w", err)
	}
	return &Scope{env}, nil
}

// Fault is what is wrong with an expression of a Scope.
type Fault struct {
	Line, Column int // in the expression, from 1; the column in characters
	Text         string
}

// Expression is one of a Scope, compiled. Any number of goroutines may use it.
type Expression struct{ x *expression }

// Compile compiles an expression that has to give a type.
func (s *Scope) Compile(source string, want Type) (*Expression, []Fault) {
	if len(source) > core.ExpressionBytesMax {
		return nil, []Fault{{1, 1, fmt.Sprintf("it has %d bytes, want at most %d", len(source), core.ExpressionBytesMax)}}
	}
	ast, issues := s.env.Compile(source)
	if found := issues.Errors(); len(found) > 0 {
		var all []Fault
		for _, e := range found {
			line, column := max(e.Location.Line(), 1), max(e.Location.Column(), 0)+1
			all = append(all, Fault{line, column, reword(s.env, source, line, column, e.Message)})
			if strings.HasPrefix(e.Message, syntaxError) {
				break // what follows on it is no error of the author
			}
		}
		return nil, all
	}
	if is := ast.OutputType(); want != AnyType && !is.IsExactType(want.cel()) && !is.IsExactType(cel.DynType) {
		return nil, []Fault{{1, 1, "it gives " + typeWords(is.String()) + ", want " + typeWords(want.cel().String())}}
	}
	a := arithmetic{ast: ast.NativeRep(), text: []rune(source), root: func(string) known { return dependent }} // payloads of a Scope have no schema
	if a.visit(a.ast.Expr(), nil); len(a.wrong) > 0 {
		return nil, a.wrong
	}
	x := &expression{source: source, ast: ast}
	var err error
	if x.program, err = program(s.env, ast, cel.OptOptimize); err != nil {
		line, column, ok := spotOf(x, err)
		if !ok {
			line, column = 1, 1
		}
		return nil, []Fault{{line, column, reword(s.env, source, line, column, err.Error())}}
	}
	return &Expression{x}, nil
}

// Values gives variables their values, each when an expression looks at it: text, int64, bool, map[string]string, or what
// [Payload] gave. It gives the same value each time that it is asked.
type Values func(name string) (any, error)

// Eval evaluates the expression. The error is one line that says where and why.
func (x *Expression) Eval(values Values) (Value, error) {
	at := lookup{values: values}
	v, _, err := x.x.program.Eval(&at)
	if at.err != nil {
		return Value{}, at.err
	}
	if err != nil {
		return Value{}, fmt.Errorf("%s", x.x.reason(err))
	}
	return Value{v}, nil
}

// lookup is the activation of one evaluation.
type lookup struct {
	values Values
	err    error // of a value that could not be had
}

var _ cel.Activation = (*lookup)(nil)

// ResolveName implements cel.Activation.
func (l *lookup) ResolveName(name string) (any, bool) {
	v, err := l.values(name)
	switch {
	case err != nil:
		if l.err == nil {
			l.err = err
		}
		return types.WrapErr(err), true
	case v == nil:
		return types.NullValue, true
	}
	return v, true
}

// Parent implements cel.Activation.
func (l *lookup) Parent() cel.Activation { return nil }

// AsPartialActivation implements cel.Activation.
func (l *lookup) AsPartialActivation() (interpreter.PartialActivation, bool) { return nil, false }

// Payload is JSON as an expression sees it; nothing is null. what names it in errors: it is no JSON, or encrypted.
func Payload(what string, data []byte) (any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if _, sealed := seal.Of(data); sealed {
		return nil, fmt.Errorf("%s is encrypted: an expression cannot read it", what)
	}
	return fromJSON(what, data)
}

// Value is what an expression gave.
type Value struct{ v ref.Val }

// JSON is the value as JSON. Error: more than most bytes, or a value that JSON has not.
func (v Value) JSON(most int) ([]byte, error) {
	data, err := toJSON(v.v, most)
	if errors.Is(err, errLong) {
		return nil, fmt.Errorf("it gives more than %d bytes", most)
	}
	return data, err
}

// Text is the value where it is text.
func (v Value) Text() (string, bool) {
	text, ok := v.v.(types.String)
	return string(text), ok
}

// Plain is text, a number, true or false, or an instant as text. ok is false for all else.
func (v Value) Plain() (text string, ok bool) {
	if text, is := v.Text(); is {
		return text, true
	}
	switch v.v.(type) {
	case types.Int, types.Uint, types.Double, exact, types.Bool, types.Timestamp:
		data, err := toJSON(v.v, core.ExpressionBytesMax)
		return strings.Trim(string(data), `"`), err == nil
	}
	return "", false
}

// Describe names the value's type, as in "a list".
func (v Value) Describe() string { return describe(v.v) }

// variablesOf are the names that an environment of a Scope has, as they were declared.
func variablesOf(env *cel.Env) (names []string) {
	for _, v := range env.Variables() {
		if v.Type().Kind() != types.TypeKind {
			names = append(names, v.Name())
		}
	}
	return names
}
