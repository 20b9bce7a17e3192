package natsbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// How submissions at the stream endpoint reach the streams of their partitions.
const (
	forwardBatch   = 256              // messages forwarded at a time
	forwardWait    = 5 * time.Second  // how long to wait for the first one
	forwardAckWait = 30 * time.Second // one that is not acknowledged is delivered again after this
	forwardAgain   = time.Second      // after a failure
	forwardRest    = 5 * time.Second  // for which nothing is offered to a task stream that took nothing
)

// errRests says that a message was not offered to its task stream, which took nothing a moment ago.
var errRests = errors.New("its task stream took nothing a moment ago")

// rests are the task streams that took nothing a moment ago, by number. The messages of one of these come again later, and hold
// up none of the others'.
type rests struct {
	mu    sync.Mutex
	until [wire.TaskStreamsMax]time.Time
}

// begin lets a task stream rest.
func (r *rests) begin(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until[number] = time.Now().Add(forwardRest)
}

// has reports whether a task stream rests.
func (r *rests) has(number int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[number])
}

// ForwardIn moves submissions from the stream endpoint into the task streams of their partitions, until ctx
// ends. Every scheduler does it if there are several task streams. A message that is stored twice, because
// its confirmation was lost, becomes one task. Failures are retried and reported as TroubleReaders.
func (c *Conn) ForwardIn(ctx context.Context) {
	key := new(rests) // of this call
	defer c.tries.note(TroubleReaders, key, nil)
	for ctx.Err() == nil {
		err := c.forward(ctx, key)
		if ctx.Err() != nil {
			return
		}
		c.tries.note(TroubleReaders, key, fmt.Errorf("stream %s: %w", c.names.StreamIn(), err))
		_ = pause.For(ctx, forwardAgain) // the loop looks whether ctx has ended
	}
}

// forward moves submissions until something fails.
func (c *Conn) forward(ctx context.Context, resting *rests) error {
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, c.names.StreamIn(), jetstream.ConsumerConfig{
		Durable: wire.ConsumerForward, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, AckWait: forwardAckWait, DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxAckPending: -1, // else those of one stream that takes nothing would in the end keep all others back
	})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, forwardWait)
		batch, err := consumer.Fetch(forwardBatch, jetstream.FetchContext(bounded))
		if err != nil {
			cancel()
			return err
		}
		var sent sync.WaitGroup
		var mu sync.Mutex
		var failed error
		rested := false
		for msg := range batch.Messages() {
			sent.Add(1)
			c.forwardOne(ctx, msg, resting, func(err error) {
				defer sent.Done()
				if err == nil {
					err = msg.Ack()
				}
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, errRests) {
					rested = true
					return
				}
				failed = errors.Join(failed, err)
			})
		}
		cancel()
		// Each is confirmed or given up within the time of a confirmation. A message that is not acknowledged comes
		// again; its task is recognised by the id.
		sent.Wait()
		if err := errors.Join(failed, batch.Error()); err != nil && !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if !rested {
			c.tries.note(TroubleReaders, resting, nil)
		}
	}
	return nil
}

// forwardOne publishes one message to its partition's stream, unless that rests. A message that is too large for that becomes a
// dead letter; otherwise it would come again for ever.
func (c *Conn) forwardOne(ctx context.Context, msg jetstream.Msg, resting *rests, done func(error)) {
	meta, err := msg.Metadata()
	if err != nil {
		done(err)
		return
	}
	partition, _, _, err := c.names.ParseIn(msg.Subject())
	if err != nil {
		done(err) // the stream's own transform made it
		return
	}
	room := c.MaxPayload() - len(msg.Data())
	header := movedHeaders(msg.Headers(), core.InstantOf(meta.Timestamp), room)
	if need := headerBytes(header); need > room {
		cause := fmt.Sprintf("it has %d bytes, NATS takes %d", need+len(msg.Data()), c.MaxPayload())
		done(c.Dead(ctx, c.names.StreamIn(), msg.Subject(), msg.Data(), cause, wire.Header(header)))
		return
	}
	number := c.streamOf(partition)
	if resting.has(number) {
		done(errRests)
		return
	}
	c.publish(taskKind(number), msg.Subject(), header, msg.Data(), func(_ uint64, err error) {
		if err != nil {
			resting.begin(number)
		}
		done(err)
	})
}

// movedHeaders returns the headers for a copy of a message in another stream: without those that the server
// acts on, and with the time at which it was first stored. If that header does not fit in room bytes it is
// left out, and the message counts as stored when it is copied.
func movedHeaders(header nats.Header, at core.Instant, room int) nats.Header {
	h := maps.Clone(header)
	if h == nil {
		h = nats.Header{}
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.HasPrefix(name, "Nats-") })
	h[wire.HeaderStored] = []string{at.Time().Format(time.RFC3339Nano)}
	if headerBytes(h) > room {
		delete(h, wire.HeaderStored)
	}
	return h
}

// headerBytes returns the length of headers in a message.
func headerBytes(header nats.Header) int {
	if len(header) == 0 {
		return 0
	}
	n := len("NATS/1.0\r\n\r\n")
	for name, values := range header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}
