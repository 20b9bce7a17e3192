// want: not enough arguments in call to buy.Submit

// The caller chooses the id: one made up for it would turn a repeated call into
// a second task.
package main

import (
	"context"

	"duly.dev/duly"
)

type order struct{ Cents int }

var (
	credit = duly.NewCheck[order, bool]("credit", "credit.check")
	buy    = duly.NewPlan("order", 1, credit)
)

func main() {
	var client *duly.Client
	if _, err := buy.Submit(context.Background(), client, order{Cents: 1}); err != nil {
		panic(err)
	}
}
