package dulytest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

// fatal is a test that keeps what is reported of it.
type fatal struct{ record }

// stopped is what Fatalf panics with.
type stopped struct{}

func (f *fatal) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(stopped{})
}

// reported gives what a test reports, up to the first that is fatal.
func reported(test func(t dulytest.TB)) string {
	var f fatal
	func() {
		defer func() {
			if r := recover(); r != nil && r != (stopped{}) {
				panic(r)
			}
		}()
		test(&f)
	}()
	return strings.Join(f.lines, "\n")
}

// served is an engine in which all of Buy's steps are answered but that of the payment, which is counted.
func served(t *testing.T, paid *int) *dulytest.Engine {
	t.Helper()
	engine := dulytest.NewEngine(t, paying(t, paid))
	engine.On(Credit).Answer(Score{Good: true})
	engine.On(Ship).Answer(Parcel{Track: "t-1"})
	return engine
}

func TestTaskIsProcessed(t *testing.T) {
	paid := 0
	engine := served(t, &paid)
	order := dulytest.Submit(engine, Buy, "order-1", Cart{Cents: 1})
	if dulytest.Submit(engine, Buy, "order-1", Cart{Cents: 1}) != order {
		t.Error("the same id is another task")
	}
	began := engine.Now()
	engine.Run()
	order.WantProcessed()
	if trail, want := order.Trail(), []string{"credit done", "pay done", "ship done"}; !slices.Equal(trail, want) {
		t.Errorf("trail %v, want %v", trail, want)
	}
	var bill Bill
	if err := order.StepResult(Pay, &bill); err != nil || bill.Number != "order-1/pay/0" {
		t.Errorf("bill %+v: %v", bill, err)
	}
	if took := engine.Now().Sub(began); took <= 0 || took > time.Millisecond {
		t.Errorf("took %v", took)
	}
	if err := engine.Cancel("order-1", "too late"); !errors.Is(err, duly.ErrRefused) {
		t.Errorf("a cancel of what is processed: %v", err)
	}
	if err := engine.Undo("order-1", "sent back"); err != nil {
		t.Error(err)
	}
	engine.Run()
	order.WantUndone(Ship, Pay)
	if err := engine.Resubmit("order-1", "once more"); err != nil {
		t.Error(err)
	}
	engine.Run()
	order.WantProcessed()
	if err := order.StepResult(Pay, &bill); err != nil || bill.Number != "order-1/pay/1" || paid != 1 {
		t.Errorf("bill %+v of the second round: %v; %d paid", bill, err, paid)
	}
}

// An operator has to say what is there of a key that its service may have forgotten.
func TestFound(t *testing.T) {
	pay := duly.NewStep[Cart, Bill]("pay", "payment.charge", duly.KeyLasts(time.Hour), duly.OnExhausted(duly.PolicyError))
	engine := dulytest.NewEngine(t)
	silent := engine.On(pay).Silent()
	order := dulytest.Submit(engine, duly.NewPlan("order", 1, pay), "order-1", Cart{Cents: 1})
	engine.Run()
	order.WantError(pay)
	engine.Advance(time.Hour)
	for _, found := range [][]dulytest.Found{nil, {dulytest.Done}} {
		if err := engine.Resubmit("order-1", "again", found...); !errors.Is(err, duly.ErrRefused) {
			t.Errorf("resubmit of an old key, found %v: %v", found, err)
		}
	}
	silent.Stop()
	engine.On(pay).Answer(Bill{})
	if err := engine.Resubmit("order-1", "the bank has nothing", dulytest.Absent); err != nil {
		t.Error(err)
	}
	engine.Run()
	order.WantProcessed()
	down := engine.On(pay).Undo().Fail(errors.New("down"))
	if err := engine.Undo("order-1", "sent back"); err != nil {
		t.Error(err)
	}
	engine.Run()
	order.WantError(pay)
	engine.Advance(time.Hour)
	for _, found := range [][]dulytest.Found{nil, {dulytest.Absent}} {
		if err := engine.Undo("order-1", "again", found...); !errors.Is(err, duly.ErrRefused) {
			t.Errorf("undo by an old key, found %v: %v", found, err)
		}
	}
	down.Stop()
	if err := engine.Undo("order-1", "the charge stands", dulytest.Done); err != nil {
		t.Error(err)
	}
	engine.Run()
	order.WantUndone(pay)
}

