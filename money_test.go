package duly_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/planfile"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/quickjson"
)

// Payout is the input of the plan of docs/guide/money.md.
type Payout struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

type (
	approving = duly.Signal[Payout, Approval]
	paying    = duly.Step[Payout, string]
)

// payout is the plan of the page.
func payout() (*approving, *paying, *duly.Plan[Payout]) {
	approve := duly.NewSignal[Payout, Approval]("approve", duly.AskRequired(), duly.PayloadSchema(),
		duly.When("input.cents > 100000"), duly.CompleteBy(4*time.Hour))
	pay := duly.NewStep[Payout, string]("pay", "bank.pay",
		duly.KeyLasts(23*time.Hour), duly.Probed(), duly.OnExhausted(duly.PolicyError))
	return approve, pay, duly.NewPlan("payout", 1, approve, pay).With(duly.TaskCompleteBy(8 * time.Hour))
}

// bank is an engine whose agent pays, and what it was told to pay.
func bank(t *testing.T, pay *paying) (engine *dulytest.Engine, paid *[]Payout) {
	t.Helper()
	paid = new([]Payout)
	agent, err := duly.NewAgent(nil)
	if err == nil {
		err = pay.Serve(agent,
			func(_ context.Context, call duly.Call[Payout]) (string, error) {
				*paid = append(*paid, call.Input)
				return call.Key, nil
			},
			func(context.Context, duly.Undo[Payout, string]) error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	return dulytest.NewEngine(t, agent), paid
}

// TestMoneyPage: the plan of the page can work, says the same in Go, and pays what was approved, to the cent, once somebody
// has said for what.
func TestMoneyPage(t *testing.T) {
	page, err := os.ReadFile("docs/guide/money.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	file, err := planfile.Read("payout.yaml", []byte(text), 1<<20)
	if err != nil || file.Order() != "approve, then pay" {
		t.Fatalf("%q, %v", file.Order(), err)
	}
	schema, err := jsonschema.Compile(file.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	for input, fits := range map[string]bool{`{"account":"a","cents":1250}`: true, `{"account":"a","cents":12.5}`: false, `{"account":"a","cents":"1250"}`: false} {
		if err := schema.Check([]byte(input)); (err == nil) != fits {
			t.Errorf("%s: %v", input, err)
		}
	}
	approve, pay, plan := payout()
	spec, err := plan.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if spec.Steps[0].Schema == "" {
		t.Error("in Go an answer has no schema")
	}
	file.InputSchema, file.Steps[0].Schema, spec.Steps[0].Schema = "", "", "" // Go makes them of its types
	if got, want := canonical(t, &spec), canonical(t, &file); got != want {
		t.Errorf("in Go it is\n%s\nand on the page\n%s", got, want)
	}
	silent, err := testStep().Spec()
	if err != nil || silent.Steps[0].KeyLasts != 24*time.Hour {
		t.Errorf("a plan that does not say how long keys last: %v, %v", silent.Steps[0].KeyLasts, err)
	}

	engine, paid := bank(t, pay)
	task := dulytest.Submit(engine, plan, "p-1", Payout{Account: "007", Cents: 9007199254740993})
	engine.Run()
	if err := dulytest.Signal(engine, plan, "p-1", approve.Answer(Approval{By: "olga"})); !errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), "say which ask") {
		t.Errorf("an answer that does not say for what: %v", err)
	}
	if err := dulytest.Signal(engine, plan, "p-1", approve.Answer(Approval{By: "olga"}).To(task.Ask(approve))); err != nil || len(*paid) != 0 {
		t.Errorf("an answer: %v, paid before it: %v", err, *paid)
	}
	engine.Run()
	task.WantProcessed()
	if len(*paid) != 1 || (*paid)[0] != (Payout{"007", 9007199254740993}) || task.Ask(approve) != "" {
		t.Errorf("paid: %v", *paid)
	}
}

// TestOptionalApprovalPays: silence lets a payment through where the approval may be skipped, and nowhere else.
func TestOptionalApprovalPays(t *testing.T) {
	for policy, want := range map[duly.Policy]duly.State{duly.PolicySkip: duly.StateProcessed, duly.PolicyUndo: duly.StateUndone, duly.PolicyError: duly.StateError} {
		_, pay, _ := payout()
		approve := duly.NewSignal[Payout, Approval]("approve", duly.CompleteBy(time.Hour), duly.OnExhausted(policy))
		plan := duly.NewPlan("payout", 1, approve, pay).With(duly.TaskCompleteBy(8 * time.Hour))
		engine, paid := bank(t, pay)
		task := dulytest.Submit(engine, plan, "p-1", Payout{Cents: 5})
		engine.Run()
		engine.Advance(2 * time.Hour)
		task.WantState(want)
		if (len(*paid) == 1) != (policy == duly.PolicySkip) {
			t.Errorf("policy %s: paid %v", policy, *paid)
		}
	}
}

// sent is a payout as a submitter writes it.
type sent struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
	text    string
}

func (s sent) MarshalJSON() ([]byte, error) { return []byte(s.text), nil }

// TestApprovedIsPaid: no way of writing an amount lets the approval see another one than the agent pays: not a member in other
// case, which encoding/json takes for the field, nor one that is there twice.
//
// covers: E23
func TestApprovedIsPaid(t *testing.T) {
	for _, text := range []string{`{"account":"a","cents":1,"Cents":9900000}`, `{"account":"a","Cents":9900000,"cents":1}`, `{"account":"a","cents":1,"cent\u017f":9900000}`} {
		var paid []int64
		approve := duly.NewSignal[sent, Approval]("approve", duly.AskRequired(), duly.When("input.cents > 100000"), duly.CompleteBy(4*time.Hour))
		pay := duly.NewStep[sent, string]("pay", "bank.pay")
		plan := duly.NewPlan("payout", 1, approve, pay).With(duly.TaskCompleteBy(8 * time.Hour))
		agent, err := duly.NewAgent(nil)
		if err == nil {
			err = pay.Serve(agent, func(_ context.Context, call duly.Call[sent]) (string, error) {
				paid = append(paid, call.Input.Cents)
				return call.Key, nil
			}, func(context.Context, duly.Undo[sent, string]) error { return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		engine := dulytest.NewEngine(t, agent)
		task := dulytest.Submit(engine, plan, "p-1", sent{text: text})
		engine.Run()
		task.WantState(duly.StateUndone)
		if len(paid) != 0 {
			t.Errorf("%s: paid %v without an approval", text, paid)
		}
	}
	if err := quickjson.Check("input", []byte(`{"account":"a","cents":9900000,"cents":1}`)); err == nil {
		t.Error("two amounts are taken")
	}
}

// testStep is a plan that says nothing of its step.
func testStep() *duly.Plan[Payout] {
	return duly.NewPlan("plain", 1, duly.NewStep[Payout, string]("pay", "bank.pay"))
}

func canonical(t *testing.T, p *core.Plan) string {
	t.Helper()
	whole := p.WithDefaults()
	data, err := planform.Canonical(&whole)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
