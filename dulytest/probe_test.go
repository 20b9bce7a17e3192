package dulytest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

var (
	probedPay = duly.NewStep[Cart, Bill]("pay", "pay.asked", duly.Probed())
	probedBuy = duly.NewPlan("asked", 1, probedPay)
)

// A service that is asked what became of a call decides: its effect completes the step, that there is none lets it be
// tried again, and what it cannot tell is as if it were not asked.
func TestProbes(t *testing.T) {
	for name, test := range map[string]struct {
		rule  func(*dulytest.Rule)
		knows bool
		trail string
		paid  int
	}{
		"its answer is lost":  {func(r *dulytest.Rule) { r.Attempt(1).Lost() }, true, "pay overdue, pay probed", 1},
		"it was never called": {func(r *dulytest.Rule) { r.Attempt(1).Silent() }, true, "pay overdue, pay probed, pay done", 1},
		"it is silent always": {func(r *dulytest.Rule) { r.Silent() }, true, "pay overdue, pay probed, pay overdue, pay probed, pay overdue, pay probed, pay undone", 0},
		"it cannot tell":      {func(r *dulytest.Rule) { r.Attempt(1).Lost() }, false, "pay overdue, pay probed, pay done", 2},
	} {
		t.Run(name, func(t *testing.T) {
			paid, bills := 0, map[string]Bill{}
			agent, err := duly.NewAgent(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := probedPay.Serve(agent, func(_ context.Context, call duly.Call[Cart]) (Bill, error) {
				paid++
				bills[call.Key] = Bill{Number: call.Key}
				return bills[call.Key], nil
			}, func(_ context.Context, call duly.Undo[Cart, Bill]) error {
				delete(bills, call.Key)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := probedPay.ServeProbe(agent, func(_ context.Context, call duly.Call[Cart]) (duly.Probe[Bill], error) {
				bill, is := bills[call.Key]
				switch {
				case !test.knows:
					return duly.Probe[Bill]{}, errors.New("the books are closed")
				case is:
					return duly.Done(bill), nil
				}
				return duly.Absent[Bill](), nil
			}); err != nil {
				t.Fatal(err)
			}
			engine := dulytest.NewEngine(t, agent)
			test.rule(engine.On(probedPay))
			task := dulytest.Submit(engine, probedBuy, "order-1", Cart{})
			engine.Run()
			if got := strings.Join(task.Trail(), ", "); got != test.trail {
				t.Errorf("trail %s\nwant  %s", got, test.trail)
			}
			if paid != test.paid {
				t.Errorf("%d paid, want %d", paid, test.paid)
			}
			if test.paid == 0 {
				task.WantUndone(probedPay)
				return
			}
			task.WantProcessed()
			var bill Bill
			if err := task.StepResult(probedPay, &bill); err != nil || bill.Number != "order-1/pay/0" {
				t.Errorf("bill %+v: %v", bill, err)
			}
		})
	}
}
