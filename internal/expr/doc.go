// Package expr evaluates the expressions of plans: whether a step begins, what it is given, until when it waits, which
// elements it has, what a task comes to. They are CEL, compiled and type-checked when a plan is applied.
//
// An expression sees `input`, the task's input, and `results`, a map from the names of the steps that its own step comes
// after, directly or through others, to what they answered. A step that was skipped is not in the map. It sees neither a
// clock nor chance, so that it comes to the same whenever it is asked. What it costs is bounded.
//
// A number of JSON keeps its value. One that is whole, however it is written (5, 5.0, 5e0), and that 64 bits hold is an
// int; one that is a double without rounding is a double; any other keeps its digits, is passed on and compared, and fails
// what would calculate with it. All compare. What is calculated with has a type that does not depend on the data: by a
// conversion, as in double(input.count) * 1.5, or by the schema of the plan's input or of a signal.
package expr

import "duly.dev/duly/internal/core"

// costMax bounds what one evaluation may cost, in CEL's units: about one for each operation, and more for long texts. It is
// some tens of milliseconds of one core.
const costMax = 1_000_000

// Bounds of one expression, besides core.ExpressionBytesMax.
const (
	nestingMax   = 100    // parentheses, calls and members in each other
	nodesMax     = 10_000 // after macros are expanded
	regexSizeMax = 10_000 // instructions of a compiled regular expression
)

// field is which expression of a step or plan it is, as files name it.
type field string

const (
	fieldWhen     field = "when"
	fieldWith     field = "with"
	fieldUntil    field = "until"
	fieldElements field = "elements"
	fieldResult   field = "result"
)

// place is an expression of a plan: the step, -1 for the plan itself, and the field.
type place struct {
	step  int
	field field
}

// name is how errors name the place.
func (x place) name(p *core.Plan) string {
	if x.step < 0 {
		return string(x.field)
	}
	return "step " + p.Steps[x.step].Name + ": " + string(x.field)
}
