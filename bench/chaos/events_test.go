package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// events is a connection, through a link, to a server whose event stream tells of n tasks.
func events(t *testing.T, n int) (*link, *natsbus.Conn) {
	t.Helper()
	server, err := natsserver.Start(natsserver.Options{Dir: t.TempDir(), Port: natsserver.FreePort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	k := linkTo(t, strings.TrimPrefix(server.ClientURL(), "nats://"))
	c, err := natsbus.Dial(t.Context(), natsbus.Options{URL: "nats://" + k.addr(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Setup(t.Context(), natsbus.StreamConfig{Lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		told := make(chan error, 1)
		c.PublishEndings([]core.Ending{{ID: fmt.Sprint("t", i), Type: "order", State: core.StateProcessed, Seq: 2, CreatedAt: 1, At: 2}}, func(err error) { told <- err })
		if err := <-told; err != nil {
			t.Fatal(err)
		}
	}
	return k, c
}

// What a stream has told is read also where it says nothing for a while.
func TestReadEventsOfAMuteServer(t *testing.T) {
	k, c := events(t, 3)
	k.halve()
	beginnings := 0
	told, err := readEvents(t.Context(), c.NATS(), 50*time.Millisecond, func(error) {
		if beginnings++; beginnings == 2 {
			k.whole()
		}
	})
	if err != nil || len(told) != 3 || beginnings < 2 {
		t.Errorf("%v, %v after %d new beginnings, want 3 ids", told, err, beginnings)
	}
}

func TestReadEvents(t *testing.T) {
	_, c := events(t, 3)
	told, err := readEvents(t.Context(), c.NATS(), quietMax, func(err error) { t.Error(err) })
	if err != nil || len(told) != 3 {
		t.Errorf("%v, %v, want 3 ids", told, err)
	}
	if _, err := c.NATS().Request("duly.events.order.processed", []byte("junk"), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	_, err = readEvents(t.Context(), c.NATS(), quietMax, func(err error) { t.Error(err) })
	if err == nil || !strings.Contains(err.Error(), "events: 3 of 4 read: duly.events.order.processed") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readEvents(ctx, c.NATS(), quietMax, func(error) {}); err == nil {
		t.Error("no error after the end of the context")
	}
}

func TestReadEventsOfAnEmptyStream(t *testing.T) {
	_, c := events(t, 0)
	if told, err := readEvents(t.Context(), c.NATS(), quietMax, func(err error) { t.Error(err) }); err != nil || len(told) != 0 {
		t.Errorf("%v, %v, want none", told, err)
	}
}

// TestEventSubjects: what hears the endings hears those of deliveries, however they end.
func TestEventSubjects(t *testing.T) {
	for _, state := range []string{drone.StateProcessed, drone.StateUndone, drone.StateError} {
		if got := (wire.Names{}).EventSubject(drone.Type, state); strings.TrimSuffix(eventSubjects(), "*") != strings.TrimSuffix(got, state) {
			t.Errorf("%s is not among %s", got, eventSubjects())
		}
	}
}
