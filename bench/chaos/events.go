package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

const (
	// quietMax is how long the reader of the event stream waits for an answer or a next
	// message before it begins again: a consumer that a cluster made while it settled may
	// be mute, and the library takes ten seconds to see it.
	quietMax = 5 * time.Second
	// eventsMax is how long it may take altogether, eventsAgain the pause between.
	eventsMax   = time.Minute
	eventsAgain = 100 * time.Millisecond
)

// eventReader reads what the event stream has told by now, once.
type eventReader struct {
	js    jetstream.JetStream
	quiet time.Duration

	read, last uint64                // positions in the stream; no last: not asked for yet
	told       map[string]core.State // by id, as it was told last
}

// readEvents gives how all tasks have ended whose ends are in the event stream, by id. again is
// called with the reason each time the reading begins again.
func readEvents(ctx context.Context, nc *nats.Conn, quiet time.Duration, again func(error)) (map[string]core.State, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, eventsMax)
	defer cancel()
	r := &eventReader{js: js, quiet: quiet, told: map[string]core.State{}}
	for {
		err := r.on(ctx)
		if err == nil {
			return r.told, nil
		}
		err = fmt.Errorf("events: %d of %d read: %w", r.read, r.last, err)
		if errors.Is(err, wire.ErrUndecodable) {
			return nil, err
		}
		again(err)
		if pause(ctx, eventsAgain) != nil {
			return nil, err
		}
	}
}

// on reads on from where it stands until it has all that was there when it began.
func (r *eventReader) on(ctx context.Context) error {
	step, cancel := context.WithTimeout(ctx, r.quiet)
	defer cancel()
	stream, err := r.js.Stream(step, wire.Names{}.StreamEvents())
	if err != nil {
		return err
	}
	if r.last == 0 {
		r.last = stream.CachedInfo().State.LastSeq
	}
	if r.read >= r.last {
		return nil
	}
	consumer, err := stream.OrderedConsumer(step, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.read + 1})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for r.read < r.last {
		if err := r.next(ctx, messages); err != nil {
			return err
		}
	}
	return nil
}

// next takes one message.
func (r *eventReader) next(ctx context.Context, messages jetstream.MessagesContext) error {
	step, cancel := context.WithTimeout(ctx, r.quiet)
	defer cancel()
	m, err := messages.Next(jetstream.NextContext(step))
	if err != nil {
		return err
	}
	at, err := m.Metadata()
	if err != nil {
		return err
	}
	if err := note(m, r.told); err != nil {
		return err
	}
	r.read = at.Sequence.Stream
	return nil
}

// note adds the ids of one message.
func note(m jetstream.Msg, told map[string]core.State) error {
	return noteData(m.Subject(), m.Data(), told)
}

// eventSubjects are those of all endings of deliveries.
func eventSubjects() string { return wire.Names{}.EventSubject(drone.Type, "*") }

// noteData adds the ids of one message. What is no ending is a refusal.
func noteData(subject string, data []byte, told map[string]core.State) error {
	endings, err := wire.DecodeEndings(data)
	if err != nil {
		if _, refusal := wire.DecodeStatus(data); refusal == nil {
			return nil
		}
		return errors.Join(errors.New(subject), err)
	}
	for i := range endings {
		told[endings[i].ID] = endings[i].State
	}
	return nil
}
