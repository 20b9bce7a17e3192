package ingest

import (
	"sync"
	"time"

	"duly.dev/duly/internal/say"
)

// relayStreams is what a relay knows of the task streams.
type relayStreams struct {
	of func(id string) int

	mu      sync.Mutex
	all     []relayStream
	changed chan struct{} // closed and replaced when a stream has answered all of a take
}

// relayStream is one of them. Nothing is handed in for one that is late or rests.
type relayStream struct {
	// late: a take has waited for it for relayPatience, and still does. No other take has something there, so that there
	// are no more of them at once than streams.
	slow        bool
	slowRefusal *Refusal  // of its rows meanwhile
	until       time.Time // it rests until then
	why         *Refusal
}

func newRelayStreams(names []string, of func(id string) int) relayStreams {
	all := make([]relayStream, len(names))
	for i, name := range names {
		all[i].slowRefusal = Refuse(503, CauseLogDown, "%s", say.Of("refuse.relay-silent", "stream", name, "time", relayPatience)).After(RetryLog)
	}
	return relayStreams{of: of, all: all, changed: make(chan struct{})}
}

// ofStream reports whether a row was refused for the stream that it belongs to: others may have room.
func ofStream(r *Refusal) bool {
	switch r.ErrCode {
	case CauseFull, CauseLogDown, causeLogFull, causeOutcome:
		return true
	}
	return false
}

// free reports whether rows can be handed in.
func (s *relayStream) free(now time.Time) bool { return !s.slow && !s.until.After(now) }

// others reports whether rows of another stream than that of an id can be handed in.
func (all *relayStreams) others(id string) bool {
	own, now := all.of(id), time.Now()
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range all.all {
		if i != own && all.all[i].free(now) {
			return true
		}
	}
	return false
}

// rest is how long all streams rest that are not late; most, if all are.
func (all *relayStreams) rest(most time.Duration) time.Duration {
	now, least := time.Now(), time.Duration(-1)
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range all.all {
		if s := &all.all[i]; !s.slow {
			if d := max(0, s.until.Sub(now)); least < 0 || d < least {
				least = d
			}
		}
	}
	if least < 0 {
		return most
	}
	return least
}

// handed counts the rows of a take that are not answered.
type handed struct {
	streams *relayStreams
	of      []int // by stream
	all     int
}

// begin counts the rows that are to be handed in, and answers the others.
func (all *relayStreams) begin(rows []Written, answers []Answer) *handed {
	h := &handed{streams: all, of: make([]int, len(all.all))}
	now := time.Now()
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range rows {
		w := &rows[i]
		if w.Unfit != nil {
			answers[i].Err = w.Unfit
			continue
		}
		n := all.of(w.Request.ID)
		switch s := &all.all[n]; {
		case s.slow:
			answers[i].Err = s.slowRefusal
		case !s.free(now):
			answers[i].Err = s.why
		default:
			h.of[n]++
			h.all++
		}
	}
	return h
}

// answered counts an answer. A stream that refused rests for as long as it asks, and least at least.
func (h *handed) answered(id string, refused *Refusal, least time.Duration) {
	n := h.streams.of(id)
	h.streams.mu.Lock()
	defer h.streams.mu.Unlock()
	s := &h.streams.all[n]
	if refused != nil && ofStream(refused) {
		s.until, s.why = time.Now().Add(min(max(refused.Retry, least), relayRestMax)), refused
	}
	h.all--
	if h.of[n]--; h.of[n] == 0 {
		s.slow = false
		close(h.streams.changed)
		h.streams.changed = make(chan struct{})
	}
}

// wait waits for every answer. It calls late, once, when only streams are waited for that are late, and another is not.
func (h *handed) wait(late func()) {
	timer := time.NewTimer(relayPatience)
	defer timer.Stop()
	patient, told := true, false
	for {
		done, others, changed := h.check(!patient)
		if done {
			return
		}
		if !patient && others && !told {
			late()
			told = true
		}
		select {
		case <-changed:
		case <-timer.C:
			patient = false
		}
	}
}

// check reports whether all is answered, and whether there is a stream that is not late; with overdue those that are waited
// for are.
func (h *handed) check(overdue bool) (done, others bool, changed <-chan struct{}) {
	all := h.streams
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range all.all {
		s := &all.all[i]
		s.slow = s.slow || overdue && h.of[i] > 0
		others = others || !s.slow
	}
	return h.all == 0, others, all.changed
}
