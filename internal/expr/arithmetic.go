package expr

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/decimal"
	"duly.dev/duly/internal/jsonschema"
)

// known is what is known of a part of an expression before there is a payload.
type known struct {
	is     *types.Type        // types.DynType: that depends on the data
	number bool               // it is a number, whole or not
	schema *jsonschema.Schema // of the payload that it stands in; nil: none is known
	path   []jsonschema.Step  // to it
	hint   string             // who could have a schema that says more
}

func typed(is *types.Type) known { return known{is: is} }

var dependent = typed(types.DynType)

// depends reports whether the type depends on the data.
func (k known) depends() bool {
	switch k.is.Kind() {
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.UnspecifiedKind:
		return true
	}
	return false
}

// at is what a step from it leads to.
func (k known) at(step jsonschema.Step) known {
	return proven(k.schema, append(slices.Clip(k.path), step), k.hint)
}

// schemaTypes are the types of CEL that those of JSON Schema are; a number is an int or a double, as it comes.
var schemaTypes = map[string]*types.Type{
	jsonschema.Integer: types.IntType, jsonschema.String: types.StringType, jsonschema.Boolean: types.BoolType, jsonschema.Null: types.NullType,
	jsonschema.Array: types.NewListType(types.DynType), jsonschema.Object: types.NewMapType(types.StringType, types.DynType),
}

// proven is what a schema says of a place in a payload; hint says who has the schema, or could have it.
func proven(schema *jsonschema.Schema, path []jsonschema.Step, hint string) known {
	says := schema.Type(path...)
	is := schemaTypes[says]
	if is == nil {
		is = types.DynType
	}
	return known{is: is, number: says == jsonschema.Number, schema: schema, path: path, hint: hint}
}

// arithmetic refuses what would calculate with a value whose type depends on the data: 250 / 100 > 2 is false, 250.5 / 100
// fails, so that one amount would take another way than the next.
type arithmetic struct {
	ast   *ast.AST
	text  []rune                  // the expression as it is written
	root  func(name string) known // of input and element
	step  func(name string) known // of the result of a step; nil: there are none
	wrong []Fault
}

// visit walks an expression; bound is what is known of the names that macros have bound in it.
func (a *arithmetic) visit(e ast.Expr, bound map[string]known) {
	switch e.Kind() {
	case ast.LiteralKind:
		a.literal(e)
	case ast.SelectKind:
		a.visit(e.AsSelect().Operand(), bound)
	case ast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			a.visit(c.Target(), bound)
		}
		for _, x := range c.Args() {
			a.visit(x, bound)
		}
		if name := c.FunctionName(); calculates(e) || strings.HasPrefix(name, "math.") && !chooses(name) {
			a.check(c, bound)
		}
	case ast.ListKind:
		for _, x := range e.AsList().Elements() {
			a.visit(x, bound)
		}
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			a.visit(x.AsMapEntry().Key(), bound)
			a.visit(x.AsMapEntry().Value(), bound)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		a.visit(c.IterRange(), bound)
		a.visit(c.AccuInit(), bound)
		inner := a.inside(c, bound)
		a.visit(c.LoopCondition(), inner)
		a.visit(c.LoopStep(), inner)
		a.visit(c.Result(), inner)
	}
}

// decimalLiteral is a number as an expression has it.
var decimalLiteral = regexp.MustCompile(`^-?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?`)

// literal refuses a number with more digits than a double has.
func (a *arithmetic) literal(e ast.Expr) {
	is, double := e.AsLiteral().(types.Double)
	at, ok := a.ast.SourceInfo().GetOffsetRange(e.ID())
	if !double || !ok || int(at.Start) > len(a.text) {
		return
	}
	if text := decimalLiteral.FindString(string(a.text[at.Start:])); text != "" && !decimal.Same(text, plainDouble(float64(is))) {
		a.note(e, fmt.Sprintf("%.40s has more digits than a double: 64 bits make it %s", text, plainDouble(float64(is))))
	}
}

// calculates reports whether an expression is an operator's.
func calculates(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && slices.Contains(calculations, e.AsCall().FunctionName())
}

// chooses reports whether a function, math.greatest or math.least, gives one of its arguments.
func chooses(name string) bool { return name == "math.@max" || name == "math.@min" }

// inside is what is known of names inside a comprehension.
func (a *arithmetic) inside(c ast.ComprehensionExpr, bound map[string]known) map[string]known {
	inner := map[string]known{}
	maps.Copy(inner, bound)
	inner[c.AccuVar()] = a.of(c.AccuInit(), bound) // of cel.bind it is the name
	r := a.of(c.IterRange(), bound)
	first := known{is: types.DynType, hint: r.hint}
	second := first
	switch r.is.Kind() {
	case types.ListKind:
		first, second = typed(types.IntType), r.at(jsonschema.Step{Element: true, Index: -1})
		if c.IterVar2() == "" {
			first = second
		}
	case types.MapKind:
		first = typed(types.StringType)
	}
	inner[c.IterVar()], inner[c.IterVar2()] = first, second
	return inner
}

