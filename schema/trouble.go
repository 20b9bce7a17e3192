package schema

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// silentAfter is how long a commit may be without any answer before that is told.
const silentAfter = time.Second

var errSilent = errors.New("the database has not answered yet")

// commits is what is known of the commits that are wanted and do not get through. A
// commit that goes well costs it two stores.
type commits struct {
	slots  [32]commitWatch         // of commits under way; more at a time are not watched
	failed atomic.Pointer[trouble] // since no commit succeeded: the first that was given up
	redact func(error) error       // see Dialect
}

// trouble is since when a commit has been wanted, and what stood in its way last.
type trouble struct {
	since  time.Time
	reason error
}

// commitWatch is one commit under way.
type commitWatch struct {
	of    *commits
	began atomic.Int64 // in nanoseconds; 0: the slot is free
	why   atomic.Pointer[trouble]
}

// begin watches a commit, until end.
func (c *commits) begin() *commitWatch {
	now := time.Now().UnixNano()
	for i := range c.slots {
		if w := &c.slots[i]; w.began.Load() == 0 && w.began.CompareAndSwap(0, now) {
			w.of = c
			return w
		}
	}
	w := &commitWatch{of: c}
	w.began.Store(now)
	return w
}

// failing notes that a try has failed and that another follows.
func (w *commitWatch) failing(err error) {
	w.why.Store(&trouble{time.Unix(0, w.began.Load()), err})
}

// end tells how the commit ended: with nil, or an error that is its caller's to deal
// with, the database takes commits.
func (w *commitWatch) end(err error, dealt bool) {
	switch failed := w.of.failed.Load(); {
	case err == nil || dealt:
		if failed != nil {
			w.of.failed.Store(nil)
		}
	case failed == nil:
		if reason := w.last(err); reason != nil {
			w.of.failed.CompareAndSwap(nil, &trouble{time.Unix(0, w.began.Load()), reason})
		}
	}
	w.why.Store(nil)
	w.began.Store(0)
}

// last is why a commit was given up: what stood in its way, rather than that its
// caller would not wait any longer; nil, when the caller did not wait at all.
func (w *commitWatch) last(err error) error {
	if why := w.why.Load(); why != nil {
		return why.reason
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if time.Now().UnixNano()-w.began.Load() > int64(silentAfter) {
		return errSilent
	}
	return nil
}

// Trouble returns since when a commit has been wanted that does not get through, and
// what the database said last; the zero time when all is well. The reason holds no
// value of a task, no user and no password.
func (c *commits) Trouble() (since time.Time, reason error) {
	take := func(t *trouble) {
		if t != nil && (since.IsZero() || t.since.Before(since)) {
			since, reason = t.since, t.reason
		}
	}
	take(c.failed.Load())
	silent := time.Now().Add(-silentAfter).UnixNano()
	for i := range c.slots {
		w := &c.slots[i]
		began, why := w.began.Load(), w.why.Load()
		switch {
		case began == 0:
		case why != nil:
			take(why)
		case began < silent:
			take(&trouble{time.Unix(0, began), errSilent})
		}
	}
	if reason != nil && c.redact != nil {
		reason = c.redact(reason)
	}
	return since, reason
}
