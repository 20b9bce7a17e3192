// want: cannot use refund

// An undo takes the result that its do gives, and no other.
package main

import (
	"context"

	"duly.dev/duly"
)

type order struct{ Cents int }

type receipt struct{ ID string }

type label struct{ Code string }

var charge = duly.NewStep[order, receipt]("charge", "payment.charge")

func pay(context.Context, duly.Call[order]) (receipt, error) { return receipt{}, nil }

func refund(context.Context, duly.Undo[order, label]) error { return nil }

func main() {
	agent, err := duly.NewAgent(nil)
	if err != nil {
		panic(err)
	}
	if err := charge.Serve(agent, pay, refund); err != nil {
		panic(err)
	}
}
