package scheduler

import "duly.dev/duly/internal/core"

// indexed is a heap whose elements know their index in it, so that any of them can be moved or removed.
type indexed[T placed[T]] []T

// placed is an element of an indexed heap. putAt tells it its index; -1: it has left the heap.
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

// waker remembers the earliest instant at which somebody wants a round. It need not say why: every round goes over all
// agents at which something is parked. Only tasks that stand aside for a key are not looked at in every round; see
// keyCalls.reopen.
type waker struct{ lookAt core.Instant } // 0: nobody wants one

// wake asks for a round at an instant, unless one is wanted earlier.
func (w *waker) wake(at core.Instant) { w.lookAt = earlier(w.lookAt, at) }

// due reports whether the wanted round is this one, and forgets it if so.
func (w *waker) due(now core.Instant) bool {
	if w.lookAt == 0 || now < w.lookAt {
		return false
	}
	w.lookAt = 0
	return true
}

// setBack shifts the instant when the machine's clock was set back, so that the round does not wait out the
// difference.
func (w *waker) setBack(by core.Instant) {
	if w.lookAt != 0 {
		w.wake(w.lookAt + by)
	}
}

// earlier returns the earlier of two instants, where 0 means never.
func earlier(a, b core.Instant) core.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// signal wakes the one goroutine that waits for it. Sending twice before it is received counts once.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// set sends the signal. It never blocks: if one is pending already, that one is enough.
func (s signal) set() {
	select {
	case s <- struct{}{}:
	default: // it is pending
	}
}
