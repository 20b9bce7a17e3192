package duly_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"duly.dev/duly"
)

// What a shop's submitters and agents share.
type (
	// Order is the input of a task.
	Order struct{ Cents int }
	// Score is what the credit check finds.
	Score struct{ Points int }
	// Payment is the receipt of a charge.
	Payment struct{ ID string }
	// Parcel is the receipt of a shipment.
	Parcel struct{ Track string }
)

// The steps of buying, and their order.
var (
	Credit = duly.NewCheck[Order, Score]("credit", "credit.check")
	Charge = duly.NewStep[Order, Payment]("charge", "payment.charge", duly.CompleteBy(2*time.Second))
	Ship   = duly.NewStep[Order, Parcel]("ship", "parcel.send", duly.OnExhausted(duly.AskPerson))
	Buy    = duly.NewPlan("order", 1, Credit, Charge, Ship)
)

// shop is the services behind the steps. It refuses credit above 500 euro and
// ships nothing that costs 13 cents.
type shop struct{ paid, sent atomic.Int64 }

func (s *shop) credit(_ context.Context, call duly.Call[Order]) (Score, error) {
	if call.Input.Cents > 50_000 {
		return Score{}, duly.Refuse(errors.New("no credit for that much"))
	}
	return Score{Points: 700}, nil
}

func (s *shop) charge(_ context.Context, call duly.Call[Order]) (Payment, error) {
	score, err := Credit.Result(call)
	if err != nil {
		return Payment{}, err
	}
	s.paid.Add(1)
	return Payment{ID: fmt.Sprintf("%s-%d", call.Task, score.Points)}, nil
}

func (s *shop) refund(_ context.Context, undo duly.Undo[Order, Payment]) error {
	if undo.Known {
		s.paid.Add(-1)
	}
	return nil
}

func (s *shop) ship(_ context.Context, call duly.Call[Order]) (Parcel, error) {
	if call.Input.Cents == 13 {
		return Parcel{}, duly.RefuseCode(404, errors.New("that cannot be sent"))
	}
	s.sent.Add(1)
	return Parcel{Track: call.Key}, nil
}

func (s *shop) recall(_ context.Context, undo duly.Undo[Order, Parcel]) error {
	if undo.Known {
		s.sent.Add(-1)
	}
	return nil
}

func (s *shop) serve(agent *duly.Agent) error {
	return errors.Join(
		Credit.Serve(agent, s.credit),
		Charge.Serve(agent, s.charge, s.refund),
		Ship.Serve(agent, s.ship, s.recall),
	)
}
