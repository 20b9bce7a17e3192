// Package readme holds the code of the README, so that it compiles.
package readme

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

type (
	Order struct {
		Item  string
		Cents int
	}
	Score   struct{ Good bool }
	Receipt struct{ Number string }
)

// The code of the README, compiled as it stands there: TestREADME compares.

var (
	Credit = duly.NewCheck[Order, Score]("credit", "credit.check")    // leaves nothing behind
	Charge = duly.NewStep[Order, Receipt]("charge", "payment.charge") // does, so it has an undo
	Buy    = duly.NewPlan("order", 1, Credit, Charge)
)

func readme(ctx context.Context, nc *nats.Conn) {
	agent, _ := duly.NewAgent(nc)
	Credit.Serve(agent, checkCredit)
	Charge.Serve(agent, charge, refund) // without refund this does not compile
	go agent.Run(ctx)

	client, _ := duly.NewClient(nc)
	Buy.Apply(ctx, client)
	Buy.Submit(ctx, client, "order-17", Order{Item: "lamp", Cents: 4900})
}

func plainAgent(nc *nats.Conn) {
	nc.QueueSubscribe("duly.do.payment.charge", "q", func(m *nats.Msg) { m.Respond([]byte(`{"Number":"r-1"}`)) })
	nc.QueueSubscribe("duly.undo.payment.charge", "q", func(m *nats.Msg) { m.Respond(nil) })
}

func checkCredit(context.Context, duly.Call[Order]) (Score, error) { return Score{Good: true}, nil }

func charge(context.Context, duly.Call[Order]) (Receipt, error) { return Receipt{Number: "r-1"}, nil }

func refund(context.Context, duly.Undo[Order, Receipt]) error { return nil }

var _, _ = readme, plainAgent

// TestREADME holds the Go code of the README against this file.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	here := map[string]bool{}
	for line := range strings.Lines(string(code)) {
		here[strings.Join(strings.Fields(line), " ")] = true
	}
	blocks := strings.Split(string(page), "```go\n")
	if len(blocks) < 3 {
		t.Fatalf("the README has %d blocks of Go, want 2 or more", len(blocks)-1)
	}
	for _, block := range blocks[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			if line := strings.Join(strings.Fields(line), " "); line != "" && !here[line] {
				t.Errorf("the README has a line that is not compiled: %s", line)
			}
		}
	}
}
