package duly_test

import (
	"fmt"

	"duly.dev/duly"
)

// A plan that takes only what its steps can read.
func ExampleInputSchema() {
	type Parcel struct {
		Kilos float64 `json:"kilos" jsonschema:"minimum=0.1,maximum=30"`
	}
	pick := duly.NewStep[Parcel, string]("pick", "warehouse.pick")
	plan := duly.NewPlan("parcel", 2, pick).With(duly.InputSchema())
	fmt.Println(plan.Name(), plan.Version())
	// Output: parcel 2
}

// An approval that says who gave it, or is refused.
func ExamplePayloadSchema() {
	type Approval struct {
		By string `json:"by" jsonschema:"minLength=1"`
	}
	approve := duly.NewSignal[Order, Approval]("approve", duly.PayloadSchema())
	plan := duly.NewPlan("order", 2, approve)
	fmt.Println(plan.Name(), plan.Version())
	// Output: order 2
}
