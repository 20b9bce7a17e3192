package sim

import (
	"time"

	"duly.dev/duly/internal/core"
)

// Times that the plans' grace must cover: a clock is up to skewMax off the
// world's, and a call without an answer takes effect up to slow after the
// deadline its agent saw. Between the complete-by that one owner wrote and the
// grace that its successor waits for, four clocks differ: the owner's twice, the
// agent's, the successor's.
const (
	grace   = 200 * time.Millisecond
	skewMax = 15 * time.Millisecond
	slow    = grace - 4*skewMax - 10*time.Millisecond
)

// clock is the clock of one process.
type clock struct {
	w    *World
	skew time.Duration
	// wrong is what no grace covers.
	wrong time.Duration
}

func (w *World) newClock() *clock {
	c := &clock{w: w}
	if w.fault(ClockSkew) {
		c.skew = w.upTo(2*skewMax) - skewMax
	}
	w.clocks = append(w.clocks, c)
	return c
}

// now is what the process reads.
func (c *clock) now() core.Instant { return c.steady().Add(c.wrong) }

// steady is what its time-outs go by, which setting it far off does not move.
func (c *clock) steady() core.Instant { return c.w.now.Add(c.skew) }

// until is how long the world takes to come to what this clock will show as at.
func (c *clock) until(at core.Instant) time.Duration { return max(0, at.Sub(c.now())) }

// stepClocks sets one clock again now and then, as a correction does.
func (w *World) stepClocks() {
	if w.fault(ClockStep) {
		w.clocks[w.rand.IntN(len(w.clocks))].skew = w.upTo(2*skewMax) - skewMax
	}
}
