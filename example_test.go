package duly_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// connect stands in for nats.Connect: it starts a server, with the shop's agent
// at work, and gives a connection to it.
func connect() (nc *nats.Conn, stop func()) {
	f, err := newFake(context.Background())
	if err != nil {
		panic(err)
	}
	nc, err = f.connect()
	if err != nil {
		panic(err)
	}
	agent, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	if err := (&shop{}).serve(agent); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- agent.Run(ctx) }()
	if err := f.await(ctx); err != nil {
		panic(err)
	}
	return nc, func() {
		f.settle()
		cancel()
		err := <-done
		nc.Close()
		if err := errors.Join(err, f.stop()); err != nil {
			panic(err)
		}
	}
}

// A plan is stored once, then its tasks are submitted under ids of your choice.
// The same id again is the same task.
func ExamplePlan_Submit() {
	nc, stop := connect()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := duly.NewClient(nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := Buy.Apply(ctx, client); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		receipt, err := Buy.Submit(ctx, client, "order-17", Order{Cents: 1999}, duly.Within(time.Minute))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("stored:", receipt.Task)
	}
	// Output:
	// stored: order-17
	// stored: order-17
}

// SubmitAll submits many at a time, and tells what became of each.
func ExampleClient_SubmitAll() {
	nc, stop := connect()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := duly.NewClient(nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := Buy.Apply(ctx, client); err != nil {
		fmt.Println(err)
		return
	}
	orders := func(yield func(duly.Submission) bool) {
		for n := range 100 {
			if !yield(Buy.Submission(fmt.Sprintf("bulk-%d", n), Order{Cents: n})) {
				return
			}
		}
	}
	stored := 0
	for done, err := range client.SubmitAll(ctx, orders) {
		if err != nil {
			fmt.Println(done.Submission.Task, err)
			continue
		}
		stored++
	}
	fmt.Println("stored:", stored)
	// Output: stored: 100
}

// Watch follows one task to its end.
func ExampleClient_Watch() {
	nc, stop := connect()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := duly.NewClient(nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := Buy.Apply(ctx, client); err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := Buy.Submit(ctx, client, "order-18", Order{Cents: 99_999})
	if err != nil {
		fmt.Println(err)
		return
	}
	for status, err := range client.Watch(ctx, "order", "order-18", duly.Since(receipt.At)) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if status.State.Ended() {
			fmt.Println(status.State, "because of", status.Step+":", status.Error)
		}
	}
	// Output: undone because of credit: no credit for that much
}

// What would be refused again is told apart from what may work later.
func ExampleSubmitError() {
	nc, stop := connect()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := duly.NewClient(nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.SubmitRaw(ctx, "holiday", "h-1", []byte(`{"days":14}`))
	if refused, ok := errors.AsType[*duly.SubmitError](err); ok {
		fmt.Println(refused.Code, refused.Description, "- retryable:", refused.Retryable())
	}
	// Output: 404 no plan holiday - retryable: false
}

// SubmitRaw needs no types: the type's name, an id and JSON.
func ExampleClient_SubmitRaw() {
	nc, stop := connect()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := duly.NewClient(nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := Buy.Apply(ctx, client); err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := client.SubmitRaw(ctx, "order", "order-19", []byte(`{"Cents":1999}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.Type, receipt.Task)
	// Output: order order-19
}

// A cancelled task is undone; Watch shows when.
func ExampleClient_Cancel() {
	nc, stop := connect()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := duly.NewClient(nc, duly.Actor("shop-desk"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Cancel(ctx, "order", "order-20", "the customer called"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("asked")
	// Output: asked
}

// An agent serves steps, and runs until its context ends.
func ExampleAgent_Run() {
	nc, stop := connect()
	defer stop()

	agent, err := duly.NewAgent(nc, duly.Running(20), duly.WithLedger(duly.NewMemoryLedger(time.Hour, 0)))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = Charge.Serve(agent,
		func(_ context.Context, call duly.Call[Order]) (Payment, error) {
			score, err := Credit.Result(call) // of an earlier step
			if err != nil {
				return Payment{}, err
			}
			if score.Points < 500 {
				return Payment{}, duly.Refuse(errors.New("score too low")) // final
			}
			return Payment{ID: call.Key}, nil // the key is the bank's idempotency key
		},
		func(_ context.Context, undo duly.Undo[Order, Payment]) error {
			if !undo.Known {
				return nil // ask the bank by undo.Key: it may have been paid
			}
			return nil // give undo.Result.ID back
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(agent.Run(ctx))
	// Output: <nil>
}

// A service that calls back needs no goroutine that waits for it.
func ExampleStep_ServeAsync() {
	nc, stop := connect()
	defer stop()

	agent, err := duly.NewAgent(nc, duly.Running(10_000)) // begun and not done
	if err != nil {
		fmt.Println(err)
		return
	}
	// ask stands in for a bank's client; answered is called when the bank has answered.
	ask := func(what, key string, answered func(id string, err error)) {
		time.AfterFunc(20*time.Millisecond, func() { answered(what+" of "+key, nil) })
	}
	err = Charge.ServeAsync(agent,
		func(_ context.Context, call duly.Call[Order], done func(Payment, error)) {
			ask("payment", call.Key, func(id string, err error) { done(Payment{ID: id}, err) })
		},
		func(_ context.Context, undo duly.Undo[Order, Payment], done func(error)) {
			ask("refund", undo.Key, func(_ string, err error) { done(err) })
		})
	fmt.Println(err)
	// Output: <nil>
}

// Steps run in the order of the arguments; After says otherwise.
func ExampleNewPlan() {
	var (
		credit = duly.NewCheck[Order, Score]("credit", "credit.check", duly.CompleteBy(500*time.Millisecond), duly.Attempts(5))
		charge = duly.NewStep[Order, Payment]("charge", "payment.charge", duly.Backoff(time.Second, time.Minute))
		ship   = duly.NewStep[Order, Parcel]("ship", "parcel.send", duly.OnExhausted(duly.PolicyPause), duly.Pause(time.Hour), duly.After(credit, charge))
		plan   = duly.NewPlan("order", 2, credit, charge, ship).With(duly.TaskCompleteBy(24*time.Hour), duly.InputMax(16<<10))
	)
	fmt.Println(plan.Name(), plan.Version())
	// Output: order 2
}
