package scheduler

import (
	"context"
	"slices"

	"duly.dev/duly/internal/core"
)

// retelling is how far a partition has come with publishing again what ended and is not known to be published: at a
// takeover all of it, and after the event stream has refused endings. Memory keeps their numbers alone: the rest is read from
// the store, a page at a time, when the one before is published.
type retelling struct {
	on     bool
	notify bool  // the submitters as well: their messages may have been lost with the owner before
	out    bool  // a page is on its way
	after  int64 // the end number up to which all has been handed over
	until  int64 // the first that need not be: it was given out since
}

// republishMost is how many times PublishRetry the longest pause is before endings are
// published again.
const republishMost = 8

// applyPublished notes what the event stream has taken, and hands it again what it has not.
func (s *Shard) applyPublished(ctx context.Context) error {
	c := &s.cycle
	for ; c.pos.published < len(c.mail.Published); c.pos.published++ {
		m := &c.mail.Published[c.pos.published]
		p := s.partitions[m.Partition]
		if p == nil || p.epoch != m.Epoch {
			continue
		}
		p.retell.out = p.retell.out && !m.Again
		if m.Err != nil {
			s.untaken(p, m.Err)
			continue
		}
		if s.republishAfter = 0; s.republishAt > c.now || s.republishAt == 0 && p.retell.on {
			s.republishAt = c.now // it takes endings again
		}
		s.eventsTaken()
		for i := range m.Endings {
			p.published.add(m.Endings[i].EndNumber)
		}
	}
	if s.republishAt == 0 || c.now < s.republishAt || len(c.batch.Writes) > 0 { // the numbers of a round are given out before its commit
		return nil
	}
	for _, p := range s.inOrder() {
		if p.retell.on && !p.retell.out {
			if err := s.retellPage(ctx, p); err != nil {
				return err // the partitions after it are still due
			}
		}
	}
	s.republishAt = 0
	return nil
}

// eventsTaken says that the event stream takes endings, or that none are left to be published again.
func (s *Shard) eventsTaken() {
	if s.unpublished {
		s.unpublished = false
		s.cfg.report(TroubleEvents, nil)
	}
}

// untaken notes that the event stream refused endings of a partition. They are published again after longer and longer
// pauses while it refuses: a stream that is away for seconds or hours is asked now and then. Nothing is logged for each: the
// stream's trouble is reported once.
func (s *Shard) untaken(p *partition, why error) {
	s.unpublished = true
	s.cfg.report(TroubleEvents, why)
	p.retell.on, p.retell.after, p.retell.until = true, p.published.through, p.nextEnd
	if s.republishAt != 0 {
		return
	}
	s.republishAfter = min(max(s.cfg.PublishRetry, 2*s.republishAfter), republishMost*s.cfg.PublishRetry)
	s.republishAt = s.cycle.now.Add(s.republishAfter)
}

// retellPage publishes the next page of what ended. A number that was given but is not in the store (a new task that was a
// duplicate, a task that was resumed after its end) needs no publishing, and must not hold publishedThrough back.
func (s *Shard) retellPage(ctx context.Context, p *partition) error {
	r := &p.retell
	for full := false; !full; {
		endings, err := s.store.Untold(ctx, p.asOf(), r.after, loadPage)
		if err != nil {
			return err
		}
		if full = len(endings) == loadPage; len(endings) == 0 || endings[0].EndNumber >= r.until { // one that is not full may lack one that cannot be read
			p.published.skip(r.after+1, r.until)
			*r = retelling{}
			return nil
		}
		if i := slices.IndexFunc(endings, func(e core.Ending) bool { return e.EndNumber >= r.until }); i >= 0 {
			endings = endings[:i]
		}
		for i := range endings {
			e := &endings[i]
			p.published.skip(r.after+1, e.EndNumber)
			r.after = e.EndNumber
			if r.notify {
				s.notify(p, e.ReplyTo, core.Status{ID: e.ID, Type: e.Type, Status: string(e.State), Error: e.Error, At: e.At})
			}
		}
		r.out = true
		s.Stats.Republished += int64(len(endings))
		s.handToStream(endings, []PublishedMail{{Partition: p.id, Epoch: p.epoch, Again: true, Endings: endings}})
	}
	return nil
}
