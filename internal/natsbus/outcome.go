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

// The streams that are published to, by kind.
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
	failing atomic.Bool // spares the lock while all is well

	mu   sync.Mutex
	last failure
}

// failure is a stream that takes nothing; the zero value: it does.
type failure struct {
	since, seen time.Time // the first and the newest publish that failed
	err         error     // of the newest
	unanswered  int       // confirmations that did not come, in a row
}

// note records the outcome of one publish.
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

// failed is how it fails now.
func (o *outcomes) failed() failure {
	if !o.failing.Load() {
		return failure{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// publish publishes to a stream and notes the outcome.
func (c *Conn) publish(kind int, subject string, header nats.Header, data []byte, done func(seq uint64, err error)) {
	c.acks.publish(subject, header, data, func(seq uint64, err error) {
		c.outcomes[kind].note(err)
		done(seq, err)
	})
}

// apiCode is the JetStream error code of a publish or a request that was refused, or 0.
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
