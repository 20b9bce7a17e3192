package scheduler

import (
	"context"
	"time"
)

// duty are what is read again and again for all shards: pauses, breakers, limits.
type duty struct {
	trouble Trouble // that a turn which fails is
	run     func(context.Context) error
	kick    signal               // asks for a turn
	every   func() time.Duration // how long after a turn the next one is, if none is asked for
	least   time.Duration        // between two turns
}

// PausesEvery is how often a scheduler reads the pauses, when it is not told that they have changed.
const PausesEvery = 5 * time.Second

// waited waits for a time, or for a signal before, and reports false when ctx has ended.
func waited(ctx context.Context, kick signal, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-kick:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
