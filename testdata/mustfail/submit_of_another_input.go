// want: cannot use parcel{

// A task's input is the one its steps take.
package main

import (
	"context"

	"duly.dev/duly"
)

type order struct{ Cents int }

type parcel struct{ Grams int }

var (
	credit = duly.NewCheck[order, bool]("credit", "credit.check")
	buy    = duly.NewPlan("order", 1, credit)
)

func main() {
	var client *duly.Client
	if _, err := buy.Submit(context.Background(), client, "order-17", parcel{Grams: 1}); err != nil {
		panic(err)
	}
}
