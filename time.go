package duly

import (
	"context"
	"math/rand/v2"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// wall is the real clock and the real chance: the one place of this package
// that asks either.
type wall struct{}

// Now implements agents.Time.
func (wall) Now() core.Instant { return core.InstantOf(time.Now()) }

// WithTimeout implements agents.Time.
func (wall) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Sleep implements agents.Time.
func (wall) Sleep(ctx context.Context, d time.Duration) error {
	return pause.For(ctx, d)
}

// Float64 implements agents.Time.
func (wall) Float64() float64 { return rand.Float64() }
