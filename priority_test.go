package duly_test

import (
	"testing"

	"duly.dev/duly"
)

// TestPriority: what a submission says of its class and its tenant is what a node is told: see docs/guide/fairness.md.
func TestPriority(t *testing.T) {
	plan := duly.NewPlan("order", 1, duly.NewStep[int, int]("pay", "payment"))
	options := []duly.SubmitOption{
		duly.Priority(duly.ClassHigh), duly.Label("tenant", "acme"),
	}
	p, err := plan.Prepare(t.Context(), nil, "o-17", 100, options...)
	if err != nil || p.Headers["Duly-Labels"] != "duly-priority=high,tenant=acme" {
		t.Errorf("%v %v", p.Headers, err)
	}
}
