// Package order is an example with branches: an order is charged, its stock is reserved and, if it is an express one, a
// courier is booked, all three side by side. When they are done the customer is told; when one of them cannot be, the
// others are undone.
//
// A courier that cannot be had is no reason to lose the order: that step is optional, and the parcel is mailed.
package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/mock"
)

// Order is the input of a task.
type Order struct {
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
	Cents    int64  `json:"cents"`
	Express  bool   `json:"express"`
}

// Payment is the receipt of a charge.
type Payment struct {
	ID string `json:"id"`
}

// Reservation is the receipt of reserved stock.
type Reservation struct {
	Shelf string `json:"shelf"`
}

// Pickup is the receipt of a booked courier.
type Pickup struct {
	Courier string `json:"courier"`
}

// Confirmation is what the customer is told, and the result of the task.
type Confirmation struct {
	Payment string `json:"payment"`
	By      string `json:"by"` // courier or mail
}

// Example is the plan of an order with its steps, and the services behind them.
type Example struct {
	Charge  *duly.Step[Order, Payment]
	Reserve *duly.Step[Order, Reservation]
	Courier *duly.Step[Order, Pickup]
	Confirm *duly.Check[Order, Confirmation]
	Plan    *duly.PlanWithResult[Order, Confirmation]

	payments, stock, couriers *mock.Service
}

// New makes the example.
func New(s mock.Settings) *Example {
	call := []duly.StepOption{duly.After()} // nothing comes before it
	if s.CallTime > 0 {
		call = append(call, duly.CompleteBy(s.CallTime), duly.Backoff(50*time.Millisecond, time.Second))
	}
	e := &Example{
		payments: s.Service("payments"),
		stock:    s.Service("stock"),
		couriers: s.Service("couriers"),
	}
	e.Charge = duly.NewStep[Order, Payment]("charge", "payment.charge", call...)
	e.Reserve = duly.NewStep[Order, Reservation]("reserve", "stock.reserve", call...)
	e.Courier = duly.NewStep[Order, Pickup]("courier", "courier.book", append(call, duly.When("input.express"), duly.Optional())...)
	e.Confirm = duly.NewCheck[Order, Confirmation]("confirm", "mail.confirm", duly.After(e.Charge, e.Reserve, e.Courier))
	e.Plan = duly.ResultOf(duly.NewPlan("shop-order", 1, e.Charge, e.Reserve, e.Courier, e.Confirm), e.Confirm)
	return e
}

// Serve has an agent perform the steps.
func (e *Example) Serve(agent *duly.Agent) error {
	return errors.Join(
		e.Charge.Serve(agent,
			func(ctx context.Context, c duly.Call[Order]) (Payment, error) {
				return Payment{ID: "p-" + c.Task}, e.payments.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Order, Payment]) error { return e.payments.Undo(ctx, u.Key) }),
		e.Reserve.Serve(agent,
			func(ctx context.Context, c duly.Call[Order]) (Reservation, error) {
				return Reservation{Shelf: "s-" + c.Input.Item}, e.stock.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Order, Reservation]) error { return e.stock.Undo(ctx, u.Key) }),
		e.Courier.Serve(agent,
			func(ctx context.Context, c duly.Call[Order]) (Pickup, error) {
				return Pickup{Courier: "c-" + c.Task}, e.couriers.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Order, Pickup]) error { return e.couriers.Undo(ctx, u.Key) }),
		e.Confirm.Serve(agent, e.confirm),
	)
}

// confirm tells the customer how the parcel comes. A courier that was skipped has no result.
func (e *Example) confirm(_ context.Context, c duly.Call[Order]) (Confirmation, error) {
	payment, err := e.Charge.Result(c)
	if err != nil {
		return Confirmation{}, err
	}
	by := "mail"
	if _, err := e.Courier.Result(c); err == nil {
		by = "courier"
	}
	return Confirmation{Payment: payment.ID, By: by}, nil
}

// Apply stores the plan.
func (e *Example) Apply(ctx context.Context, client *duly.Client) error {
	return e.Plan.Apply(ctx, client)
}

// Submit hands in the order of a number: every other one is an express order.
func (e *Example) Submit(ctx context.Context, client *duly.Client, number int) (mock.Ref, error) {
	id := fmt.Sprintf("order-%d", number)
	_, err := e.Plan.Submit(ctx, client, id, Number(number))
	return mock.Ref{Type: e.Plan.Name(), ID: id}, err
}

// Number is the order of a number.
func Number(n int) Order {
	return Order{Customer: fmt.Sprintf("customer-%d", n%50), Item: fmt.Sprintf("item-%d", n%400), Quantity: 1 + n%3, Cents: int64(499 + 100*n%20_000), Express: n%2 == 0}
}

// Children are none.
func (e *Example) Children(mock.Ref) []mock.Ref { return nil }

// Books are those of the three services.
func (e *Example) Books() mock.Books {
	return mock.Books{"shop-order/charge": e.payments, "shop-order/reserve": e.stock, "shop-order/courier": e.couriers}
}
