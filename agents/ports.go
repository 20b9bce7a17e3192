package agents

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
)

// Time is the runtime's clock and its only source of random numbers. The simulator has
// one of its own.
type Time interface {
	Now() core.Instant
	// WithTimeout is context.WithTimeout by this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Sleep returns after d, or with ctx's error as soon as ctx ends.
	Sleep(ctx context.Context, d time.Duration) error
	// Float64 is a random number in [0,1): the jitter of a backoff.
	Float64() float64
}

// Respond sends the one reply to a command.
type Respond func(core.Reply) error

// Accept puts one command into a queue, or answers it at once. It does not block, and
// keeps cmd.
type Accept func(cmd *core.Command, respond Respond)

// Source is where the commands come from.
type Source interface {
	// Serve calls accept with the commands of the named agents until ctx ends or it
	// can go on no longer. It returns after the last call of accept has; the Respond
	// functions it passed must work after that, too.
	Serve(ctx context.Context, agents []string, accept Accept) error
}
