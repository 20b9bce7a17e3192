package scheduler

// outbox are the endings of a partition, which the event stream is to take.
type outbox struct {
	nextEnd      int64
	published    publishedEnds
	republishing republishing
	endings      int // of the round, to be published
}

// endNumber is one that no ending of the partition has had.
func (o *outbox) endNumber() int64 {
	o.nextEnd++
	return o.nextEnd - 1
}

// toPublish counts an ending of the round.
func (o *outbox) toPublish() { o.endings++ }

// handsOver reports whether the round has any to publish, and forgets them.
func (o *outbox) handsOver() (some bool) {
	some, o.endings = o.endings > 0, 0
	return some
}

// republish begins to publish again all that is not known to be published. notify: to the submitters as well.
func (o *outbox) republish(notify bool) {
	r := &o.republishing
	r.on, r.notify, r.after, r.until = true, r.notify || notify, o.published.through, o.nextEnd
}

// publishedEnds is which endings are stored in the event stream: those of every end number up to publishedThrough, and
// some beyond it.
type publishedEnds struct {
	through int64 // publishedThrough
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

// skip counts the end numbers from first up to but not including end as published.
func (m *publishedEnds) skip(first, end int64) {
	for n := first; n < end; n++ {
		m.add(n)
	}
}

// republishing is how far a partition has come with publishing again what ended and is not known to be published: at a
// takeover all of it, and after the event stream has refused endings. Memory keeps their numbers alone: the rest is read from
// the store, a page at a time, when the one before is published.
type republishing struct {
	on     bool
	notify bool  // the submitters as well: their messages may have been lost with the owner before
	out    bool  // a page is on its way
	after  int64 // the end number up to which all has been handed over
	until  int64 // the first that need not be: it was given out since
}
