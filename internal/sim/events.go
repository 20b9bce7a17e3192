package sim

import (
	"container/heap"
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

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// after makes something happen in d.
func (w *World) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{at: w.now.Add(d), seq: w.seq, do: do})
}

// step lets the next thing happen.
func (w *World) step() {
	e := heap.Pop(&w.events).(event)
	w.now = max(w.now, e.at)
	e.do()
}

// every makes something happen again and again.
func (w *World) every(d time.Duration, do func()) {
	w.after(d, func() {
		do()
		w.every(d, do)
	})
}

// fault draws whether a fault of probability p happens; in the calm none does.
func (w *World) fault(p float64) bool { return w.storm && w.rand.Float64() < p }

// upTo draws a duration below d.
func (w *World) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rand.Int64N(int64(d)))
}

// delay draws how long the network takes: mostly little, in the storm sometimes
// longer than any time-out.
func (w *World) delay() time.Duration {
	if w.fault(0.03) {
		return w.upTo(2 * time.Second)
	}
	return w.upTo(4 * time.Millisecond)
}
