package ingest

import (
	"sync"
	"time"

	"duly.dev/duly/internal/say"
)

// relayStreams knows which task streams take rows now. It is shared by the takes of a relay.
type relayStreams struct {
	// of is the number of the stream of an id.
	of func(id string) int

	mu  sync.Mutex
	all []relayStream
	// changed is closed and replaced whenever a stream has answered all rows of a take.
	changed chan struct{}
}

// relayStream is one of them. While it is slow or rests, its rows are not submitted.
type relayStream struct {
	// slow: a take has waited for it for relayPatience, and still does. No other take has rows there, so at
	// most as many takes run at once as there are streams.
	slow bool
	// slowRefusal is what its rows get meanwhile.
	slowRefusal *Refusal
	// until is the end of its rest, and why the refusal that led to it.
	until time.Time
	why   *Refusal
}

func newRelayStreams(names []string, of func(id string) int) relayStreams {
	all := make([]relayStream, len(names))
	for i, name := range names {
		all[i].slowRefusal = Refuse(503, CauseLogDown, "%s", say.Of("refuse.relay-silent", "stream", name, "time", relayPatience)).After(RetryLog)
	}
	return relayStreams{of: of, all: all, changed: make(chan struct{})}
}

// ofStream reports whether a refusal is about the row's stream only, so that rows of other streams may go
// through.
func ofStream(r *Refusal) bool {
	switch r.ErrCode {
	case CauseFull, CauseLogDown, causeLogFull, causeOutcome:
		return true
	}
	return false
}

// free reports whether rows can be submitted.
func (s *relayStream) free(now time.Time) bool { return !s.slow && !s.until.After(now) }

// others reports whether rows of any other stream than id's can be submitted.
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

// rest is the shortest rest of the streams that are not slow; most, if all are slow.
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

// handed counts the rows of one take that are not answered yet.
type handed struct {
	streams *relayStreams
	// of has the count for each stream.
	of []int
	// all is the sum.
	all int
}

// begin counts the rows to be submitted, which are those without an answer. To the others it gives theirs at once.
func (all *relayStreams) begin(rows []Written, answers []Answer) *handed {
	h := &handed{streams: all, of: make([]int, len(all.all))}
	now := time.Now()
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range rows {
		w := &rows[i]
		if w.Unfit != nil {
			answers[i].Err = w.Unfit
		}
		if answers[i].Err != nil {
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

// answered counts an answer. A stream that refuses because of itself rests for as long as the refusal says,
// at least for least.
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

// wait returns when every row is answered. Meanwhile, once only slow streams are waited for and another
// stream takes rows, it calls late, once.
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

// check reports whether all rows are answered, and whether any stream is not slow. With overdue it first
// marks the streams that are waited for as slow.
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
