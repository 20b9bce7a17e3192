package dulytest_test

import (
	"context"
	"errors"
	"testing"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

type (
	Cart   struct{ Cents int }
	Score  struct{ Good bool }
	Bill   struct{ Number string }
	Parcel struct{ Track string }
)

var (
	Credit = duly.NewCheck[Cart, Score]("credit", "credit.check")
	Pay    = duly.NewStep[Cart, Bill]("pay", "payment.charge")
	Ship   = duly.NewStep[Cart, Parcel]("ship", "parcel.send", duly.Attempts(2))
	Buy    = duly.NewPlan("order", 1, Credit, Pay, Ship)
)

// paying is an agent that performs the payment, and counts what is paid.
func paying(t *testing.T, paid *int) *duly.Agent {
	agent, err := duly.NewAgent(nil, duly.Retries(0))
	if err != nil {
		t.Fatal(err)
	}
	err = Pay.Serve(agent,
		func(_ context.Context, call duly.Call[Cart]) (Bill, error) { *paid++; return Bill{Number: call.Key}, nil },
		func(context.Context, duly.Undo[Cart, Bill]) error { *paid--; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

func TestOrderThatCannotBeSentIsPaidBack(t *testing.T) {
	paid := 0
	engine := dulytest.NewEngine(t, paying(t, &paid))
	engine.On(Credit).Answer(Score{Good: true})
	engine.On(Ship).Answer(Parcel{})
	engine.On(Ship).Attempt(1).Silent()
	engine.On(Ship).Attempt(2).Fail(errors.New("no such street"))

	order := dulytest.Submit(engine, Buy, "order-17", Cart{Cents: 4900})
	engine.Run()

	order.WantUndone(Ship, Pay) // Ship, too: its first call may have taken effect
	if paid != 0 {
		t.Errorf("%d payments stand", paid)
	}
}
