package expr

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/stdlib"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"

	"duly.dev/duly/internal/decimal"
)

// exact is a number of a payload that neither an int nor a double of CEL holds. An expression passes it on and compares it;
// to calculate with it would round it.
type exact struct {
	text string // as decimal.Canon gives it
	at   string // where it stands in the payload
}

// exactType is named as errors at run time name it.
var exactType = cel.ObjectType("number that 64 bits cannot hold", traits.ComparerType, traits.AdderType, traits.SubtractorType,
	traits.MultiplierType, traits.DividerType, traits.ModderType, traits.NegatorType)

// refuse is the answer of all that would calculate with it.
func (e exact) refuse() ref.Val {
	return types.NewErr("%s is %.40s, which 64 bits cannot hold: it can be passed on and compared, not calculated with", e.at, e.text)
}

// ConvertToNative implements ref.Val.
func (e exact) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s cannot be a %s", exactType, to)
}

// ConvertToType implements ref.Val.
func (e exact) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.StringType:
		return types.String(e.text)
	case types.TypeType:
		return exactType
	}
	return e.refuse()
}

// Type implements ref.Val.
func (e exact) Type() ref.Type { return exactType }

// Value implements ref.Val.
func (e exact) Value() any { return e.text }

// Equal implements ref.Val. No int and no double has its value.
func (e exact) Equal(other ref.Val) ref.Val {
	switch o := other.(type) {
	case exact:
		return types.Bool(e.text == o.text)
	case types.Uint:
		return types.Bool(e.text == strconv.FormatUint(uint64(o), 10))
	}
	return types.False
}

// Compare implements traits.Comparer.
func (e exact) Compare(other ref.Val) ref.Val {
	var text string
	switch o := other.(type) {
	case exact:
		text = o.text
	case types.Int:
		text = strconv.FormatInt(int64(o), 10)
	case types.Uint:
		text = strconv.FormatUint(uint64(o), 10)
	case types.Double:
		switch text = plainDouble(float64(o)); {
		case math.IsInf(float64(o), 1):
			return types.IntNegOne
		case math.IsInf(float64(o), -1):
			return types.IntOne
		}
	default:
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Int(decimal.Compare(e.text, text))
}

// mirrors are the comparisons, each with the one that says the same of the two in the other order.
var mirrors = map[string]string{operators.Less: operators.Greater, operators.Greater: operators.Less, operators.LessEquals: operators.GreaterEquals, operators.GreaterEquals: operators.LessEquals}

// calculations are the operators that refuse an exact.
var calculations = []string{operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate}

// standard is CEL's library, with operators and conversions that meet an exact on either side.
func standard() ([]cel.EnvOption, error) {
	bound := map[string]*functions.Overload{}
	overloads := map[string][]cel.FunctionOpt{}
	without := env.NewLibrarySubset()
	for _, f := range stdlib.Functions() {
		name := f.Name()
		if mirrors[name] == "" && !slices.Contains(calculations, name) && name != operators.Index && name != operators.In {
			continue
		}
		bindings, err := f.Bindings()
		if err != nil || len(bindings) != 1 {
			return nil, fmt.Errorf("operator %s of CEL: %d bindings, want one: %w", name, len(bindings), err)
		}
		bound[name] = bindings[0]
		without.AddExcludedFunctions(env.NewFunction(name))
		if name == operators.Index { // as CEL has it, what an element of a payload is would follow from what stands beside it
			overloads[name] = []cel.FunctionOpt{decls.Overload("index", []*cel.Type{cel.DynType, cel.DynType}, cel.DynType)}
			continue
		}
		for _, o := range f.OverloadDecls() {
			overloads[name] = append(overloads[name], decls.Overload(o.ID(), o.ArgTypes(), o.ResultType()))
		}
	}
	options := []cel.EnvOption{cel.StdLib(cel.StdLibSubset(without))}
	for name, was := range bound {
		binding := decls.SingletonUnaryBinding(func(v ref.Val) ref.Val {
			if e, ok := v.(exact); ok {
				return e.refuse()
			}
			return was.Unary(v)
		}, was.OperandTrait)
		switch {
		case name == operators.In:
			binding = decls.SingletonBinaryBinding(within)
		case was.Binary != nil:
			binding = decls.SingletonBinaryBinding(meeting(was, bound[mirrors[name]]), was.OperandTrait)
		}
		options = append(options, cel.Function(name, append(overloads[name], binding)...))
	}
	for name, to := range map[string]*cel.Type{"int": cel.IntType, "uint": cel.UintType, "double": cel.DoubleType, "string": cel.StringType} {
		options = append(options, cel.Function(name, cel.Overload(name+"_of_exact", []*cel.Type{exactType}, to,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return v.ConvertToType(to) }))))
	}
	return options, nil
}

// meeting is an operator that meets an exact on either side; mirror is a comparison's, and nil of a calculation.
func meeting(was, mirror *functions.Overload) functions.BinaryOp {
	return func(a, b ref.Val) ref.Val {
		x, left := a.(exact)
		y, right := b.(exact)
		switch {
		case !left && !right, left && mirror != nil:
			return short(was.Binary(a, b))
		case mirror != nil:
			return mirror.Binary(b, a)
		case left:
			return x.refuse()
		}
		return y.refuse()
	}
}

// errCost is the answer of a call that would cost more than an evaluation may. CEL counts a call when it has returned.
func errCost() ref.Val {
	return types.NewErr("it costs more than %d, the limit of one evaluation", costMax)
}

// short refuses a list that is longer than an evaluation may look at: to join lists costs nothing, to walk them is one call.
func short(v ref.Val) ref.Val {
	if list, is := v.(traits.Lister); is && sizeOf(list) > costMax {
		return errCost()
	}
	return v
}

func sizeOf(v ref.Val) types.Int {
	list, _ := v.(traits.Sizer)
	if list == nil {
		return 0
	}
	n, _ := list.Size().(types.Int)
	return n
}

// sets are CEL's functions of two lists, which compare each element with each, but not more of them than an evaluation may.
func sets() (options []cel.EnvOption, err error) {
	library := ext.Sets()
	from, err := cel.NewCustomEnv(library)
	if err != nil {
		return nil, err
	}
	options = append(options, library)
	for name, f := range from.Functions() {
		bindings, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		for _, o := range f.OverloadDecls() {
			i := slices.IndexFunc(bindings, func(b *functions.Overload) bool { return b.Operator == o.ID() && b.Binary != nil })
			if i < 0 {
				return nil, fmt.Errorf("function %s of CEL: no binding of two lists", name)
			}
			compare := bindings[i].Binary
			options = append(options, cel.Function(name, cel.Overload(o.ID(), o.ArgTypes(), o.ResultType(), cel.BinaryBinding(func(a, b ref.Val) ref.Val {
				if n := sizeOf(b); n > 0 && weight(a) > costMax/uint64(n) {
					return errCost()
				}
				return compare(a, b)
			}))))
		}
	}
	return options, nil
}
