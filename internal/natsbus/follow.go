package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// ErrPlaceGone: a place of the event stream that is not in it any more, or never was.
var ErrPlaceGone = errors.New("place is not in the event stream")

// FollowEvents calls take with the endings of one task type, or of all where it is empty, message by message with the
// message's number in the stream, until ctx ends (nil), take fails, or reading does. It begins at the message of number
// from; 0: with what is published from now on. Errors: ErrPlaceGone, what take returned.
func (c *Conn) FollowEvents(ctx context.Context, taskType string, from uint64, take func(seq uint64, endings []core.Ending) error) error {
	err := c.followEvents(ctx, taskType, from, take)
	if ctx.Err() != nil {
		return nil // whatever it was doing
	}
	return fmt.Errorf("event stream: %w", err)
}

func (c *Conn) followEvents(ctx context.Context, taskType string, from uint64, take func(uint64, []core.Ending) error) error {
	stream, err := c.js.Stream(ctx, c.names.StreamEvents())
	if err != nil {
		return err
	}
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy, FilterSubjects: []string{c.names.PatternEvents()}}
	if taskType != "" {
		cfg.FilterSubjects = []string{c.names.EventSubject(taskType, "*")}
	}
	if from > 0 {
		if state := stream.CachedInfo().State; from > state.LastSeq+1 || from < state.FirstSeq {
			return fmt.Errorf("%w: %d, it has %d to %d", ErrPlaceGone, from, state.FirstSeq, state.LastSeq)
		}
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	}
	consumer, err := stream.OrderedConsumer(ctx, cfg)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if strings.HasSuffix(msg.Subject(), "."+core.StatusRefused) {
			continue
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		endings, err := wire.DecodeEndings(msg.Data())
		if err != nil {
			continue // what cannot be decoded is told by those who read it for alerts
		}
		if err := take(meta.Sequence.Stream, endings); err != nil {
			return err
		}
	}
}
