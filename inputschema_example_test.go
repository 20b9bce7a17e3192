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
