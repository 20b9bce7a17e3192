package expr

import (
	"math"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// program makes what evaluates an expression, which costs costMax at most.
func program(env *cel.Env, ast *cel.Ast, how cel.EvalOption) (cel.Program, error) {
	both := func(args []ref.Val, _ ref.Val) *uint64 {
		return costOf(min(weight(args[0]), weight(args[1])), min(sizeOf(args[0]), sizeOf(args[1])))
	}
	list := func(args []ref.Val, _ ref.Val) *uint64 { return costOf(weight(args[1]), sizeOf(args[1])) }
	return env.Program(ast, cel.EvalOptions(how), cel.CostLimit(costMax), cel.CustomDecoratorV2(compared), cel.CostTrackerOptions(
		cost.OverloadTracker(overloads.Equals, both), cost.OverloadTracker(overloads.NotEquals, both), cost.OverloadTracker(overloads.InList, list)))
}

// costOf is what it costs to look at so many parts, of which so many are of the first level; nil: what CEL takes, which counts
// these.
func costOf(parts uint64, first types.Int) *uint64 {
	if parts <= uint64(first) {
		return nil
	}
	return &parts
}

// parts counts those of a value, with the parts of these; 100 bytes of a text are one. A value that holds another one twice has
// its parts twice.
var parts = types.NewSizeCalculator(types.SizeCalculatorMaxDepth(math.MaxInt), types.SizeCalculatorMaxTraversal(costMax), types.SizeCalculatorStringUnitLength(100))

func weight(v ref.Val) uint64 { return uint64(parts.AggregateSize(v)) }

// heavy reports whether a value has more parts than an evaluation may look at: a list that was put into a list twice, and that
// again, and so on.
func heavy(v ref.Val) bool { return weight(v) > costMax }

// comparison is a == or a != that looks at no more parts than an evaluation may: CEL counts those of the first level alone.
type comparison struct{ interpreter.InterpretableCall }

// compared has an expression compare by it.
func compared(x interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if call, is := x.(interpreter.InterpretableCall); is && (call.Function() == operators.Equals || call.Function() == operators.NotEquals) {
		return comparison{call}, nil
	}
	return x, nil
}

// Eval implements interpreter.Interpretable.
func (c comparison) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// Exec implements interpreter.InterpretableV2.
func (c comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var of [2]ref.Val
	for i, arg := range c.Args() {
		if of[i] = arg.Exec(frame); types.IsUnknownOrError(of[i]) {
			return of[i]
		}
	}
	if heavy(of[0]) && heavy(of[1]) {
		return types.LabelErrNode(c.ID(), errCost())
	}
	is := types.Equal(of[0], of[1])
	if c.Function() == operators.NotEquals {
		is = types.Bool(is != types.True)
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, c.ID(), c, of[0], of[1], is)
	}
	return is
}

// within is the operator in, which compares with each element of a list.
func within(v, in ref.Val) ref.Val {
	if _, list := in.(traits.Lister); list && heavy(in) {
		return errCost()
	}
	if c, is := in.(traits.Container); is {
		return c.Contains(v)
	}
	return types.MaybeNoSuchOverloadErr(in)
}
