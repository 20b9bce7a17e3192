package natsbus

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// The kinds of streams that messages are published to.
const (
	kindTasks = iota
	kindControl
	kindEvents
	kindDead
	kindNodes
	kindAlerts
	kinds
	kindNone = -1
)

// outcomes is how publishing to a stream goes.
type outcomes struct {
	// failing spares the lock while all is well.
	failing atomic.Bool

	mu   sync.Mutex
	last failure
}

// failure is that a stream does not accept messages; zero: it does.
type failure struct {
	// since is when the first publish failed, seen when the newest did.
	since, seen time.Time
	err         error // of the newest
	// unanswered counts confirmations in a row that did not come.
	unanswered int
}

// note takes the outcome of one publish. A failure of the connection is not counted against the stream.
func (o *outcomes) note(err error) {
	if err == nil {
		if o.failing.Load() {
			o.clear()
		}
		return
	}
	for _, connection := range [...]error{nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, ErrClosed, context.Canceled} {
		if errors.Is(err, connection) {
			return // not the stream's trouble
		}
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last.since.IsZero() {
		o.last.since = now
	}
	o.last.seen, o.last.err = now, err
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		o.last.unanswered++
	} else {
		o.last.unanswered = 0
	}
	o.failing.Store(true)
}

// clear forgets the failure: publishing works again, or the failure is too old to count.
func (o *outcomes) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = failure{}
	o.failing.Store(false)
}

// failed returns the present failure.
func (o *outcomes) failed() failure {
	if !o.failing.Load() {
		return failure{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// publish publishes to a stream of a kind and notes the outcome. done is called once, see acks.publish.
func (c *Conn) publish(kind int, subject string, header nats.Header, data []byte, done func(seq uint64, err error)) {
	c.acks.publish(subject, header, data, func(seq uint64, err error) {
		c.outcomes[kind].note(err)
		done(seq, err)
	})
}

// apiCode returns JetStream's error code, of a publish or a request; 0: the error is not JetStream's.
func apiCode(err error) int {
	var wire *wire.APIError
	if errors.As(err, &wire) {
		return wire.ErrCode
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return int(api.ErrorCode)
	}
	return 0
}
