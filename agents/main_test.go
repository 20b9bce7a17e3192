package agents_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubbleTime is the clock of package time: fake inside a synctest bubble.
// Chance is a constant.
type bubbleTime struct{ chance float64 }

func (bubbleTime) Now() core.Instant { return core.InstantOf(time.Now()) }

func (bubbleTime) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

func (bubbleTime) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b bubbleTime) Float64() float64 { return b.chance }

// quiet logs into a buffer that a test may read.
func quiet() (*slog.Logger, *bytes.Buffer) {
	var log bytes.Buffer
	return slog.New(slog.NewTextHandler(&log, nil)), &log
}

// newRuntime serves step "charge" of agent "payment".
func newRuntime(t *testing.T, config agents.Config, handlers agents.Handlers) *agents.Runtime {
	t.Helper()
	if config.Time == nil {
		config.Time = bubbleTime{chance: 1}
	}
	if config.Log == nil {
		config.Log, _ = quiet()
	}
	runtime := agents.New(config)
	if err := runtime.Register("payment", "charge", handlers); err != nil {
		t.Fatal(err)
	}
	return runtime
}

// command is a do of that step with left to go.
func command(left time.Duration) *core.Command {
	return &core.Command{
		Agent: "payment", Partition: 3, Number: 17, Seq: 5,
		Task: "order-17", Type: "order", Step: "charge", Attempt: 1,
		CompleteBy: core.InstantOf(time.Now().Add(left)), Left: left,
		Input: []byte(`{}`),
	}
}

// pass waits in fake time.
func pass(d time.Duration) { <-time.After(d) }

func nothing(context.Context, *core.Command) ([]byte, error) { return nil, nil }
