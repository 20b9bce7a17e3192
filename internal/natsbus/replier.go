package natsbus

import (
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// replier sends an agent's replies from one goroutine. Replies that are ready at the same time leave
// together: in one message, if the asker takes batches, and otherwise in one write to the network.
type replier struct {
	nc *nats.Conn
	// from is the header of every reply that names the instance; nil: it has no name.
	from nats.Header
	// wake has an element when something is ready.
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	closed  bool
	singles []single
	// batches holds open batches by the subject that receives them.
	batches map[string]*batchIn
	// empty is memory for the next singles.
	empty  []single
	failed func(error)
}

// single is one message that is ready.
type single struct {
	subject string
	header  nats.Header
	data    []byte
}

// batchIn collects replies to one sender of batches.
type batchIn struct {
	buf   []byte
	items int
}

// newReplier makes the sender of answers and starts it. Each answer names the instance from, unless that is empty.
// failed gets errors of sending.
func newReplier(nc *nats.Conn, from string, failed func(error)) *replier {
	r := &replier{nc: nc, wake: make(chan struct{}, 1), done: make(chan struct{}), batches: map[string]*batchIn{}, failed: failed}
	if from != "" {
		r.from = nats.Header{wire.HeaderInstance: {from}}
	}
	go r.run()
	return r
}

// send queues one message. data must not change afterwards.
func (r *replier) send(subject string, header nats.Header, data []byte) {
	r.mu.Lock()
	r.singles = append(r.singles, single{subject, header, data})
	r.unlockWake()
}

// add queues one reply for a batch. A full batch is published at once, by the caller: that bounds what waits
// here, and slows down an agent that is faster than the network.
func (r *replier) add(subject string, c *core.Command, token core.Token, reply *core.Reply) {
	subject = wire.BatchAnswerSubject(subject)
	r.mu.Lock()
	b := r.batches[subject]
	if b == nil {
		b = &batchIn{buf: []byte{wire.BatchVersion}}
		r.batches[subject] = b
	}
	was := len(b.buf)
	b.buf = wire.AppendBatchReply(b.buf, c, token, reply)
	var full [][]byte
	if b.items > 0 && len(b.buf)+headerBytes(r.from) > int(r.nc.MaxPayload()) { // NATS would take none of them
		full = append(full, b.buf[:was])
		b.buf, b.items = append([]byte{wire.BatchVersion}, b.buf[was:]...), 0
	}
	b.items++
	if b.items >= wire.BatchItemsMax || len(b.buf) >= wire.BatchBytesMax {
		delete(r.batches, subject)
		full = append(full, b.buf)
	}
	r.unlockWake()
	for _, data := range full {
		r.publish(subject, nil, data)
	}
}

// unlockWake unlocks and wakes the goroutine; after close it publishes by itself.
func (r *replier) unlockWake() {
	closed := r.closed
	if !closed {
		select {
		case r.wake <- struct{}{}:
		default: // a wake is pending
		}
	}
	r.mu.Unlock()
	if closed {
		r.flush() // run has ended
	}
}

// run publishes what is ready until close.
func (r *replier) run() {
	defer close(r.done)
	pause := time.NewTimer(replyGap)
	defer pause.Stop()
	for range r.wake {
		// Handlers that can run now do so first; their replies go along.
		runtime.Gosched()
		if r.flush() < replyBusy {
			continue
		}
		pause.Reset(replyGap)
		<-pause.C
	}
}

// After replyBusy replies at once the agent is busy and more will follow: they are collected for replyGap. Each write to the
// network that this saves is also one less for the server and the scheduler.
const (
	replyBusy = 4
	replyGap  = time.Millisecond
)

// flush publishes what is ready and returns how many replies that was.
func (r *replier) flush() int {
	r.mu.Lock()
	singles := r.singles
	r.singles, r.empty = r.empty[:0], nil
	var batches map[string]*batchIn
	if len(r.batches) > 0 {
		batches, r.batches = r.batches, make(map[string]*batchIn, len(r.batches))
	}
	r.mu.Unlock()
	n := len(singles)
	for i := range singles {
		r.publish(singles[i].subject, singles[i].header, singles[i].data)
	}
	for subject, b := range batches {
		r.publish(subject, nil, b.buf)
		n += b.items
	}
	clear(singles)
	r.mu.Lock()
	r.empty = singles
	r.mu.Unlock()
	return n
}

// publish publishes one message, with the instance's name.
func (r *replier) publish(subject string, header nats.Header, data []byte) {
	var err error
	switch {
	case header == nil:
		header = r.from
	case r.from != nil:
		header[wire.HeaderInstance] = r.from[wire.HeaderInstance]
	}
	if header == nil {
		err = r.nc.Publish(subject, data)
	} else {
		err = r.nc.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: data})
	}
	if err != nil {
		r.failed(publishError(err))
	}
}

// close publishes what is ready and ends the goroutine. Later replies are published by their callers.
func (r *replier) close() {
	r.mu.Lock()
	r.closed = true
	close(r.wake)
	r.mu.Unlock()
	<-r.done
	r.flush()
}
