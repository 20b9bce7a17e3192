package scheduler

import (
	"context"
	"log/slog"
	"testing"

	"duly.dev/duly/internal/core"
)

// A turn whose context ends while it waits for forgetting gives its mail back: what
// comes after it finds an inbox.
func TestTurnGivesItsMailBackWhenItCannotHold(t *testing.T) {
	s := New(RunConfig{
		Config: Config{Node: "n1", Now: func() core.Instant { return 1 }}, Partitions: 1, Shards: 1,
		Rand: func() float64 { return 0 },
	}, nil, nil, nil, nil, slog.New(slog.DiscardHandler))
	r := s.runners[0]
	r.in.openGate(0, 1)
	r.holding <- struct{}{} // tasks are being forgotten
	ended, end := context.WithCancel(t.Context())
	end()
	for range 3 {
		r.in.Control(ControlMail{})
		if err := r.turn(ended, false); err != nil {
			t.Fatal(err)
		}
		r.in.Reply(core.Reply{})
	}
	if n := len(r.in.take().Replies); n != 1 {
		t.Errorf("%d replies in the inbox, want the last one", n)
	}
}
