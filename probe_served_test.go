package duly_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// TestAgentServesProbes: while it runs, an agent answers probes of steps that have a handler for them, and of no others.
func TestAgentServesProbes(t *testing.T) {
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
	agent, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&shop{}).serve(agent); err != nil {
		t.Fatal(err)
	}
	if err := Charge.ServeProbe(agent, func(_ context.Context, call duly.Call[Order]) (duly.Probe[Payment], error) {
		return duly.Done(Payment{ID: call.Key}), nil
	}); err != nil {
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
	ask := func(agent, step string) (core.Probe, error) {
		return conn.AskProbe(t.Context(), &core.Command{Agent: agent, Task: "order-17", Type: "order", Step: step, Attempt: 1, Left: time.Minute, Input: []byte(`{"Cents":5}`)}, core.ResultBytesMax)
	}
	var p core.Probe
	for { // the subscription for probes is the agent's last
		if p, err = ask(Charge.Agent(), Charge.Name()); err == nil || t.Context().Err() != nil {
			break
		}
	}
	if err != nil || p.Outcome != core.ProbeDone || string(p.Result) != `{"ID":"order-17/charge/0"}` {
		t.Errorf("%+v %s %v", p, p.Result, err)
	}
	if p, err := ask(Charge.Agent(), "other"); err == nil {
		t.Errorf("a step that it does not serve: %+v", p)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