// of is what is known of an expression: what CEL has found, or a schema proves.
func (a *arithmetic) of(e ast.Expr, bound map[string]known) known {
	k := a.found(e, bound)
	if checked := typed(a.ast.GetType(e.ID())); k.depends() && !checked.depends() {
		k.is = checked.is
	}
	return k
}

func (a *arithmetic) found(e ast.Expr, bound map[string]known) known {
	switch e.Kind() {
	case ast.IdentKind:
		name := strings.TrimPrefix(e.AsIdent(), ".")
		if k, is := bound[name]; is {
			return k
		}
		return a.root(name)
	case ast.SelectKind:
		return a.member(e.AsSelect().Operand(), jsonschema.Step{Name: e.AsSelect().FieldName()}, bound)
	case ast.ComprehensionKind:
		if macro, ok := a.ast.SourceInfo().GetMacroCall(e.ID()); ok && macro.AsCall().FunctionName() == operators.Filter {
			return a.of(e.AsComprehension().IterRange(), bound) // whose elements it has
		}
		return a.of(e.AsComprehension().Result(), a.inside(e.AsComprehension(), bound))
	case ast.CallKind:
		c := e.AsCall()
		switch name, args := c.FunctionName(), c.Args(); {
		case name == operators.Index && args[1].Kind() == ast.LiteralKind:
			switch at := args[1].AsLiteral().(type) {
			case types.String:
				return a.member(args[0], jsonschema.Step{Name: string(at)}, bound)
			case types.Int:
				return a.member(args[0], jsonschema.Step{Element: true, Index: int(at)}, bound)
			}
		case name == operators.Conditional:
			return a.same(args[1:], bound)
		case chooses(name) || calculates(e):
			return a.same(args, bound)
		}
	}
	return dependent
}

// member is what is known of a member or element.
func (a *arithmetic) member(of ast.Expr, step jsonschema.Step, bound map[string]known) known {
	if of.Kind() == ast.IdentKind && strings.TrimPrefix(of.AsIdent(), ".") == varResults && a.step != nil {
		if _, is := bound[varResults]; !is {
			return a.step(step.Name)
		}
	}
	return a.of(of, bound).at(step)
}

// same is the type that each of some expressions has.
func (a *arithmetic) same(all []ast.Expr, bound map[string]known) known {
	first := a.of(all[0], bound).is
	for _, x := range all[1:] {
		if a.of(x, bound).is.Kind() != first.Kind() {
			return dependent
		}
	}
	return typed(first)
}

// check notes the operands of a call whose types are not known, or do not go together.
func (a *arithmetic) check(c ast.CallExpr, bound map[string]known) {
	all := make([]known, len(c.Args()))
	beside := types.DynType
	for i, x := range c.Args() {
		if all[i] = a.of(x, bound); !all[i].depends() {
			beside = all[i].is
		}
	}
	switch beside.Kind() {
	case types.StringKind, types.BytesKind, types.ListKind:
		if c.FunctionName() == operators.Add {
			return // it joins, or fails and says where
		}
	}
	names := make([]string, len(all))
	for i, x := range c.Args() {
		if names[i] = all[i].is.String(); all[i].depends() && !calculates(x) { // whose own operands are told
			a.note(x, all[i].advice(a.written(x), beside))
		}
	}
	if len(all) == 2 && !all[0].depends() && !all[1].depends() && all[0].is.Kind() != all[1].is.Kind() && !timed(all[0].is) {
		a.note(c.Args()[0], unfit([]string{"", c.FunctionName(), strings.Join(names, ", "), "", ""}, spot{}))
	}
}

// timed reports whether it is an instant or a duration, which go together.
func timed(is *types.Type) bool {
	return is.Kind() == types.TimestampKind || is.Kind() == types.DurationKind
}

// advice says how the type of an operand would be known.
func (k known) advice(text string, beside *types.Type) string {
	switch {
	case timed(beside):
		return fmt.Sprintf("what type %s has depends on the data: say timestamp(%s) or duration(%s)", text, text, text)
	case k.number:
		return fmt.Sprintf("%s may be whole or not: say double(%s)", text, text)
	case k.hint == "":
		return fmt.Sprintf("what type %s has depends on the data: say int(%s) or double(%s)", text, text, text)
	}
	return fmt.Sprintf("what type %s has depends on the data: say int(%s) or double(%s), or give %s in which it is an integer", text, text, text, k.hint)
}

// written is an expression as text.
func (a *arithmetic) written(e ast.Expr) string {
	text, err := cel.ExprToString(e, a.ast.SourceInfo())
	if err != nil {
		return "it"
	}
	return core.ShortText(text, 64)
}

// note notes what is wrong where an expression begins.
func (a *arithmetic) note(e ast.Expr, text string) {
	for {
		switch {
		case e.Kind() == ast.SelectKind:
			e = e.AsSelect().Operand()
			continue
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
			e = e.AsCall().Args()[0]
			continue
		}
		at := a.ast.SourceInfo().GetStartLocation(e.ID())
		a.wrong = append(a.wrong, Fault{max(at.Line(), 1), max(at.Column(), 0) + 1, core.ShortText(text, 500)})
		return
	}
}
