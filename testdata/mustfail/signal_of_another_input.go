// want: cannot use weigh.Answer(7) (value of struct type duly.Answer[parcel]) as duly.Answer[order] value

// A task is told the answer of a signal of its own plan.
package main

import (
	"context"

	"duly.dev/duly"
)

type order struct{ Cents int }

type parcel struct{ Grams int }

var (
	approve = duly.NewSignal[order, bool]("approve")
	weigh   = duly.NewSignal[parcel, int]("weigh")
	buy     = duly.NewPlan("order", 1, approve)
)

func main() {
	var client *duly.Client
	if err := buy.Signal(context.Background(), client, "order-17", weigh.Answer(7)); err != nil {
		panic(err)
	}
}
