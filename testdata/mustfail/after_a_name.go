// want: cannot use "credit" (constant of type string) as duly.Named value
// want: cannot use other (variable of type *duly.Plan[order]) as duly.Named value

// After takes steps, not names of steps, and no plan.
package main

import "duly.dev/duly"

type order struct{ Cents int }

var (
	credit = duly.NewCheck[order, bool]("credit", "credit.check")
	other  = duly.NewPlan("other", 1, credit)
	charge = duly.NewStep[order, string]("charge", "payment.charge", duly.After("credit"))
	ship   = duly.NewStep[order, string]("ship", "parcel.send", duly.After(other))
)

func main() { _, _ = charge, ship }
