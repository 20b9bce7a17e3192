package ingest

import (
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// Stats counts what a door did since it was made. It is a copy.
type Stats struct {
	// Taken counts requests that came, with those that were refused.
	Taken    int64
	Accepted int64 // answered as stored
	// Warned counts accepted ones with a warning: see core.Plan.Admission.
	Warned        int64
	Refused       map[int]int64 // by cause; causes that did not occur are left out
	Packs         int64         // messages published
	Packed        int64         // submissions in them
	TracesDropped int64
	// LateDone counts packs that the stream answered when their requests had been answered as unknown.
	LateDone int64
	Items    int64 // unanswered now
	Bytes    int64 // of the unanswered
	// Wait is the longest time that a request which comes now would wait until it begins.
	Wait time.Duration
}

type counters struct {
	came, accepted, warned, packs, packed, tracesDropped, lateDone atomic.Int64
	refused                                                        [CauseLast - CauseFirst + 1]atomic.Int64
}

// Stats returns a copy of the counts. It is safe for concurrent use.
func (d *Door) Stats(now core.Instant) Stats {
	s := Stats{
		Wait:  d.waits.longest(now),
		Taken: d.stats.came.Load(), Accepted: d.stats.accepted.Load(), Warned: d.stats.warned.Load(), Refused: map[int]int64{},
		Packs: d.stats.packs.Load(), Packed: d.stats.packed.Load(), TracesDropped: d.stats.tracesDropped.Load(),
		LateDone: d.stats.lateDone.Load(), Items: d.items(),
	}
	for _, st := range d.streams {
		s.Bytes += st.budget.bytes.Load()
	}
	for i := range d.stats.refused {
		if n := d.stats.refused[i].Load(); n > 0 {
			s.Refused[CauseFirst+i] = n
		}
	}
	return s
}
