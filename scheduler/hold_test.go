package scheduler

import (
	"context"
	"log/slog"
	"testing"

	"duly.dev/duly/internal/core"
)

// A cycle whose context ends while it waits for forgetting gives its mail back: what
// comes after it finds an inbox.
func TestCycleGivesItsMailBackWhenItCannotHold(t *testing.T) {
	s := New(RunConfig{
		Config: Config{Node: "n1", Now: func() core.Instant { return 1 }}, Partitions: 1, Shards: 1,
		Rand: func() float64 { return 0 },
	}, nil, nil, nil, nil, slog.New(slog.DiscardHandler))
	c := s.committers[0]
	c.in.openGate(0, 1)
	c.purgeLock <- struct{}{} // tasks are being forgotten
	ended, end := context.WithCancel(t.Context())
	end()
	for range 3 {
		c.in.Control(ControlMail{})
		if err := c.cycle(ended); err != nil {
			t.Fatal(err)
		}
		c.in.Reply(core.Reply{})
	}
	if n := len(c.in.take().Replies); n != 1 {
		t.Errorf("%d replies in the inbox, want the last one", n)
	}
}
