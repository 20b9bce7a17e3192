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

// purge forgets old tasks of the partitions that are held here, and old entries of the audit trail, until ctx ends.
func (s *Scheduler) purge(ctx context.Context) {
	if s.cfg.Retain == (Retention{}) {
		return
	}
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	p := purging{s: s, rests: map[int]purgePause{}, audited: s.cfg.Now()}
	p.trail, _ = s.store.(AuditPurger)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for more := true; more && ctx.Err() == nil; {
			more = p.pass(ctx)
		}
	}
}

// purging is what purge remembers from pass to pass.
type purging struct {
	s     *Scheduler
	rests map[int]purgePause // by partition

	trail       AuditPurger  // nil: the store has none
	audited     core.Instant // when old entries of it were last forgotten
	entries     int          // that were since then
	auditFailed error
}

// pass forgets a little of each partition whose pause is over: one that has much to forget keeps no other waiting. It reports
// whether there is more that need not wait.
func (p *purging) pass(ctx context.Context) (more bool) {
	s := p.s
	var failed error
	for _, c := range s.committers {
		for partition, is := range c.ownerships() {
			rest := p.rests[partition]
			if rest.at.Elapsed(s.cfg.Now(), rest.rest) {
				gone, err := s.purgeOne(ctx, c, partition, is)
				rest = rest.after(gone, err, s.cfg.Now(), s.cfg.Retain)
				p.rests[partition] = rest
				more = more || rest.at == 0
			}
			if rest.failed != nil && failed == nil {
				failed = fmt.Errorf("partition %d: %w", partition, rest.failed)
			}
			if partition == auditPartition && p.trail != nil && s.cfg.Retain.Audit != 0 {
				more = p.audit(ctx, is) || more
				if p.auditFailed != nil && failed == nil {
					failed = fmt.Errorf("audit trail: %w", p.auditFailed)
				}
			}
		}
	}
	s.cfg.reportUnlessEnded(ctx, TroubleForget, failed)
	return more
}

// purgePause is when a partition was looked at, and how long it is not from then on.
type purgePause struct {
	at     core.Instant
	rest   time.Duration
	failed error // of that look
}

// after returns the pause that follows a look which has forgotten so many tasks: none if there may be more at once, until the
// next tick if there were any or it failed, else twice the last one, within bounds.
func (r purgePause) after(gone int, err error, now core.Instant, keep Retention) purgePause {
	switch {
	case gone >= purgeMost && err == nil:
		return purgePause{}
	case gone > 0 || err != nil:
		return purgePause{now, purgeEvery / 2, err}
	}
	most := purgeRest
	for _, d := range []time.Duration{keep.Detail, keep.Row} {
		if d > 0 {
			most = min(most, d/purgeRestPart)
		}
	}
	return purgePause{at: now, rest: min(max(2*r.rest, purgeEvery), most)}
}

// audit forgets a few old entries of the audit trail, which delays no partition's commits, and reports whether there may be
// more.
func (p *purging) audit(ctx context.Context, is ownership) (more bool) {
	s := p.s
	now := s.cfg.Now()
	if is.wentBack != 0 && now < is.wentBack.Add(keepAfter) || !p.audited.Elapsed(now, auditEvery) {
		return false
	}
	n, err := p.trail.ForgetAudit(ctx, now.Add(-s.cfg.Retain.Audit), purgeMost)
	p.auditFailed = err
	if p.entries += n; err == nil && n >= purgeMost {
		return true
	}
	if p.entries > 0 {
		s.log.Info("old entries of the audit trail are gone", "entries", p.entries, "older_than", s.cfg.Retain.Audit)
	}
	p.audited, p.entries = now, 0
	return false
}

// purgeOne forgets old tasks of one partition, a few, and returns how many.
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
	if !c.lockPurge(ctx) {
		return 0, nil
	}
	defer c.unlockPurge()
	return s.store.Purge(ctx, partition, is.epoch, before(s.cfg.Retain.Detail), s.unread(partition, before(s.cfg.Retain.Row)), purgeMost)
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
