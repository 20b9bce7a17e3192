package dev_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
)

// TestJournalNamesTheInstance: of each step the task shows which instance of its agent
// answered, in batches and one by one; an agent of another kind is named by its own name,
// and before it as it calls itself, cut and cleaned.
//
// covers: C14
func TestJournalNamesTheInstance(t *testing.T) {
	w := start(t)
	c, err := duly.NewClient(w.nc)
	if err != nil {
		t.Fatal(err)
	}
	pick := duly.NewCheck[parcel, int]("pick", "actor.pick")
	pack := duly.NewCheck[parcel, int]("pack", "actor.pack", duly.Attempts(1))
	old := duly.NewCheck[parcel, int]("old", "actor.old")
	named := duly.NewCheck[parcel, int]("named", "actor.named")
	hostile := duly.NewCheck[parcel, int]("hostile", "actor.hostile")
	plan := duly.NewPlan("actor", 1, pick, pack, old, named, hostile)
	log := duly.Log(slog.New(slog.NewTextHandler(io.Discard, nil)))
	batching, err1 := duly.NewAgent(w.nc, log, duly.Instance("till-7"))
	single, err2 := duly.NewAgent(w.nc, log, duly.SingleCommands(), duly.Instance("till-8"))
	weight := func(_ context.Context, call duly.Call[parcel]) (int, error) { return call.Input.Weight, nil }
	if err := errors.Join(err1, err2, pick.Serve(batching, weight), pack.Serve(single, weight)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, agent := range []*duly.Agent{batching, single} {
		go func() { ended <- agent.Run(ctx) }()
	}
	defer func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}()
	answer := func(instance string) nats.MsgHandler {
		return func(msg *nats.Msg) {
			reply := nats.NewMsg(msg.Reply)
			reply.Data = []byte("1")
			if instance != "" {
				reply.Header.Set("Duly-Instance", instance)
			}
			if err := msg.RespondMsg(reply); err != nil {
				t.Error(err)
			}
		}
	}
	w.agent("actor.old", answer(""), answer(""))
	w.agent("actor.named", answer("kiosk@hall"), answer(""))
	w.agent("actor.hostile", answer("\x1b[31mroot\x07"+strings.Repeat("ß", 60)), answer(""))
	if err := plan.Apply(ctx, c); err != nil {
		t.Fatal(err)
	}
	const many = 64 // enough for batches
	for i := range many {
		if _, err := plan.Submit(ctx, c, fmt.Sprint("a-", i), parcel{1}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"pick": "till-7@actor.pick", "pack": "till-8@actor.pack", "old": "actor.old", "named": "kiosk@hall@actor.named",
		"hostile": "[31mroot" + strings.Repeat("ß", (core.ActorBytesMax-8)/2) + "@actor.hostile",
	}
	for i := range many {
		w.ends("actor", fmt.Sprint("a-", i), "processed")
		task, err := c.Get(ctx, "actor", fmt.Sprint("a-", i))
		if err != nil || len(task.Steps) != len(want) {
			t.Fatalf("%+v, %v", task, err)
		}
		for _, s := range task.Steps {
			if s.By != want[s.Name] {
				t.Errorf("step %s is by %q, want %q", s.Name, s.By, want[s.Name])
			}
		}
	}
	if _, err := duly.NewAgent(nil, duly.Instance("a b")); err == nil || !strings.Contains(err.Error(), "Instance") {
		t.Errorf("a name that is none: %v", err)
	}
}
