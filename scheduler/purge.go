package scheduler

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// How tasks are forgotten: little at a time, because a partition cannot commit
// meanwhile.
const (
	purgeEvery = time.Second
	purgeMost  = 250
	// purgeRest is the longest pause for a partition in which nothing was old: each look is a transaction, and there are many
	// partitions. The pause is never more than a sixteenth of the shortest retention.
	purgeRest     = 15 * time.Second
	purgeRestPart = 16
	// The audit trail belongs to no partition: the owner of this one forgets its old entries.
	auditPartition = 0
	auditEvery     = time.Minute
	// keepAfter is how long nothing is forgotten after the database went back: requests
	// that are read again may be about tasks that ended long before.
	keepAfter = time.Hour
	// clocksMost is how far the clocks of NATS and of a ready node may differ.
	clocksMost = 30 * time.Second
)

// purge forgets old tasks of the partitions that are held here, until ctx ends.
func (s *Scheduler) purge(ctx context.Context) {
	if s.cfg.Retain == (Retention{}) {
		return
	}
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	trail, _ := s.store.(AuditPurger)
	audited := s.cfg.Now() // when old entries of the audit trail were last forgotten
	rests := map[int]purgePause{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var failed error
		for _, c := range s.committers {
			for partition, is := range c.ownerships() {
				if rest := rests[partition]; s.cfg.Now() >= rest.until {
					gone, err := s.purgeOne(ctx, c, partition, is)
					if err != nil && failed == nil {
						failed = fmt.Errorf("partition %d: %w", partition, err)
					}
					rests[partition] = rest.after(gone, err, s.cfg.Now(), s.cfg.Retain)
				}
				if now := s.cfg.Now(); partition == auditPartition && trail != nil && s.cfg.Retain.Audit != 0 && now.Sub(audited) >= auditEvery {
					audited = now
					if err := s.purgeAudit(ctx, trail, is); err != nil && failed == nil {
						failed = fmt.Errorf("audit trail: %w", err)
					}
				}
			}
		}
		s.cfg.reportUnlessEnded(ctx, TroubleForget, failed)
	}
}

// purgePause is when a partition is looked at again, and how long the pause before that is.
type purgePause struct {
	until core.Instant
	last  time.Duration
}

// after returns the pause that follows a look which has forgotten so many tasks: none if there were any or it
// failed, else twice the last one, within bounds.
func (r purgePause) after(gone int, err error, now core.Instant, keep Retention) purgePause {
	if gone > 0 || err != nil {
		return purgePause{}
	}
	most := purgeRest
	for _, d := range []time.Duration{keep.Detail, keep.Row} {
		if d > 0 {
			most = min(most, d/purgeRestPart)
		}
	}
	rest := min(max(2*r.last, purgeEvery), most)
	return purgePause{now.Add(rest), rest}
}

// purgeAudit forgets old entries of the audit trail, a few in each transaction, which delays no partition's
// commits.
func (s *Scheduler) purgeAudit(ctx context.Context, trail AuditPurger, is ownership) error {
	if is.wentBack != 0 && s.cfg.Now() < is.wentBack.Add(keepAfter) {
		return nil
	}
	gone := 0
	for ctx.Err() == nil {
		n, err := trail.ForgetAudit(ctx, s.cfg.Now().Add(-s.cfg.Retain.Audit), purgeMost)
		if gone += n; err != nil || n < purgeMost {
			if gone > 0 {
				s.log.Info("old entries of the audit trail are gone", "entries", gone, "older_than", s.cfg.Retain.Audit)
			}
			return err
		}
	}
	return nil
}

// purgeOne forgets the old tasks of one partition, and returns how many there were.
func (s *Scheduler) purgeOne(ctx context.Context, c *Committer, partition int, is ownership) (gone int, err error) {
	before := func(d time.Duration) core.Instant {
		if d == 0 {
			return 0 // nothing ended before it
		}
		return s.cfg.Now().Add(-d)
	}
	if is.wentBack != 0 && s.cfg.Now() < is.wentBack.Add(keepAfter) {
		return 0, nil
	}
	for ctx.Err() == nil {
		if !c.lockPurge(ctx) {
			return gone, nil
		}
		n, err := s.store.Purge(ctx, partition, is.epoch, before(s.cfg.Retain.Detail), s.unread(partition, before(s.cfg.Retain.Row)), purgeMost)
		c.unlockPurge()
		if gone += n; err != nil || n < purgeMost {
			return gone, err
		}
	}
	return gone, nil
}

// unread returns the instant before which a task must have ended for its row to be forgotten: the given one,
// or an earlier one if the task stream still has submissions from before it; 0 if that is not known.
func (s *Scheduler) unread(partition int, before core.Instant) core.Instant {
	if s.cfg.Begins == nil || before == 0 {
		return before
	}
	switch at, known := s.cfg.Begins(partition); {
	case !known:
		return 0
	case at != 0:
		return min(before, at.Add(-clocksMost))
	}
	return before
}
