package sim

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
)

// agentTime is the clock of an agent's process, and its chance.
type agentTime struct{ a *agentProcess }

func (t agentTime) Now() core.Instant { return t.a.clock.now() }
func (t agentTime) Float64() float64  { return t.a.w.rand.Float64() }

func (t agentTime) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return agentContext{ctx, t.a, t.a.clock.steady().Add(d)}, func() {}
}

func (t agentTime) Sleep(ctx context.Context, d time.Duration) error {
	t.a.w.wait(d)
	return ctx.Err()
}

// agentContext ends by that clock.
type agentContext struct {
	context.Context
	a   *agentProcess
	end core.Instant
}

func (c agentContext) Err() error {
	if c.a.clock.steady() >= c.end {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}
