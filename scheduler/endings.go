package scheduler

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// republishMost × PublishRetry is the longest pause before endings are published again.
const republishMost = 8

// loadPage is how many tasks, or endings to publish again, are read from the store at a time.
const loadPage = 1000

// publisher hands endings to the event stream, and hands those over again that the stream has not taken.
type publisher struct {
	cfg   *Config
	store Store
	bus   Bus
	// posted receives confirmations, from any goroutine, and brings them back as mail.
	posted func(PublishedMail)
	// republished counts endings that were handed over again.
	republished *int64
	// nextRound is when a round is wanted to publish endings again.
	nextRound waker
	// after is the pause before the next attempt; 0: the stream takes endings.
	after time.Duration
	// refused is whether the stream refused the last endings.
	refused bool
}

// publish hands the round's endings to the event stream, those of all partitions together: the stream syncs
// each message to disk, so few large messages are cheap. The confirmation comes back as one mail for each
// partition.
func (u *publisher) publish(endings []core.Ending, in []*partition) {
	if len(endings) == 0 {
		return
	}
	all := make([]core.Ending, 0, len(endings)) // a copy, because the mails outlive the round
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

// hand hands endings to the event stream. mails say which of them belong to which partition; they are posted
// when the stream has answered.
func (u *publisher) hand(endings []core.Ending, mails []PublishedMail) {
	u.bus.Publish(endings, func(err error) {
		for i := range mails {
			mails[i].Err = err
			u.posted(mails[i])
		}
	})
}

// confirmed applies the confirmations of the mail, and publishes the next page where endings are to be
// published again.
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
	if u.nextRound.lookAt == 0 || c.now < u.nextRound.lookAt || len(c.batch.Writes) > 0 { // in a round with writes the store does not have the newest end numbers yet
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

// accepted reports that the event stream takes endings again, or that no partition is left to publish any.
func (u *publisher) accepted() {
	if u.refused {
		u.refused = false
		u.cfg.report(TroubleEvents, nil)
	}
}

// rejected plans to publish a partition's endings again. The pause doubles while the stream refuses: it may
// be away for seconds or hours. The trouble is reported, not logged for each ending.
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

// page publishes the next page of what has to be published again. An end number that is not in the store
// needs no publishing and counts as published, so that publishedThrough can pass it: its task was a
// duplicate, or was resumed after its end.
func (u *publisher) page(ctx context.Context, c *cycle, p *partition) error {
	r := &p.republishing
	for full := false; !full; {
		endings, err := u.store.Untold(ctx, p.asOf(), r.after, loadPage)
		if err != nil {
			return err
		}
		if full = len(endings) == loadPage; len(endings) == 0 || endings[0].EndNumber >= r.until { // a short page may lack an ending that cannot be read, so it is not the last
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
