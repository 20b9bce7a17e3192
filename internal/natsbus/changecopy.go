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

// copyWindow is how many messages are on their way to another stream at a time.
const copyWindow = 256

// copyPatience is how long the next message may take: the last one may have grown too old
// since it was looked at.
const copyPatience = 30 * time.Second

// copies publishes messages to other streams, in their order, a window of them at a time.
type copies struct {
	conn   *Conn
	window chan struct{}

	mu  sync.Mutex
	err error // of the first that was not stored
}

// failed is why a message was not stored; nil: all so far were.
func (w *copies) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// add publishes one message when the window has room.
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

// wait returns when nothing is on its way any more.
func (w *copies) wait() error {
	for range cap(w.window) {
		w.window <- struct{}{}
	}
	return w.failed()
}

// copy brings what a stream has of a partition after a position into the partition's stream.
// It returns how many messages that were.
func (ch *Change) copy(ctx context.Context, lane int, from jetstream.Stream, partition int, after uint64) (int, error) {
	filter := ch.lanes[lane].filter(partition)
	last, err := from.GetLastMsgForSubject(ctx, filter)
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

// emptyDoor brings what is left in the stream of the stream endpoint into the first task
// stream, and removes it. It is the last to move: what is read before it is older.
func (ch *Change) emptyDoor(ctx context.Context) error {
	name := ch.conn.names.StreamIn()
	w := &copies{conn: ch.conn, window: make(chan struct{}, copyWindow)}
	for after := uint64(0); ; {
		msg, err := ch.door.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(ch.conn.names.PatternSingles()))
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
	ch.door = nil
	return nil
}
