package natsbus

import (
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// replier sends an agent's replies from one goroutine. What is ready at the same
// time goes out together: several replies in one message where the asker takes
// that, and in any case in one write to the network.
type replier struct {
	nc   *nats.Conn
	from nats.Header   // of every reply: the instance that answers; nil: it has no name
	wake chan struct{} // has an element when something is ready
	done chan struct{}

	mu      sync.Mutex
	closed  bool
	singles []single
	batches map[string]*batchIn // by the subject that takes the answers to an asker's batches
	empty   []single            // a list that can be used again
	failed  func(error)
}

// single is one message that is ready.
type single struct {
	subject string
	header  nats.Header
	data    []byte
}

// batchIn are replies to one sender of batches.
type batchIn struct {
	buf   []byte
	items int
}

func newReplier(nc *nats.Conn, from string, failed func(error)) *replier {
	r := &replier{nc: nc, wake: make(chan struct{}, 1), done: make(chan struct{}), batches: map[string]*batchIn{}, failed: failed}
	if from != "" {
		r.from = nats.Header{wire.HeaderInstance: {from}}
	}
	go r.run()
	return r
}

// send takes one message. data must not change any more.
func (r *replier) send(subject string, header nats.Header, data []byte) {
	r.mu.Lock()
	r.singles = append(r.singles, single{subject, header, data})
	r.unlockWake()
}

// add takes one reply for a batch. A full batch goes out at once: that bounds what waits
// here, and slows down an agent that is faster than the network.
func (r *replier) add(subject string, c *core.Command, token core.Token, reply *core.Reply) {
	subject = wire.BatchAnswerSubject(subject)
	r.mu.Lock()
	b := r.batches[subject]
	if b == nil {
		b = &batchIn{buf: []byte{wire.BatchVersion}}
		r.batches[subject] = b
	}
	b.buf = wire.AppendBatchReply(b.buf, c, token, reply)
	b.items++
	if b.items >= wire.BatchItemsMax || len(b.buf) >= wire.BatchBytesMax {
		delete(r.batches, subject)
		r.mu.Unlock()
		r.publish(subject, nil, b.buf)
		return
	}
	r.unlockWake()
}

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

// An agent that answered as many at once is busy: more are on their way, and
// wait for one another that long. Each write to the network that this emptys is
// one less for the server, and for the scheduler, too.
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

// close publishes what is ready and ends the goroutine. A reply that comes later is
// published by its caller.
func (r *replier) close() {
	r.mu.Lock()
	r.closed = true
	close(r.wake)
	r.mu.Unlock()
	<-r.done
	r.flush()
}
