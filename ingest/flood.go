package ingest

import (
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// How long a flood takes to begin and to end. Requests that were held up for a moment,
// by a collection or a checkpoint, all stand there at once; what keeps other work from
// the processors for their sake must not begin with each of those.
const (
	floodAfter = 100 * time.Millisecond // requests must have been many for so long; for half of it if they are twice as many
	floodRest  = 100 * time.Millisecond // and few for so long: one that ebbs between two packs is not over
	floodLook  = 10 * time.Millisecond  // most that one look counts for: who was held up has not seen more
)

// flood says whether requests come faster than they are answered. One goroutine
// looks, any may ask.
type flood struct {
	from  int64         // unanswered requests with which one begins; a third of them keeps it up
	stood time.Duration // how long so many have stood there, since there were last fewer than a third
	at    core.Instant  // of the last look
	until atomic.Int64  // core.Instant at which it is over unless it goes on
}

// look counts the unanswered requests of this moment in.
func (f *flood) look(now core.Instant, unanswered int64) {
	passed := min(now.Sub(f.at), floodLook)
	f.at = now
	switch {
	case unanswered < max(1, f.from/3):
		f.stood = 0
		return
	case f.is(now):
	case unanswered < f.from:
		return
	default:
		if f.stood += passed * time.Duration(unanswered) / time.Duration(f.from); f.stood < floodAfter {
			return
		}
	}
	f.until.Store(int64(now.Add(floodRest)))
}

func (f *flood) is(now core.Instant) bool { return int64(now) < f.until.Load() }
