package dulytest_test

import (
	"context"
	"fmt"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

type Order struct{ Cents int }

type Receipt struct{ Payment string }

var Charge = duly.NewStep[Order, Receipt]("charge", "payment.charge")

// Bank is a service that takes no idempotency key: what it is told, it does.
type Bank struct{ payments map[string]int }

func (b *Bank) Pay(_ context.Context, call duly.Call[Order]) (Receipt, error) {
	b.payments[call.Key]++
	return Receipt{Payment: fmt.Sprint("payment ", b.payments[call.Key])}, nil
}

func (b *Bank) Refund(_ context.Context, undo duly.Undo[Order, Receipt]) error {
	if b.payments[undo.Key] > 0 {
		b.payments[undo.Key]--
	}
	return nil
}

// printer stands in for the *testing.T of a test.
type printer struct{}

func (printer) Helper() {}

func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (printer) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A bank that pays whenever it is told is not safe by itself; with a ledger in
// between it is.
func ExampleRunTwice() {
	for _, options := range [][]duly.AgentOption{
		nil,
		{duly.WithLedger(duly.NewMemoryLedger(0, 0))},
	} {
		bank := &Bank{payments: map[string]int{}}
		agent, err := duly.NewAgent(nil, options...)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := Charge.Serve(agent, bank.Pay, bank.Refund); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("ledgers:", len(options))
		dulytest.RunTwice(printer{}, agent, Charge, Order{Cents: 1999},
			dulytest.Effects(func(key string) int { return bank.payments[key] }))
	}
	// Output:
	// ledgers: 0
	// step charge, all is well: do again: 2 effects stand, want 1
	// step charge, all is well: do again: answered {"Payment":"payment 2"}, the first time {"Payment":"payment 1"}
	// step charge, all is well: undo: 1 effects stand, want 0
	// step charge, all is well: late do: succeeded, want code 410
	// step charge, all is well: late do: 1 effects stand, want 0
	// step charge, the answer lost: late do: succeeded, want code 410
	// step charge, the answer lost: late do: 1 effects stand, want 0
	// step charge, the undo first: late do: succeeded, want code 410
	// step charge, the undo first: late do: 1 effects stand, want 0
	// ledgers: 1
}
