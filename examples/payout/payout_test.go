package payout_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/payout"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is the example on an engine, with so many payees a night.
func desk(t *testing.T, payees int) (*payout.Example, *dulytest.Engine) {
	t.Helper()
	e := payout.New(mock.Settings{})
	e.Payees = func(string) (due []payout.Payee) {
		for i := range payees {
			due = append(due, payout.Payee{Account: fmt.Sprintf("a-%d", i), Cents: 100})
		}
		return due
	}
	agent, err := duly.NewAgent(nil)
	if err == nil {
		err = e.Serve(agent)
	}
	if err != nil {
		t.Fatal(err)
	}
	engine := dulytest.NewEngine(t, agent)
	engine.Apply(e.Payment)
	return e, engine
}

// Three payees fail and are taken back by themselves; the night is done.
func TestNight(t *testing.T) {
	e, engine := desk(t, 500)
	for _, i := range []int{3, 250, 499} {
		engine.On(e.Transfer).Task(duly.ElementID("night-1", e.Pay, i)).Fail(duly.Refuse(errors.New("account closed")))
	}
	task := dulytest.Submit(engine, e.Night, "night-1", payout.Night{})
	engine.Run()
	task.WantProcessed()
	var counts duly.Counts
	if err := task.StepResult(e.Pay, &counts); err != nil || counts != (duly.Counts{Done: 497, Failed: 3}) {
		t.Errorf("%+v: %v", counts, err)
	}
	if n := e.Books().Standing(); n != 2*497 {
		t.Errorf("%d effects stand, want %d", n, 2*497)
	}
}

// A bank that is down for all takes the night back.
func TestBankIsDown(t *testing.T) {
	e, engine := desk(t, 50)
	engine.On(e.Transfer).Fail(errors.New("bank is down"))
	task := dulytest.Submit(engine, e.Night, "night-1", payout.Night{})
	engine.Run()
	task.WantUndone(e.Pay)
	if n := e.Books().Standing(); n != 0 {
		t.Errorf("%d effects stand", n)
	}
}

// The time that is kept for the undo is enough: a payment has been taken back by its deadline.
func TestPaymentIsTakenBackInTime(t *testing.T) {
	e, engine := desk(t, 1)
	engine.On(e.Transfer).Unserved()
	task := dulytest.Submit(engine, e.Payment, "payment-1", payout.Payee{Account: "a", Cents: 1})
	engine.AdvanceTo(task.Deadline().Add(-time.Second))
	task.WantUndone(e.Debit)
	if n := e.Books().Standing(); n != 0 {
		t.Errorf("%d effects stand", n)
	}
}

// The schedule names the plan, and an input that it takes.
func TestSchedule(t *testing.T) {
	data, err := os.ReadFile("schedule.json")
	if err != nil {
		t.Fatal(err)
	}
	var schedule struct {
		Type  string       `json:"type"`
		Input payout.Night `json:"input"`
		Cron  string       `json:"cron"`
	}
	if err := json.Unmarshal(data, &schedule); err != nil || schedule.Type != payout.New(mock.Settings{}).Night.Name() || schedule.Cron == "" {
		t.Errorf("%+v: %v", schedule, err)
	}
}
