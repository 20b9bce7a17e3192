// want: does not match inferred type duly.Giving[parcel, string]

// The result of a plan is that of one of its steps, which take its input.
package main

import "duly.dev/duly"

type order struct{ Cents int }

type parcel struct{ Grams int }

var (
	pack   = duly.NewStep[parcel, string]("pack", "warehouse.pack")
	charge = duly.NewStep[order, string]("charge", "payment.charge")
	send   = duly.ResultOf(duly.NewPlan("send", 1, pack), charge)
)

func main() { _ = send }