// Every way in which an answer may not come leads to another attempt and, when they are exhausted, to an undo of what
// may have taken effect.
func TestRules(t *testing.T) {
	for _, test := range []struct {
		name  string
		rule  func(*dulytest.Rule)
		trail string
		paid  int
	}{
		{"silent", func(r *dulytest.Rule) { r.Attempt(1).Silent() }, "credit done, pay overdue, pay done, ship done", 1},
		{"lost", func(r *dulytest.Rule) { r.Attempt(1).Lost() }, "credit done, pay overdue, pay done, ship done", 2},
		{"fails", func(r *dulytest.Rule) { r.Attempt(1).Fail(errors.New("down")) }, "credit done, pay failed, pay done, ship done", 1},
		{"refused", func(r *dulytest.Rule) { r.Attempt(1).Fail(duly.Refuse(errors.New("no"))) }, "credit done, pay refused", 0},
		{"slow", func(r *dulytest.Rule) { r.Takes(9 * time.Second) }, "credit done, pay done, ship done", 1},
		{"too slow", func(r *dulytest.Rule) { r.Takes(11 * time.Second) }, "credit done, pay overdue, pay late, pay overdue, pay overdue, pay undone", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			paid := 0
			engine := served(t, &paid)
			rule := engine.On(Pay)
			test.rule(rule)
			order := dulytest.Submit(engine, Buy, "order-1", Cart{})
			engine.Run()
			if got := strings.Join(order.Trail(), ", "); got != test.trail {
				t.Errorf("trail %s\nwant  %s", got, test.trail)
			}
			if paid != test.paid || rule.Used() == 0 {
				t.Errorf("%d paid, want %d; %v", paid, test.paid, rule)
			}
		})
	}
}

// An answer that comes late does not complete the step.
func TestLateAnswer(t *testing.T) {
	paid := 0
	engine := served(t, &paid)
	engine.On(Pay).Attempt(1).Late(time.Second)
	engine.On(Pay).Attempt(2).Fail(duly.Refuse(errors.New("no")))
	order := dulytest.Submit(engine, Buy, "order-1", Cart{})
	engine.Run()
	order.WantUndone(Pay)
	if paid != 0 {
		t.Errorf("%d paid", paid)
	}
}

// The deadline of a task ends it, wherever it is.
func TestDeadline(t *testing.T) {
	paid := 0
	engine := served(t, &paid)
	engine.On(Ship).Unserved()
	order := dulytest.Submit(engine, Buy, "order-1", Cart{})
	engine.Advance(30 * time.Second)
	order.WantState(duly.StateProcessing)
	if got := order.Step(Pay); got != "done" || paid != 1 {
		t.Errorf("pay is %s, %d paid", got, paid)
	}
	engine.AdvanceTo(order.Deadline())
	engine.Run()
	order.WantUndone(Pay)
	if paid != 0 {
		t.Errorf("%d paid", paid)
	}
}

// What no agent serves is done once one does.
func TestAgentComesBack(t *testing.T) {
	paid := 0
	engine := served(t, &paid)
	away := engine.On(Pay).Unserved()
	order := dulytest.Submit(engine, Buy, "order-1", Cart{})
	engine.Advance(20 * time.Second)
	away.Stop()
	engine.Run()
	order.WantProcessed()
}

// A crash sends what is out once more.
func TestRestart(t *testing.T) {
	paid := 0
	engine := served(t, &paid)
	engine.On(Pay).Attempt(1).Takes(5 * time.Second)
	order := dulytest.Submit(engine, Buy, "order-1", Cart{})
	engine.Advance(time.Second)
	engine.Restart()
	engine.Run()
	order.WantProcessed()
	if paid != 2 { // the key is the same: a service that heeds it pays once
		t.Errorf("paid %d times, want 2", paid)
	}
}

func TestUndoInTrouble(t *testing.T) {
	paid := 0
	engine := served(t, &paid)
	engine.On(Ship).Fail(duly.Refuse(errors.New("no such street")))
	engine.On(Pay).Undo().Fail(duly.Refuse(errors.New("the account is closed")))
	order := dulytest.Submit(engine, Buy, "order-1", Cart{})
	engine.Run()
	order.WantError(Pay)
	if !strings.Contains(order.Reason(), "the account is closed") {
		t.Errorf("reason: %s", order.Reason())
	}
}

