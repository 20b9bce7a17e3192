// Package payout is an example with a schedule and a budget: every night the payees of the day are collected, and each
// is paid by a task of its own. A payment has ten minutes; two of them are kept for taking it back, so that it has been
// taken back by then, and a transfer that would have less than five seconds is not begun.
//
// Up to three payees of a night may fail: they are taken back by themselves, and paid another night.
package payout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/mock"
)

// Night is the input of a task.
type Night struct {
	Day string `json:"day"` // 2026-11-26; empty: that of the run
}

// Payee is the input of a child.
type Payee struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// Collected is what is due.
type Collected struct {
	Payees []Payee `json:"payees"`
}

// Booked is the receipt of a debit and of a transfer.
type Booked struct {
	Number string `json:"number"`
}

// Closed is the answer of the last step.
type Closed struct{}

// PayeesMax is how many payees a night may have.
const PayeesMax = 5000

// Example is the plans of a night and of a payment with their steps, and the services behind them.
type Example struct {
	Debit    *duly.Step[Payee, Booked]
	Transfer *duly.Step[Payee, Booked]
	Payment  *duly.PlanWithResult[Payee, Booked]

	Collect *duly.Check[Night, Collected]
	Pay     *duly.Each[Night]
	Close   *duly.Check[Night, Closed]
	Night   *duly.Plan[Night]

	// Payees are what is due on the night of a task.
	Payees func(task string) []Payee

	ledger, bank *mock.Service
}

// New makes the example.
func New(s mock.Settings) *Example {
	var call []duly.StepOption
	payment, reserve, least, night := 10*time.Minute, 2*time.Minute, 5*time.Second, 6*time.Hour
	if s.CallTime > 0 {
		call = append(call, duly.CompleteBy(s.CallTime), duly.Backoff(50*time.Millisecond, time.Second))
		payment, reserve, least, night = 30*s.CallTime, 10*s.CallTime, s.CallTime/2, 120*s.CallTime
	}
	e := &Example{
		Payees: payees,
		ledger: s.Service("ledger"),
		bank:   s.Service("bank"),
	}
	e.Debit = duly.NewStep[Payee, Booked]("debit", "ledger.debit", call...)
	e.Transfer = duly.NewStep[Payee, Booked]("transfer", "bank.transfer", append(call, duly.Least(least))...)
	plan := duly.NewPlan("payment", 1, e.Debit, e.Transfer).With(duly.TaskCompleteBy(payment), duly.UndoReserve(reserve))
	e.Payment = duly.ResultOf(plan, e.Transfer)

	e.Collect = duly.NewCheck[Night, Collected]("collect", "ledger.collect")
	e.Pay = duly.NewEach[Night]("pay", e.Payment, duly.Elements("results.collect.payees", PayeesMax), duly.Parallel(20), duly.FailuresMax(3))
	e.Close = duly.NewCheck[Night, Closed]("close", "ledger.close")
	e.Night = duly.NewPlan("payout", 1, e.Collect, e.Pay, e.Close).
		With(duly.TaskCompleteBy(night), duly.Admission(duly.AdmissionWarn))
	return e
}

// Serve has an agent perform the steps.
func (e *Example) Serve(agent *duly.Agent) error {
	return errors.Join(
		e.Debit.Serve(agent,
			func(ctx context.Context, c duly.Call[Payee]) (Booked, error) {
				return Booked{Number: "d-" + c.Task}, e.ledger.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Payee, Booked]) error { return e.ledger.Undo(ctx, u.Key) }),
		e.Transfer.Serve(agent,
			func(ctx context.Context, c duly.Call[Payee]) (Booked, error) {
				return Booked{Number: "t-" + c.Task}, e.bank.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Payee, Booked]) error { return e.bank.Undo(ctx, u.Key) }),
		e.Collect.Serve(agent, func(_ context.Context, c duly.Call[Night]) (Collected, error) {
			return Collected{Payees: e.Payees(c.Task)}, nil
		}),
		e.Close.Serve(agent, func(context.Context, duly.Call[Night]) (Closed, error) { return Closed{}, nil }),
	)
}

// Apply stores both plans.
func (e *Example) Apply(ctx context.Context, client *duly.Client) error {
	return errors.Join(e.Payment.Apply(ctx, client), e.Night.Apply(ctx, client))
}

// Submit hands in the night of a number, as the schedule would.
func (e *Example) Submit(ctx context.Context, client *duly.Client, number int) (mock.Ref, error) {
	id := fmt.Sprintf("night-%d", number)
	_, err := e.Night.Submit(ctx, client, id, Night{})
	return mock.Ref{Type: e.Night.Name(), ID: id}, err
}

// payees are those of a night: always the same for a task.
func payees(task string) []Payee {
	n := 5 + len(task)%7
	due := make([]Payee, n)
	for i := range due {
		due[i] = Payee{Account: fmt.Sprintf("%s-%d", task, i), Cents: int64(1000 + 37*i)}
	}
	return due
}

// Children are the payments of a night.
func (e *Example) Children(of mock.Ref) (children []mock.Ref) {
	if of.Type != e.Night.Name() {
		return nil
	}
	for i := range e.Payees(of.ID) {
		children = append(children, mock.Ref{Type: e.Payment.Name(), ID: duly.ElementID(of.ID, e.Pay, i)})
	}
	return children
}

// Books are those of the two services.
func (e *Example) Books() mock.Books {
	return mock.Books{"payment/debit": e.ledger, "payment/transfer": e.bank}
}
