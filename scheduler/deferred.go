package scheduler

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Deferred requests. After the database went back, both streams are read again, and controls are applied first. A cancel of
// an unknown id creates a cancelled task; if the submission with that id had already run, nothing would undo what it did.
// So such a cancel is deferred until the submissions that may have run have been read. The control cursor stays before a
// deferred request, so that it is read again after a crash.
//
// A request about a task whose plan this node cannot read is deferred in the same way, for an owner that can read it.

// deferredMax bounds the deferred requests of a partition; further ones are applied at once.
const deferredMax = 4096

// deferFor bounds how long a request is deferred: the submissions that it waits for may be gone from the stream.
const deferFor = 10 * time.Minute

// unread reports whether submissions that may have run before are still to be read.
func (p *partition) unread() bool { return p.nextCursor < p.readUntil }

// rereadUntil notes that submissions up to a position may have run before, and are read again.
func (p *partition) rereadUntil(until uint64) { p.readUntil = until }

// asRead calls do as if nothing were unread, so that a deferred request is not deferred once more.
func (p *partition) asRead(do func() (bool, error)) (bool, error) {
	until := p.readUntil
	p.readUntil = 0
	full, err := do()
	p.readUntil = until
	return full, err
}

// controlDone returns the position up to which every control message is dealt with, and when the stream
// stored the message there; 0: that is not known, because a deferred request keeps the position back.
func (p *partition) controlDone() (uint64, core.Instant) {
	if len(p.deferred) > 0 && p.deferred[0].Pos <= p.nextControl {
		return p.deferred[0].Pos - 1, 0
	}
	return p.nextControl, p.nextControlStored
}

// readyDeferred returns the index of the first deferred request that can be applied now; -1: none.
func (p *partition) readyDeferred(now core.Instant, plans *planBook) int {
	return slices.IndexFunc(p.deferred, func(h deferredControl) bool {
		switch {
		case now >= h.At.Add(deferFor):
			return true
		case h.plan != nil:
			return plans.find(h.plan.Name, h.plan.Version) != nil
		}
		return !p.unread()
	})
}

// deferredReady reports whether any deferred request can be applied now.
func (o *owned) deferredReady(now core.Instant, plans *planBook) bool {
	return slices.ContainsFunc(o.inOrder(), func(p *partition) bool { return p.readyDeferred(now, plans) >= 0 })
}

// deferForPlan defers a request about a task whose plan cannot be read. It reports false if the request was
// deferred for too long already, or too many are.
func (p *partition) deferForPlan(m *ControlMail, plan *core.UnreadablePlan, now core.Instant) bool {
	if plan == nil || len(p.deferred) >= deferredMax || now >= m.At.Add(deferFor) {
		return false
	}
	p.deferred = append(p.deferred, deferredControl{*m, plan})
	return true
}

// deferUntilRead defers a request until what is unread has been read. It reports false if too many are
// deferred.
func (p *partition) deferUntilRead(m *ControlMail) bool {
	if len(p.deferred) >= deferredMax {
		return false
	}
	p.deferred = append(p.deferred, deferredControl{ControlMail: *m})
	return true
}

// undefer removes a deferred request.
func (p *partition) undefer(i int) { p.deferred = slices.Delete(p.deferred, i, i+1) }

// deferredUntil returns when the first deferred request has waited for deferFor; 0: none is deferred.
func (o *owned) deferredUntil() (next core.Instant) {
	for _, p := range o.inOrder() {
		if len(p.deferred) > 0 {
			next = earlier(next, p.deferred[0].At.Add(deferFor))
		}
	}
	return next
}
