package ingest

import "sync"

// queue hands values from any goroutine to the one that owns the door. It is a
// slice under a mutex, swapped for an empty one when it is taken: a channel
// would cost a handover for each value.
type queue[T any] struct {
	mu     sync.Mutex
	items  []T
	closed bool
	wake   func() // called when the queue stops being empty; may be nil
}

// put appends v. false: the queue is closed.
func (q *queue[T]) put(v T) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.items = append(q.items, v)
	first := len(q.items) == 1
	q.mu.Unlock()
	if first && q.wake != nil {
		q.wake()
	}
	return true
}

// take returns what is queued. Later values go into the memory of spare.
func (q *queue[T]) take(spare []T) []T {
	clear(spare)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return spare[:0]
	}
	items := q.items
	q.items = spare[:0]
	return items
}

// empty reports whether nothing is queued.
func (q *queue[T]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}

// close refuses later values. What is queued stays to be taken.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
