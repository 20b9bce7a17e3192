package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/bus"
)

// quietMax is how long the reader of the event stream waits for a next message
// before it looks whether it has them all.
const quietMax = 5 * time.Second

// readEvents gives the ids of all tasks whose ends the event stream tells.
func readEvents(ctx context.Context, nc *nats.Conn) (map[string]struct{}, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	stream, err := js.Stream(ctx, bus.StreamEvents)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	last := stream.CachedInfo().State.LastSeq
	told := map[string]struct{}{}
	if last == 0 {
		return told, nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	defer messages.Stop()
	for {
		step, cancel := context.WithTimeout(ctx, quietMax)
		m, err := messages.Next(jetstream.NextContext(step))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("events up to %d: %w", last, err)
		}
		at, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("events: %w", err)
		}
		if err := note(m, told); err != nil {
			return nil, err
		}
		if at.Sequence.Stream >= last {
			return told, nil
		}
	}
}

// note adds the ids of one message. What is no ending is a refusal.
func note(m jetstream.Msg, told map[string]struct{}) error {
	endings, err := bus.DecodeEndings(m.Data())
	if err != nil {
		if _, refusal := bus.DecodeStatus(m.Data()); refusal == nil {
			return nil
		}
		return errors.Join(fmt.Errorf("events: %s", m.Subject()), err)
	}
	for i := range endings {
		told[endings[i].ID] = struct{}{}
	}
	return nil
}
