// want: does not match inferred type duly.StepOf[order]

// All steps of a plan take the task's one input.
package main

import "duly.dev/duly"

type order struct{ Cents int }

type parcel struct{ Grams int }

var (
	credit = duly.NewCheck[order, bool]("credit", "credit.check")
	pack   = duly.NewStep[parcel, string]("pack", "warehouse.pack")
	buy    = duly.NewPlan("order", 1, credit, pack)
)

func main() { _ = buy }
