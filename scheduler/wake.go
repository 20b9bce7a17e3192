package scheduler

import (
	"cmp"
	"container/heap"

	"duly.dev/duly/internal/core"
)

// indexed is a heap of what knows its place in it, so that one can be moved or removed.
type indexed[T placed[T]] []T

type placed[T any] interface {
	before(T) bool
	putAt(place int)
}

func (h indexed[T]) Len() int           { return len(h) }
func (h indexed[T]) Less(i, j int) bool { return h[i].before(h[j]) }

func (h indexed[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].putAt(i)
	h[j].putAt(j)
}

// Push implements heap.Interface.
func (h *indexed[T]) Push(x any) {
	one := x.(T)
	one.putAt(len(*h))
	*h = append(*h, one)
}

// Pop implements heap.Interface.
func (h *indexed[T]) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	one.putAt(-1)
	return one
}

// waker says when a round is wanted. Every round looks at each agent at which something is parked, so there is nothing else
// to say; for what stands aside see keyCalls.opened.
type waker struct{ lookAt core.Instant } // 0: when something else happens

// wake wants a round at an instant.
func (w *waker) wake(at core.Instant) { w.lookAt = earlier(w.lookAt, at) }

// due reports, once, whether the round that is wanted is this one.
func (w *waker) due(now core.Instant) bool {
	if w.lookAt == 0 || now < w.lookAt {
		return false
	}
	w.lookAt = 0
	return true
}

// setBack moves the instant with a clock that is set back.
func (w *waker) setBack(by core.Instant) {
	if w.lookAt != 0 {
		w.wake(w.lookAt + by)
	}
}

// earlier is the earlier of two times of which 0 means none.
func earlier(a, b core.Instant) core.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// wakeHeap are the tasks in flight that are to be woken, the earliest first.
type wakeHeap = indexed[*entry]

func (e *entry) putAt(place int) { e.wakeAt = place }

// before: of equals the order is that of their numbers, so that one run is as the other.
func (e *entry) before(o *entry) bool {
	return cmp.Or(cmp.Compare(e.wakes, o.wakes), cmp.Compare(e.task.Partition, o.task.Partition), cmp.Compare(e.task.Number, o.task.Number)) < 0
}

// wake wakes a task in flight at an instant, unless it is woken before: what is due later is found then.
func (p *partition) wake(e *entry, at core.Instant) {
	switch {
	case p.wakes == nil || p.tasks[e.task.Number] != e: // it is forgotten
	case e.wakes == 0:
		e.wakes = at
		heap.Push(p.wakes, e)
	case at < e.wakes:
		e.wakes = at
		heap.Fix(p.wakes, e.wakeAt)
	}
}

// unwake forgets when a task is to be woken.
func (p *partition) unwake(e *entry) {
	if e.wakes != 0 {
		heap.Remove(p.wakes, e.wakeAt)
		e.wakes = 0
	}
}

// signal says that there is something to look at, to the one goroutine that waits for it.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// set gives the signal. It does not block: one that is pending is enough.
func (s signal) set() {
	select {
	case s <- struct{}{}:
	default: // it is pending
	}
}
