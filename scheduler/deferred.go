package scheduler

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// After the database went back both streams are read again, the controls first. A
// cancel would then take the id of a submission that has run, and nothing would undo
// what it did: so a cancel of an unknown id waits until the submissions that may have
// run have been read. The control cursor stays before it meanwhile, so that a crash
// reads it again.
//
// A request about a task whose plan cannot be read here waits in the same way, for an owner that can read it.

// deferredMax bounds the requests that wait in a partition; later ones are applied at once.
const deferredMax = 4096

// deferFor bounds how long a request waits: the submissions it waits for may be gone from
// the stream.
const deferFor = 10 * time.Minute

// unread reports whether submissions that may have run before are still to be read.
func (p *partition) unread() bool { return p.nextCursor < p.readUntil }

// rereadUntil has submissions up to a position, which may have run before, read again.
func (p *partition) rereadUntil(until uint64) { p.readUntil = until }

// asRead does something as if what is unread had been read.
func (p *partition) asRead(do func() (bool, error)) (bool, error) {
	until := p.readUntil
	p.readUntil = 0
	full, err := do()
	p.readUntil = until
	return full, err
}

// controlDone is the position up to which every control message is dealt with, and when
// the stream took the message there, if that is known.
func (p *partition) controlDone() (uint64, core.Instant) {
	if len(p.deferred) > 0 && p.deferred[0].Pos <= p.nextControl {
		return p.deferred[0].Pos - 1, 0
	}
	return p.nextControl, p.nextControlStored
}

// readyDeferred is the first request of a partition that need not wait any more; -1: none.
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

// deferredReady reports whether requests that waited can be applied now.
func (o *owned) deferredReady(now core.Instant, plans *planBook) bool {
	return slices.ContainsFunc(o.inOrder(), func(p *partition) bool { return p.readyDeferred(now, plans) >= 0 })
}

// deferForPlan keeps a request about a task whose plan cannot be read; false: it has waited for long, or too many do.
func (p *partition) deferForPlan(m *ControlMail, plan *core.UnreadablePlan, now core.Instant) bool {
	if plan == nil || len(p.deferred) >= deferredMax || now >= m.At.Add(deferFor) {
		return false
	}
	p.deferred = append(p.deferred, deferredControl{*m, plan})
	return true
}

// deferUntilRead keeps a request until what is unread has been read; false: too many wait.
func (p *partition) deferUntilRead(m *ControlMail) bool {
	if len(p.deferred) >= deferredMax {
		return false
	}
	p.deferred = append(p.deferred, deferredControl{ControlMail: *m})
	return true
}

// undefer forgets a request that waited.
func (p *partition) undefer(i int) { p.deferred = slices.Delete(p.deferred, i, i+1) }

// deferredUntil is when the first cancel has waited for long enough; 0: none waits.
func (o *owned) deferredUntil() (next core.Instant) {
	for _, p := range o.inOrder() {
		if len(p.deferred) > 0 {
			next = earlier(next, p.deferred[0].At.Add(deferFor))
		}
	}
	return next
}
