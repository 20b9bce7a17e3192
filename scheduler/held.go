package scheduler

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
)

// After the database went back both streams are read again, the controls first. A
// cancel would then take the id of a submission that has run, and nothing would undo
// what it did: so a cancel of an unknown id waits until the submissions that may have
// run have been read. The control cursor stays before it meanwhile, so that a crash
// reads it again.

// heldMax bounds the cancels that wait in a partition; later ones are applied at once.
const heldMax = 4096

// heldFor bounds how long a cancel waits: the submissions it waits for may be gone from
// the stream.
const heldFor = 10 * time.Minute

// unread reports whether submissions that may have run before are still to be read.
func (p *partition) unread() bool { return p.nextCursor < p.readUntil }

// controlDone is the position up to which every control message is dealt with, and when
// the stream took the message there, if that is known.
func (p *partition) controlDone() (uint64, core.Instant) {
	if len(p.held) > 0 && p.held[0].Pos <= p.nextControl {
		return p.held[0].Pos - 1, 0
	}
	return p.nextControl, p.nextControlStored
}

// heldReady reports whether cancels that waited can be applied now.
func (s *Shard) heldReady() bool {
	for _, p := range s.inOrder() {
		if s.ready(p) {
			return true
		}
	}
	return false
}

func (s *Shard) ready(p *partition) bool {
	return len(p.held) > 0 && (!p.unread() || s.cycle.now >= p.held[0].At.Add(heldFor))
}

// heldUntil is when the first cancel has waited for long enough; 0: none waits.
func (s *Shard) heldUntil() (next core.Instant) {
	for _, p := range s.inOrder() {
		if len(p.held) == 0 {
			continue
		}
		if at := p.held[0].At.Add(heldFor); next == 0 || at < next {
			next = at
		}
	}
	return next
}

// applyHeld applies the cancels that have waited.
func (s *Shard) applyHeld(ctx context.Context) (bool, error) {
	for _, p := range s.inOrder() {
		for s.ready(p) {
			if !s.roomy() {
				return true, nil
			}
			m := p.held[0]
			until := p.readUntil
			p.readUntil = 0 // it must not wait again
			full, err := s.applyControl(ctx, p, &m)
			p.readUntil = until
			if full || err != nil {
				return full, err
			}
			p.held, p.dirty = p.held[1:], true
		}
	}
	return false, nil
}
