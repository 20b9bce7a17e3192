package agents_test

import (
	"context"
	"testing"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// What the runtime adds to one call, without and with the ledger.
func BenchmarkHandle(b *testing.B) {
	for name, ledger := range map[string]agents.Ledger{
		"plain":  nil,
		"ledger": agents.NewMemoryLedger(bubbleTime{}.Now, time.Minute, 1<<30),
	} {
		b.Run(name, func(b *testing.B) {
			runtime := agents.New(agents.Config{Time: bubbleTime{}, Ledger: ledger})
			do := func(context.Context, *core.Command) ([]byte, error) { return []byte(`{"id":"r-1"}`), nil }
			if err := runtime.Register("payment", "charge", agents.Handlers{Do: do, Undo: do}); err != nil {
				b.Fatal(err)
			}
			cmd := command(time.Hour)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				cmd.Round = n
				if _, answered := runtime.Handle(b.Context(), core.InstantOf(time.Now()), cmd); !answered {
					b.Fatal("no answer")
				}
			}
		})
	}
}
