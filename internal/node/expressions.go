package node

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// expressions evaluates those of stored plans for the scheduler.
type expressions struct{ expr.Cache }

// Children implements scheduler.Expressions.
func (x *expressions) Children(plan *core.Plan, t *core.Task, step int) func(index int, element []byte) ([]byte, error) {
	program, err := x.Program(plan)
	if err != nil || program == nil {
		return func(int, []byte) ([]byte, error) { return nil, err }
	}
	return program.Children(t, step).Input
}
