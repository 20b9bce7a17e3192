package ingest

import (
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// floodRest is how long requests must have been few for a flood to be over: one
// that ebbs between two packs is not.
const floodRest = time.Second

// flood says whether requests come faster than they are answered. One goroutine
// looks, any may ask.
type flood struct {
	from  int64        // unanswered requests with which one begins; a third of them keeps it up
	until atomic.Int64 // core.Instant at which it is over unless it goes on
}

// look counts the unanswered requests of this moment in.
func (f *flood) look(now core.Instant, unanswered int64) {
	if unanswered >= f.from || unanswered >= max(1, f.from/3) && f.is(now) {
		f.until.Store(int64(now.Add(floodRest)))
	}
}

func (f *flood) is(now core.Instant) bool { return int64(now) < f.until.Load() }
