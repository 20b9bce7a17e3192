package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Over NATS and a database: a call that takes effect and is not answered completes its step by what its agent says, and is
// made once; one that has none is made again.
//
// covers: S13
func TestProbesOverNATS(t *testing.T) {
	t.Parallel()
	for name, url := range repairStores {
		t.Run(name, func(t *testing.T) { testProbes(t, url(t)) })
	}
}

func testProbes(t *testing.T, database string) {
	ctx := t.Context()
	server := startNATS(t)
	if err := Migrate(ctx, database); err != nil {
		t.Fatal(err)
	}
	cfg := good()
	cfg.Partitions, cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval = 2, 100, 100, time.Second, 100*time.Millisecond
	cfg.Links = config.Links{NATSURL: server.ClientURL(), DatabaseURL: database}
	n, err := Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	defer func() { cancel(); parts.Wait() }()
	parts.Go(func() { _ = errors.Join(n.Run(running), n.Close()) })
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()

	charge := duly.NewStep[parcel, string]("charge", "bank", duly.CompleteBy(500*time.Millisecond), duly.Attempts(2), duly.Probed())
	plan := duly.NewPlan[parcel]("parcel", 1, charge).With(duly.Grace(100 * time.Millisecond))
	var books sync.Mutex
	paid, calls := map[string]string{}, map[string]int{}
	agent, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)), duly.Retries(0))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(charge.Serve(agent, func(ctx context.Context, call duly.Call[parcel]) (string, error) {
		books.Lock()
		calls[call.Task]++
		first := calls[call.Task] == 1
		if call.Task == "there" || !first {
			paid[call.Key] = "bill of " + call.Task
		}
		books.Unlock()
		if first {
			<-ctx.Done() // no answer comes in time
			return "", ctx.Err()
		}
		return paid[call.Key], nil
	}, func(context.Context, duly.Undo[parcel, string]) error { return nil }),
		charge.ServeProbe(agent, func(_ context.Context, call duly.Call[parcel]) (duly.Probe[string], error) {
			books.Lock()
			defer books.Unlock()
			if bill := paid[call.Key]; bill != "" {
				return duly.Done(bill), nil
			}
			return duly.Absent[string](), nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	parts.Go(func() { _ = agent.Run(running) })
	c, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the plan is taken", func() bool { return plan.Apply(ctx, c) == nil })
	for id, want := range map[string]struct {
		kinds []core.Kind
		calls int
	}{
		"there":     {[]core.Kind{core.KindSubmitted, core.KindOverdue, core.KindProbed}, 1},
		"not-there": {[]core.Kind{core.KindSubmitted, core.KindOverdue, core.KindProbed, core.KindStarted, core.KindDone}, 2},
	} {
		soon(t, "a task is taken", func() bool { _, err := plan.Submit(ctx, c, id, parcel{1}); return err == nil })
		var view core.View
		soon(t, id+" is processed", func() bool {
			view, _ = n.store.Get(ctx, wire.PartitionOf(id, cfg.Partitions), id)
			return view.State == core.StateProcessed
		})
		saved, err := n.store.LoadIDs(ctx, core.AsOf{Partition: wire.PartitionOf(id, cfg.Partitions)}, []string{id})
		if err != nil || len(saved) != 1 {
			t.Fatalf("%d stored: %v", len(saved), err)
		}
		var kinds []core.Kind
		for _, j := range saved[0].Journal {
			kinds = append(kinds, j.Kind)
		}
		books.Lock()
		if !slices.Equal(kinds, want.kinds) || calls[id] != want.calls || string(view.Steps[0].Result) != `"bill of `+id+`"` {
			t.Errorf("task %s: rows %v, %d calls, result %s; want %v, %d calls", id, kinds, calls[id], view.Steps[0].Result, want.kinds, want.calls)
		}
		books.Unlock()
	}
}
