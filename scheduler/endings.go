package scheduler

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// republishMost is how many times PublishRetry the longest pause is before endings are
// published again.
const republishMost = 8

// loadPage is how many tasks, or endings that are not published, are read at a time.
const loadPage = 1000

// publisher hands endings to the event stream, and again those that it has not taken.
type publisher struct {
	cfg         *Config
	store       Store
	bus         Bus
	posted      func(PublishedMail) // where confirmations go; called from any goroutine
	republished *int64              // counts
	nextRound   waker               // a round is to publish endings again
	after       time.Duration       // the pause before that; 0: the stream takes endings
	refused     bool                // it did not take the last endings
}

// publish hands the endings of a round to the event stream, those of all partitions together: every message there is synced
// to disk, so few and full ones are cheap. The confirmation comes back as one mail for each partition.
func (u *publisher) publish(endings []core.Ending, in []*partition) {
	if len(endings) == 0 {
		return
	}
	all := make([]core.Ending, 0, len(endings)) // the mails keep them
	mails := make([]PublishedMail, 0, len(in))
	for _, p := range in {
		if !p.handsOver() {
			continue
		}
		from := len(all)
		for i := range endings {
			if endings[i].Partition == p.id {
				all = append(all, endings[i])
			}
		}
		mails = append(mails, PublishedMail{Partition: p.id, Epoch: p.epoch, Endings: all[from:len(all):len(all)]})
	}
	u.hand(all, mails)
}

// hand hands endings to the event stream; the mails, which confirm them, say which are of which partition.
func (u *publisher) hand(endings []core.Ending, mails []PublishedMail) {
	u.bus.Publish(endings, func(err error) {
		for i := range mails {
			mails[i].Err = err
			u.posted(mails[i])
		}
	})
}

// confirmed notes what the event stream has taken, and hands it again what it has not.
func (u *publisher) confirmed(ctx context.Context, c *cycle, in *owned) error {
	for ; c.pos.published < len(c.mail.Published); c.pos.published++ {
		m := &c.mail.Published[c.pos.published]
		p := in.partitions[m.Partition]
		if p == nil || p.epoch != m.Epoch {
			continue
		}
		p.republishing.out = p.republishing.out && !m.Again
		if m.Err != nil {
			u.rejected(p, m.Err, c.now)
			continue
		}
		if u.after = 0; u.nextRound.lookAt != 0 || p.republishing.on {
			u.nextRound.wake(c.now) // it takes endings again
		}
		u.accepted()
		for i := range m.Endings {
			p.published.add(m.Endings[i].EndNumber)
		}
	}
	if u.nextRound.lookAt == 0 || c.now < u.nextRound.lookAt || len(c.batch.Writes) > 0 { // the numbers of a round are given out before its commit
		return nil
	}
	for _, p := range in.inOrder() {
		if p.republishing.on && !p.republishing.out {
			if err := u.page(ctx, c, p); err != nil {
				return err // the partitions after it are still due
			}
		}
	}
	u.nextRound.lookAt = 0
	return nil
}

// accepted says that the event stream takes endings, or that none are left to be published again.
func (u *publisher) accepted() {
	if u.refused {
		u.refused = false
		u.cfg.report(TroubleEvents, nil)
	}
}

// rejected notes that the event stream refused endings of a partition. They are published again after longer and longer
// pauses while it refuses: a stream that is away for seconds or hours is asked now and then. Nothing is logged for each: the
// stream's trouble is reported once.
func (u *publisher) rejected(p *partition, why error, now core.Instant) {
	u.refused = true
	u.cfg.report(TroubleEvents, why)
	p.republish(false)
	if u.nextRound.lookAt != 0 {
		return
	}
	u.after = min(max(u.cfg.PublishRetry, 2*u.after), republishMost*u.cfg.PublishRetry)
	u.nextRound.wake(now.Add(u.after))
}

// page publishes the next page of what ended. A number that was given but is not in the store (a new task that was a
// duplicate, a task that was resumed after its end) needs no publishing, and must not hold publishedThrough back.
func (u *publisher) page(ctx context.Context, c *cycle, p *partition) error {
	r := &p.republishing
	for full := false; !full; {
		endings, err := u.store.Untold(ctx, p.asOf(), r.after, loadPage)
		if err != nil {
			return err
		}
		if full = len(endings) == loadPage; len(endings) == 0 || endings[0].EndNumber >= r.until { // one that is not full may lack one that cannot be read
			p.published.skip(r.after+1, r.until)
			*r = republishing{}
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
				c.notify(p, e.ReplyTo, core.Status{ID: e.ID, Type: e.Type, Status: string(e.State), Error: e.Error, At: e.At})
			}
		}
		r.out = true
		*u.republished += int64(len(endings))
		u.hand(endings, []PublishedMail{{Partition: p.id, Epoch: p.epoch, Again: true, Endings: endings}})
	}
	return nil
}
