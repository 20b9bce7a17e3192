// Package plancheck tells all that is wrong with a plan, the same at every door that takes one.
package plancheck

import (
	"errors"
	"fmt"

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

// Doubts are what may not be meant in a plan that can work.
func Doubts(p *core.Plan) (doubts []string) {
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Kind == core.CallStep && !s.Probe && s.KeyLasts < p.CompleteBy {
			doubts = append(doubts, fmt.Sprintf("step %s: key_lasts is %s, less than the plan's complete_by of %s: it is not tried again later than that; say how long its service remembers keys, or probe: true", s.Name, s.KeyLasts, p.CompleteBy))
		}
	}
	return doubts
}
