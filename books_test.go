package duly_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// ledgerBooks are the books of a service with one effect.
type ledgerBooks struct{ at time.Time }

func (b ledgerBooks) Since(_ context.Context, since time.Time, _ string, _ int) ([]duly.Effect, string, error) {
	if since.After(b.at) {
		return nil, "", nil
	}
	return []duly.Effect{{Key: "order-17/charge/0", Times: 1, At: b.at}}, "", nil
}

func (b ledgerBooks) Find(_ context.Context, keys []string) ([]duly.Effect, error) {
	if keys[0] == "order-13/charge/0" {
		panic("a page is torn")
	}
	return []duly.Effect{{Key: keys[0], Times: 1}}, nil
}

// TestAgentKeepsBooks: an agent answers for the books that it was given, as long as it runs.
func TestAgentKeepsBooks(t *testing.T) {
	f, err := newFake(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	}()
	nc, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	at := time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)
	if _, err := duly.NewAgent(nc, duly.WithBooks("payment.charge", nil)); err == nil {
		t.Error("an agent took books that are none")
	}
	agent, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)), duly.WithBooks("payment.charge", ledgerBooks{at}))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&shop{}).serve(agent); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	if err := f.await(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := natsbus.Wrap(nc, slog.New(slog.DiscardHandler), wire.Names{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var answer wire.BooksAnswer
	for { // the subscription for books is the agent's last
		if answer, err = conn.AskBooks(t.Context(), "payment.charge", wire.BooksQuestion{Since: at, Limit: 10}); err == nil || t.Context().Err() != nil {
			break
		}
	}
	if err != nil || len(answer.Effects) != 1 || answer.Effects[0].Key != "order-17/charge/0" {
		t.Errorf("%+v, %v", answer, err)
	}
	if answer, err = conn.AskBooks(t.Context(), "payment.charge", wire.BooksQuestion{Keys: []string{"order-18/charge/0"}}); err != nil || answer.Effects[0].Key != "order-18/charge/0" {
		t.Errorf("%+v, %v", answer, err)
	}
	if _, err = conn.AskBooks(t.Context(), "payment.charge", wire.BooksQuestion{Keys: []string{"order-13/charge/0"}}); err == nil || !strings.Contains(err.Error(), "panic: a page is torn") {
		t.Errorf("books that panic: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
