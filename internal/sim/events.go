package sim

import (
	"time"

	"duly.dev/duly/internal/core"
)

// event is something that happens at a time; seq keeps the order of those that
// happen at the same time.
type event struct {
	at  core.Instant
	seq int
	do  func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// eventHeap is a binary heap by time; container/heap would box every event.
type eventHeap []event

func (h *eventHeap) push(e event) {
	s := append(*h, e)
	*h = s
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(&s[up]) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *eventHeap) pop() event {
	s := *h
	first, last := s[0], len(s)-1
	s[0], s[last] = s[last], event{}
	s = s[:last]
	*h = s
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(s); c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if least == i {
			return first
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

// after makes something happen in d.
func (w *World) after(d time.Duration, do func()) {
	w.seq++
	w.events.push(event{at: w.now.Add(d), seq: w.seq, do: do})
}

// step lets the next thing happen.
func (w *World) step() {
	e := w.events.pop()
	w.now = max(w.now, e.at)
	w.steps++
	e.do()
}

// every makes something happen again and again.
func (w *World) every(d time.Duration, do func()) {
	w.after(d, func() {
		do()
		w.every(d, do)
	})
}

// upTo draws a duration below d.
func (w *World) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rand.Int64N(int64(d)))
}

// delay draws how long the network takes: mostly little, in the storm sometimes
// longer than any time-out.
func (w *World) delay() time.Duration {
	if w.fault(NetworkSlow) {
		return w.upTo(2 * time.Second)
	}
	return w.upTo(4 * time.Millisecond)
}
