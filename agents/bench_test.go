package agents_test

import (
	"context"
	"encoding/json"
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

// benchInFlight is how many commands BenchmarkRun has out at a time: a few messages of 64.
const benchInFlight = 256

// benchSource brings commands from memory, each as soon as an earlier one was answered.
type benchSource struct {
	b    *testing.B
	free chan *core.Command
}

func (s *benchSource) Serve(_ context.Context, _ []string, accept agents.Accept) error {
	for range benchInFlight {
		s.free <- command(time.Hour)
	}
	for s.b.Loop() {
		cmd := <-s.free
		cmd.Seq++
		cmd.CompleteBy = core.InstantOf(time.Now()).Add(cmd.Left)
		accept(cmd, func(reply core.Reply) error {
			if reply.Code != 0 {
				s.b.Errorf("reply: %+v", reply)
			}
			s.free <- cmd
			return nil
		})
	}
	return nil
}

// What one command costs from the source to its reply. The handlers decode their input and encode a
// result, as those of package duly do: a new goroutine has to grow its stack for that.
func BenchmarkRun(b *testing.B) {
	type order struct {
		ID     string            `json:"id"`
		Amount int               `json:"amount"`
		Notes  map[string]string `json:"notes"`
	}
	input := []byte(`{"id":"order-17","amount":1999,"notes":{"street":"12 Long Meadow Lane","city":"Springfield"}}`)
	work := func() ([]byte, error) {
		var o order
		if err := json.Unmarshal(input, &o); err != nil {
			return nil, err
		}
		return json.Marshal(&o)
	}
	for _, c := range []struct {
		name     string
		handlers agents.Handlers
	}{
		{"do", agents.Handlers{Do: func(context.Context, *core.Command) ([]byte, error) { return work() }}},
		{"do that waits 1 ms", agents.Handlers{Do: func(context.Context, *core.Command) ([]byte, error) {
			result, err := work()
			pass(time.Millisecond)
			return result, err
		}}},
		{"start", agents.Handlers{Start: func(_ context.Context, _ *core.Command, done func([]byte, error)) { done(work()) }}},
	} {
		b.Run(c.name, func(b *testing.B) {
			runtime := agents.New(agents.Config{Time: bubbleTime{}})
			if err := runtime.Register("payment", "charge", c.handlers); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			if err := runtime.Run(b.Context(), &benchSource{b, make(chan *core.Command, benchInFlight)}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
		})
	}
}
