package scheduler

import "duly.dev/duly/internal/core"

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
