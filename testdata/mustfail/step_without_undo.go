// want: not enough arguments in call to charge.Serve

// A step with an effect is served together with its undo.
package main

import (
	"context"

	"duly.dev/duly"
)

type order struct{ Cents int }

type receipt struct{ ID string }

var charge = duly.NewStep[order, receipt]("charge", "payment.charge")

func main() {
	agent, err := duly.NewAgent(nil)
	if err != nil {
		panic(err)
	}
	err = charge.Serve(agent, func(context.Context, duly.Call[order]) (receipt, error) { return receipt{}, nil })
	if err != nil {
		panic(err)
	}
}
