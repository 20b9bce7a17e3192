package node

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/jsonschema"
)

// schemas checks inputs by the schemas of plans, each of which is compiled once.
type schemas struct{ cache jsonschema.Cache }

// input checks the input of a task by its plan.
func (s *schemas) input(plan *core.Plan, input []byte) error {
	return s.cache.Check(plan.InputSchema, input)
}

// signal checks the payload of a signal by the schema of its step.
func (s *schemas) signal(step *core.Step, payload []byte) error {
	return s.cache.Check(step.Schema, payload)
}
