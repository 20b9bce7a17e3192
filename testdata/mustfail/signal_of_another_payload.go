// want: cannot use "yes" (untyped string constant) as approval value

// A signal is answered with its payload, and no other.
package main

import (
	"context"

	"duly.dev/duly"
)

type order struct{ Cents int }

type approval struct{ By string }

var (
	approve = duly.NewSignal[order, approval]("approve")
	buy     = duly.NewPlan("order", 1, approve)
)

func main() {
	var client *duly.Client
	if err := buy.Signal(context.Background(), client, "order-17", approve.Answer("yes")); err != nil {
		panic(err)
	}
}
