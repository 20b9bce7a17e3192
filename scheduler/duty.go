package scheduler

import (
	"context"
	"time"
)

// duty is something that a scheduler does periodically for all its shards: reading the pauses, the breakers,
// the limits. A goroutine runs it every so often, and sooner when it is kicked.
type duty struct {
	// trouble is what Config.Report is told about a run that fails.
	trouble Trouble
	run     func(context.Context) error
	// kick asks for a run before every has passed.
	kick signal
	// every returns how long after a run the next one is, if nobody kicks.
	every func() time.Duration
	// least is the shortest pause between two runs, however often it is kicked.
	least time.Duration
}

// PausesEvery is how often a scheduler reads the pauses if no message announces a change.
const PausesEvery = 5 * time.Second

// waited sleeps for d or until kicked, and reports false when ctx has ended.
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
