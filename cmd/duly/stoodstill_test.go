package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
)

// TestRefusalWhileTheNodeStoodStill: a process that stood still for longer than its lease may have had a successor that has
// sent its commands, too, and may not find anything of that. So it undoes a step whose command was refused meanwhile.
//
// covers: I12, inv7
func TestRefusalWhileTheNodeStoodStill(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	n := spawn(t, g.args("n")...)
	n.ready()
	nc, js := g.jetStream(t)
	agent, err := duly.NewAgent(nc, duly.WithLedger(duly.NewMemoryLedger(time.Hour, 0)), duly.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	called, refuse, undone := make(chan string, 8), make(chan struct{}), make(chan string, 8)
	pay := duly.NewStep[string, string]("pay", "still.pay", duly.CompleteBy(8*time.Second))
	if err := pay.Serve(agent, func(ctx context.Context, call duly.Call[string]) (string, error) {
		called <- call.Key
		select {
		case <-refuse:
		case <-ctx.Done():
		}
		return "", duly.Refuse(errors.New("not this one"))
	}, func(_ context.Context, undo duly.Undo[string, string]) error {
		undone <- undo.Key
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	background(t, agent.Run)
	client, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	plan := duly.NewPlan("still", 1, pay).With(duly.Grace(50 * time.Millisecond))
	if err := plan.Apply(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Submit(t.Context(), client, "t1", "x"); err != nil {
		t.Fatal(err)
	}
	key := receiveWithin(t, called)
	leases, err := js.KeyValue(t.Context(), "DULY_NODES")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "its lease ends", func() bool {
		_, err := leases.Get(t.Context(), "node.n")
		return errors.Is(err, jetstream.ErrKeyNotFound)
	})
	close(refuse)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := n.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "the task ends", func() bool {
		task, err := client.Get(t.Context(), "still", "t1")
		return err == nil && task.State.Ended()
	})
	select {
	case got := <-undone:
		if got != key {
			t.Errorf("undone: %s, want %s", got, key)
		}
	default:
		t.Error("it took the refusal of one copy for the word of all: the step is not undone")
	}
}

func receiveWithin(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case is := <-from:
		return is
	case <-time.After(patience):
		t.Fatal("nothing came")
		return ""
	}
}
