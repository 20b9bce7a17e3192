package node

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/seal"
)

// schemas checks inputs by the schemas of plans, each of which is compiled once.
type schemas struct{ cache jsonschema.Cache }

// input checks the input of a task by its plan. What is encrypted cannot be looked into, and fits.
func (s *schemas) input(plan *core.Plan, input []byte) error {
	if _, encrypted := seal.Of(input); encrypted {
		return nil
	}
	return s.cache.Check(plan.InputSchema, input)
}

// signal checks the payload of a signal by the schema of its step.
func (s *schemas) signal(step *core.Step, payload []byte) error {
	if _, encrypted := seal.Of(payload); encrypted {
		return nil
	}
	return s.cache.Check(step.Schema, payload)
}
