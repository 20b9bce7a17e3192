package group

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Msg is a message of the stream.
type Msg struct {
	Partition int
	Subject   string
	Header    nats.Header
	Data      []byte
	Seq       uint64    // in the stream
	Time      time.Time // when the stream got it
}

// kinds of an item.
const (
	isMsg  = iota
	isMark // nothing of the partition is between the item before and this one
	isGap  // what was between them is gone
)

// item is one thing that a partition has to deal with, in the order of the stream.
type item struct {
	kind  int
	msg   Msg    // of isMsg
	first uint64 // of isGap
	to    position
	size  int
}

// sizeOf is what a message counts for, in bytes.
func sizeOf(m Msg) int {
	n := len(m.Subject) + len(m.Data)
	for key, values := range m.Header {
		for _, v := range values {
			n += len(key) + len(v)
		}
	}
	return n
}

// queue is what a partition has read and not yet handled: from one feed to one worker.
type queue struct {
	count, bytes int // room

	mu     sync.Mutex
	items  []item
	size   int
	next   position // of the last item that was put in
	behind bool     // something after next was not put in, as there was no room
	stuck  bool     // the worker is in trouble: a feed that has other partitions does not wait for it

	ready chan struct{} // has an element when there is an item
	space chan struct{} // has an element when there may be room
}

func newQueue(at position, count, bytes int) *queue {
	return &queue{count: count, bytes: bytes, next: at, ready: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is pending
	}
}

// What became of an item that was offered.
type taken int

const (
	taking taken = iota // it is in, or was before
	full                // there is no room
	left                // there is none, and it is not waited for: a read from next begins again once there is
)

// offer puts an item in, if there is room.
func (q *queue) offer(it item, shared bool) taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case it.to.seq <= q.next.seq:
		return taking
	case q.behind:
		return left
	case len(q.items) >= q.count || len(q.items) > 0 && q.size+it.size > q.bytes:
		if it.kind == isMark { // the next one will do
			return taking
		}
		if shared && q.stuck {
			q.behind = true
			return left
		}
		return full
	}
	q.items, q.size, q.next = append(q.items, it), q.size+it.size, it.to
	signal(q.ready)
	return taking
}

// head are the first items that go into one batch, not removed: a gap by itself, or messages and marks.
func (q *queue) head(count, bytes int) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, msgs, size := 0, 0, 0
	for _, it := range q.items {
		if it.kind == isGap {
			if n == 0 {
				n = 1
			}
			break
		}
		if it.kind == isMsg {
			if msgs == count || msgs > 0 && size+it.size > bytes {
				break
			}
			msgs, size = msgs+1, size+it.size
		}
		n++
	}
	return q.items[:n:n]
}

// done removes the first n items; rewind says that a feed must read again what was left out.
func (q *queue) done(n int) (rewind bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range n {
		q.size -= q.items[i].size
		q.items[i] = item{}
	}
	q.items = q.items[n:]
	if len(q.items) == 0 {
		q.items = nil
	}
	q.stuck = false
	signal(q.space)
	return q.behind && len(q.items) <= q.count/2
}

// trouble says that the worker cannot go on for now.
func (q *queue) trouble() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stuck = true
	signal(q.space)
}

// from is where a feed begins for this partition; ok is false while it would have no room.
func (q *queue) from() (at position, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.behind && q.stuck {
		return q.next, false
	}
	q.behind = false
	return q.next, true
}

// seen is up to where the partition has all of its messages, of a feed that has read up to read.
func (q *queue) seen(read uint64) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.behind {
		return q.next.seq
	}
	return max(q.next.seq, read)
}

// position is that of the last item.
func (q *queue) position() position {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next
}
