package duly

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// A server that has no room for a submission (429) says when it may come again, and tells each that it refuses another time.
// Until the last of these times the client asks for nothing else of that type and class: what it has not asked for yet comes
// behind what was refused. Then these go one after the other, in the order in which they came, at first as far apart as the
// times that were told; each that is taken halves the distance.

const (
	holdsMax     = 1024 // types and classes that are held back at a time; others are not
	holdGap      = 10 * time.Millisecond
	holdGapLeast = 100 * time.Microsecond
	holdGapMost  = 100 * time.Millisecond
	holdGapParts = 8 // how much a new time counts in the distance: one part in so many
)

// holds are what a client holds back. They have no goroutine: who waits at the front of a queue sleeps, and wakes the next.
type holds struct {
	mu sync.Mutex
	of map[holdKey]*hold
}

// holdKey is whose submissions are held back: servers refuse a low class before others.
type holdKey struct {
	typ   string
	class core.Class
}

// hold is one queue.
type hold struct {
	until   core.Instant  // the last time that was told
	next    core.Instant  // the front goes no earlier
	gap     time.Duration // between two that go
	why     string
	waiting list.List // of chan struct{}, closed when it is the front
}

// over reports whether nothing is held back any more.
func (h *hold) over(now core.Instant) bool { return h.waiting.Len() == 0 && now >= h.until }

// turn is the turn of one submission; nil: of a request that is never held back.
type turn struct {
	holds *holds
	key   holdKey
	task  string
	told  bool // it was told a time of its own
}

// wait returns when the submission may be asked for, or ctx ends: then its error says why it was held back.
func (t *turn) wait(ctx context.Context, clock agents.Time) error {
	if t == nil || t.told {
		return nil
	}
	why, gone := t.holds.wait(ctx, clock, t.key)
	if !gone {
		return nil
	}
	return &SubmitError{Type: t.key.typ, Task: t.task, Code: core.CodeTooMany, Description: "held back, because another of its type was refused: " + why}
}

// heard takes the answer.
func (t *turn) heard(now core.Instant, err error) {
	if t == nil {
		return
	}
	refused, is := errors.AsType[*SubmitError](err)
	if t.told = is && refused.Code == core.CodeTooMany && refused.RetryAfter > 0; t.told {
		t.holds.refused(now, t.key, refused)
	} else if err == nil {
		t.holds.taken(now, t.key)
	}
}

// wait returns when one of a type and class may be asked for; gone: ctx has ended before, and why it was held back.
func (h *holds) wait(ctx context.Context, clock agents.Time, key holdKey) (why string, gone bool) {
	h.mu.Lock()
	is := h.of[key]
	if is == nil || is.over(clock.Now()) {
		delete(h.of, key)
		h.mu.Unlock()
		return "", false
	}
	front := make(chan struct{})
	place := is.waiting.PushBack(front)
	if is.waiting.Len() == 1 {
		close(front)
	}
	h.mu.Unlock()
	select {
	case <-front:
	case <-ctx.Done():
		return h.leave(is, place), true
	}
	for {
		rest := h.goes(clock.Now(), is, place)
		if rest == 0 {
			return "", false
		}
		if clock.Sleep(ctx, rest) != nil {
			return h.leave(is, place), true
		}
	}
}

// goes lets the front go, or says how long it has to wait yet. A clock that was set back holds no submission longer than a server may.
func (h *holds) goes(now core.Instant, is *hold, place *list.Element) (rest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is.until, is.next = min(is.until, now.Add(hintMax)), min(is.next, now.Add(holdGapMost))
	if rest = max(is.until, is.next).Sub(now); rest > 0 {
		return rest
	}
	is.next = now.Add(is.gap)
	is.remove(place)
	return 0
}

// leave takes one off that waits no longer, and says why it did.
func (h *holds) leave(is *hold, place *list.Element) (why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is.remove(place)
	return is.why
}

// remove takes one off, and wakes the next if it was the front. It is locked.
func (h *hold) remove(place *list.Element) {
	front := h.waiting.Front() == place
	h.waiting.Remove(place)
	if next := h.waiting.Front(); front && next != nil {
		close(next.Value.(chan struct{})) //nolint:forcetypeassert // nothing else is in it
	}
}

// refused takes that one was told a time.
func (h *holds) refused(now core.Instant, key holdKey, by *SubmitError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := h.of[key]
	if is == nil {
		if is = h.add(now, key); is == nil {
			return
		}
	}
	is.why = by.Description
	until := now.Add(min(by.RetryAfter, hintMax))
	if until <= is.until {
		return
	}
	if is.until > now {
		apart := min(max(until.Sub(is.until), holdGapLeast), holdGapMost)
		is.gap += (apart - is.gap) / holdGapParts
	}
	is.until = until
}

// add begins a queue; nil: there are too many. It is locked.
func (h *holds) add(now core.Instant, key holdKey) *hold {
	if len(h.of) >= holdsMax {
		for other, is := range h.of {
			if is.over(now) {
				delete(h.of, other)
			}
		}
	}
	if len(h.of) >= holdsMax {
		return nil
	}
	if h.of == nil {
		h.of = map[holdKey]*hold{}
	}
	is := &hold{gap: holdGap}
	h.of[key] = is
	return is
}

// taken takes that one was not refused.
func (h *holds) taken(now core.Instant, key holdKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := h.of[key]
	switch {
	case is == nil || now < is.until:
	case is.over(now):
		delete(h.of, key)
	default:
		is.gap = max(is.gap/2, holdGapLeast)
	}
}
