package order_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/order"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is the example on an engine.
func desk(t *testing.T) (*order.Example, *dulytest.Engine) {
	t.Helper()
	e := order.New(mock.Settings{})
	agent, err := duly.NewAgent(nil)
	if err == nil {
		err = e.Serve(agent)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e, dulytest.NewEngine(t, agent)
}

func TestExpressOrder(t *testing.T) {
	e, engine := desk(t)
	task := dulytest.Submit(engine, e.Plan, "order-1", order.Order{Item: "lamp", Express: true})
	engine.Run()
	task.WantProcessed()
	var told order.Confirmation
	if err := task.Result(&told); err != nil || told != (order.Confirmation{Payment: "p-order-1", By: "courier"}) {
		t.Errorf("%+v: %v", told, err)
	}
	if n := e.Books().Standing(); n != 3 {
		t.Errorf("%d effects stand, want 3", n)
	}
}

func TestOrderByMail(t *testing.T) {
	e, engine := desk(t)
	task := dulytest.Submit(engine, e.Plan, "order-1", order.Order{Item: "lamp"})
	engine.Run()
	task.WantProcessed()
	var told order.Confirmation
	if err := task.Result(&told); err != nil || told.By != "mail" || task.Step(e.Courier) != "skipped" {
		t.Errorf("%+v by a courier that is %s: %v", told, task.Step(e.Courier), err)
	}
}

// A courier that never answers is no reason to lose the order.
func TestCourierIsOptional(t *testing.T) {
	e, engine := desk(t)
	engine.On(e.Courier).Lost()
	task := dulytest.Submit(engine, e.Plan, "order-1", order.Order{Item: "lamp", Express: true})
	engine.Run()
	task.WantProcessed()
	var told order.Confirmation
	if err := task.Result(&told); err != nil || told.By != "mail" {
		t.Errorf("%+v: %v", told, err)
	}
	if n := e.Books().Standing(); n != 2 {
		t.Errorf("%d effects stand, want 2: that of the courier is taken back", n)
	}
}

func TestRefusedPaymentUndoesTheOthers(t *testing.T) {
	e, engine := desk(t)
	engine.On(e.Charge).Fail(duly.Refuse(errors.New("card declined")))
	task := dulytest.Submit(engine, e.Plan, "order-1", order.Order{Item: "lamp", Express: true})
	engine.Run()
	task.WantState(duly.StateUndone)
	if n := e.Books().Standing(); n != 0 || task.Reason() != "card declined" {
		t.Errorf("%d effects stand; %s", n, task.Reason())
	}
}
