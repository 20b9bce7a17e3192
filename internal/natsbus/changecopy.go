package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// copyWindow is how many copied messages may be unconfirmed at a time.
const copyWindow = 256

// copyPatience bounds the wait for the next message: the last one may have expired since it was looked up.
const copyPatience = 30 * time.Second

// copies publishes messages to other streams, in order, with a window of unconfirmed ones.
type copies struct {
	conn   *Conn
	window chan struct{}

	mu sync.Mutex
	// err is the first failure.
	err error
}

// failed returns the first failure; nil: all messages so far were stored.
func (w *copies) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// add publishes one message as soon as the window has room.
func (w *copies) add(subject string, header nats.Header, at core.Instant, data []byte) error {
	w.window <- struct{}{} // a confirmation comes, or its time is over
	if err := w.failed(); err != nil {
		<-w.window
		return err
	}
	h := movedHeaders(header, wire.StoredAt(wire.Header(header), at), w.conn.MaxPayload()-len(data))
	w.conn.acks.publish(w.conn.names.Moved(subject), h, data, func(_ uint64, err error) {
		w.mu.Lock()
		if w.err == nil {
			w.err = err
		}
		w.mu.Unlock()
		<-w.window
	})
	return nil
}

// wait returns when every message is confirmed or has failed.
func (w *copies) wait() error {
	for range cap(w.window) {
		w.window <- struct{}{}
	}
	return w.failed()
}

// copy copies a partition's messages after a position from one stream into the partition's new stream, and
// returns how many there were.
func (ch *Change) copy(ctx context.Context, lane int, from jetstream.Stream, partition int, after uint64) (int, error) {
	filter := ch.lanes[lane].filter(partition)
	last, err := from.GetLastMsgForSubject(ctx, filter)
	// Writing to the stream has stopped, so its last message is the end of the copy.
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && last.Sequence <= after {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("last message: %w", err)
	}
	consumer, err := from.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
	})
	if err != nil {
		return 0, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	w := &copies{conn: ch.conn, window: make(chan struct{}, copyWindow)}
	n := 0
	for {
		bounded, cancel := context.WithTimeout(ctx, copyPatience)
		msg, err := messages.Next(jetstream.NextContext(bounded))
		cancel()
		if err != nil {
			return n, errors.Join(err, w.wait())
		}
		meta, err := msg.Metadata()
		if err != nil {
			return n, errors.Join(err, w.wait())
		}
		if meta.Sequence.Stream > last.Sequence {
			break // the last one has gone meanwhile
		}
		if err := w.add(msg.Subject(), msg.Headers(), core.InstantOf(meta.Timestamp), msg.Data()); err != nil {
			return n, errors.Join(err, w.wait())
		}
		n++
		if meta.Sequence.Stream == last.Sequence {
			break
		}
	}
	return n, w.wait()
}

// emptyIn copies what is left in the stream of the stream endpoint into the first task stream, and removes
// it. It is the last to be copied, because everything else is older.
func (ch *Change) emptyIn(ctx context.Context) error {
	name := ch.conn.names.StreamIn()
	w := &copies{conn: ch.conn, window: make(chan struct{}, copyWindow)}
	for after := uint64(0); ; {
		msg, err := ch.in.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(ch.conn.names.PatternSingles()))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err == nil {
			after = msg.Sequence
			err = w.add(msg.Subject, msg.Header, core.InstantOf(msg.Time), msg.Data)
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, errors.Join(err, w.wait()))
		}
	}
	if err := w.wait(); err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	if err := ch.conn.js.DeleteStream(ctx, name); err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	ch.in = nil
	return nil
}
