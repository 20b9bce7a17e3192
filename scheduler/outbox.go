package scheduler

// outbox is what a partition knows of its endings in the event stream. Endings are numbered from 1 in each
// partition.
type outbox struct {
	// nextEnd is the next end number to give out.
	nextEnd      int64
	published    publishedEnds
	republishing republishing
	// endings counts the round's endings that are to be published.
	endings int
}

// endNumber returns an end number that was never given out in the partition.
func (o *outbox) endNumber() int64 {
	o.nextEnd++
	return o.nextEnd - 1
}

// toPublish counts one ending of the round.
func (o *outbox) toPublish() { o.endings++ }

// handsOver reports whether the round has endings to publish, and resets their count.
func (o *outbox) handsOver() (some bool) {
	some, o.endings = o.endings > 0, 0
	return some
}

// republish begins to publish every ending again that is not known to be published. With notify the
// submitters are told again as well.
func (o *outbox) republish(notify bool) {
	r := &o.republishing
	r.on, r.notify, r.after, r.until = true, r.notify || notify, o.published.through, o.nextEnd
}

// publishedEnds is which endings the event stream has stored: all up to through, and those in ahead, since
// confirmations may come out of order. through is the column publishedThrough, from which a successor
// continues.
type publishedEnds struct {
	through int64
	ahead   map[int64]bool
}

func (m *publishedEnds) add(end int64) {
	if end <= m.through {
		return
	}
	m.ahead[end] = true
	for m.ahead[m.through+1] {
		m.through++
		delete(m.ahead, m.through)
	}
}

// skip counts the end numbers in [first, end) as published.
func (m *publishedEnds) skip(first, end int64) {
	for n := first; n < end; n++ {
		m.add(n)
	}
}

// republishing is how far a partition has come with publishing endings again. It begins at a takeover, with
// all that is not known to be published, and after the event stream refused endings. Memory holds only end
// numbers: the endings are read from the store page by page, the next page when the one before is confirmed.
type republishing struct {
	on bool
	// notify is whether the submitters are told again too: the previous owner may have died before it told
	// them.
	notify bool
	// out is whether a page is on its way.
	out bool
	// after is the end number up to which everything has been handed to the stream.
	after int64
	// until is the end of the range: from here on endings were numbered after the republishing began.
	until int64
}
