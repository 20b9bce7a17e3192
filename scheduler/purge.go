package scheduler

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// Retention is how long what a task was made of is kept after its end. Tasks in
// error are kept until an operator resolves them.
type Retention struct {
	Detail time.Duration // input, results and journal; 0: for ever
	Row    time.Duration // id, hash of the input and end state; 0: for ever
}

// Purger forgets old tasks. See schema.Store.
type Purger interface {
	Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error)
}

// How tasks are forgotten: little at a time, because a partition cannot commit
// meanwhile.
const (
	purgeEvery = time.Second
	purgeMost  = 250
	// keepAfter is how long nothing is forgotten after the database went back: requests
	// that are read again may be about tasks that ended long before.
	keepAfter = time.Hour
)

// purge forgets old tasks of the partitions held here until ctx ends.
func (s *Scheduler) purge(ctx context.Context) {
	if s.cfg.Retain == (Retention{}) {
		return
	}
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var failed error
		for _, c := range s.committers {
			for partition, is := range c.ownerships() {
				if err := s.purgeOne(ctx, c, partition, is); err != nil && failed == nil {
					failed = fmt.Errorf("partition %d: %w", partition, err)
				}
			}
		}
		s.reportUnlessEnded(ctx, TroubleForget, failed)
	}
}

// purgeOne forgets what is old in one partition.
func (s *Scheduler) purgeOne(ctx context.Context, c *Committer, partition int, is ownership) error {
	before := func(d time.Duration) core.Instant {
		if d == 0 {
			return 0 // nothing ended before it
		}
		return s.cfg.Now().Add(-d)
	}
	if is.wentBack != 0 && s.cfg.Now() < is.wentBack.Add(keepAfter) {
		return nil
	}
	for ctx.Err() == nil {
		if !c.hold(ctx) {
			return nil
		}
		n, err := s.store.Purge(ctx, partition, is.epoch, before(s.cfg.Retain.Detail), before(s.cfg.Retain.Row), purgeMost)
		c.unhold()
		if err != nil || n < purgeMost {
			return err
		}
	}
	return nil
}
