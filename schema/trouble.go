package schema

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// silentAfter is how long a commit may get no answer at all before Trouble tells of it.
const silentAfter = time.Second

// errSilent is the trouble of a commit that has got no answer for silentAfter.
var errSilent = errors.New("the database has not answered yet")

// commits watches commits, so that Trouble can say since when none gets through, and why. A commit that goes
// well costs two atomic stores.
type commits struct {
	// slots are commits under way. If there are more at a time, the others are not watched until they end.
	slots [32]commitWatch
	// failed is the first commit that was given up since one succeeded; nil: none.
	failed atomic.Pointer[trouble]
	// redact is Dialect.Redact.
	redact func(error) error
}

// trouble is a commit that does not get through: since when, and its last error.
type trouble struct {
	since  time.Time
	reason error
}

// commitWatch is one commit under way.
type commitWatch struct {
	of *commits
	// began is when, in nanoseconds; 0: the slot is free.
	began atomic.Int64
	// why is the last failed try; nil: none failed yet.
	why atomic.Pointer[trouble]
}

// begin watches a commit. Call end when it has ended.
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

// failing notes that a try failed and another one follows.
func (w *commitWatch) failing(err error) {
	w.why.Store(&trouble{time.Unix(0, w.began.Load()), err})
}

// end notes how the commit ended. dealt: its error is one that the caller acts on, such as a refused row.
// Then, as after a success, the database does take commits.
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

// last is why a commit was given up: the error of its last try rather than that the caller's ctx ended. nil:
// the caller hardly waited, which says nothing about the database.
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
	// The oldest trouble counts: it says since when nothing has got through.
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
