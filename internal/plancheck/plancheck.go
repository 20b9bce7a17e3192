// Package plancheck tells all that is wrong with a plan, the same at every door that takes one.
package plancheck

import (
	"errors"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/jsonschema"
)

// Check checks a plan with its defaults: limits, schemas, expressions. payloadMax is as core.Plan.Validate's. Errors wrap
// core.ErrPlan and have a line for each thing that is wrong.
func Check(p *core.Plan, payloadMax int) error {
	err := p.Validate(payloadMax)
	if len(p.Steps) > core.StepsMax {
		return err
	}
	_, wrong := expr.Compile(p)
	return errors.Join(err, jsonschema.CheckPlan(p), wrong)
}