// Retries within a call sleep by the engine's clock.
func TestHandlersRetries(t *testing.T) {
	agent, err := duly.NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	err = Credit.Serve(agent, func(context.Context, duly.Call[Cart]) (Score, error) {
		if calls++; calls < 3 {
			return Score{}, errors.New("down")
		}
		return Score{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	engine := dulytest.NewEngine(t, agent)
	order := dulytest.Submit(engine, duly.NewPlan("credit", 1, Credit), "order-1", Cart{})
	began, clock := engine.Now(), time.Now()
	engine.Run()
	order.WantProcessed()
	if took := engine.Now().Sub(began); took < 50*time.Millisecond || order.Failures() != 0 {
		t.Errorf("took %v, %d failures", took, order.Failures())
	}
	if spent := time.Since(clock); spent > 5*time.Second {
		t.Errorf("took %v of real time", spent)
	}
}

// Payloads are encoded as they are on a server.
func TestEngineWithCodec(t *testing.T) {
	codec, err := duly.NewAES256GCM(duly.Key{ID: "k", Secret: make([]byte, duly.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(nil, duly.WithCodec(codec))
	if err != nil {
		t.Fatal(err)
	}
	err = Credit.Serve(agent, func(_ context.Context, call duly.Call[Cart]) (Score, error) {
		return Score{Good: call.Input.Cents == 7}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	engine := dulytest.NewEngine(t, agent)
	engine.On(Pay).Answer(Bill{Number: "b"})
	order := dulytest.Submit(engine, duly.NewPlan("order", 1, Credit, Pay), "order-1", Cart{Cents: 7})
	engine.Run()
	order.WantProcessed()
	var score Score
	if err := order.StepResult(Credit, &score); err != nil || !score.Good {
		t.Errorf("score %+v: %v", score, err)
	}
	var bill Bill
	if err := order.StepResult(Pay, &bill); err != nil || bill.Number != "b" {
		t.Errorf("bill %+v: %v", bill, err)
	}
}

// A test that is wrong is told why.
func TestEngineReports(t *testing.T) {
	for want, test := range map[string]func(t dulytest.TB){
		"step credit: agent credit.check is not among those of NewEngine": func(t dulytest.TB) {
			e := dulytest.NewEngine(t)
			dulytest.Submit(e, Buy, "order-1", Cart{})
			e.Run()
		},
		"task order-1 is processed, want undone; its trail: credit done": func(t dulytest.TB) {
			e := dulytest.NewEngine(t)
			e.On(Credit).Answer(Score{})
			task := dulytest.Submit(e, duly.NewPlan("c", 1, Credit), "order-1", Cart{})
			e.Run()
			task.WantUndone()
		},
		"undone were [ship pay], want [pay]": func(t dulytest.TB) {
			e := dulytest.NewEngine(t)
			for _, step := range []duly.Named{Credit, Pay, Ship} {
				e.On(step).Answer(nil)
			}
			task := dulytest.Submit(e, Buy, "order-1", Cart{})
			e.Run()
			if err := e.Undo("order-1", "why not"); err != nil {
				t.Errorf("%v", err)
			}
			e.Run()
			task.WantUndone(Pay)
		},
		"submit task a b of type order: prepare: task a b of type order: name refused": func(t dulytest.TB) { dulytest.Submit(dulytest.NewEngine(t), Buy, "a b", Cart{}) },
		"with another input": func(t dulytest.TB) {
			e := dulytest.NewEngine(t)
			dulytest.Submit(e, Buy, "order-1", Cart{Cents: 1})
			dulytest.Submit(e, Buy, "order-1", Cart{Cents: 2})
		},
		"plan order version 1: plan version is stored with another content": func(t dulytest.TB) {
			dulytest.NewEngine(t).Apply(Buy, duly.NewPlan("order", 1, Credit))
		},
		"apply: plan cannot work: plan order: version 0": func(t dulytest.TB) { dulytest.NewEngine(t).Apply(duly.NewPlan("order", 0, Credit)) },
		"in error, but not because of step credit": func(t dulytest.TB) {
			e := dulytest.NewEngine(t)
			e.On(Pay).Fail(duly.Refuse(errors.New("no")))
			task := dulytest.Submit(e, duly.NewPlan("c", 1, duly.NewStep[Cart, Bill]("pay", "a", duly.OnExhausted(duly.PolicyError))), "order-1", Cart{})
			e.Run()
			task.WantError(Credit)
		},
	} {
		if got := reported(test); !strings.Contains(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	}
}

func ExampleEngine() {
	engine := dulytest.NewEngine(printer{})
	engine.On(Credit).Answer(Score{Good: true})
	engine.On(Pay).Answer(Bill{Number: "b-1"})
	engine.On(Ship).Undo().Answer(nil)
	engine.On(Ship).Silent()
	order := dulytest.Submit(engine, Buy, "order-17", Cart{Cents: 4900})
	engine.Run()
	fmt.Println(order.State(), "after", engine.Now().Sub(engine.Began()).Round(time.Second))
	for _, line := range order.Trail() {
		fmt.Println(line)
	}
	// Output:
	// undone after 22s
	// credit done
	// pay done
	// ship overdue
	// ship overdue
	// ship undone
	// pay undone
}
