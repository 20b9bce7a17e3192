package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// ErrGone says that the position to continue from is no longer in the stream.
var ErrGone = errors.New("the stream does not go back that far")

// EventPlace is a position in the event stream: a message, and one of its events.
type EventPlace struct {
	Seq   uint64 // 0: from now on
	Index int    // within the message: 0, 1 …
}

// Times of a reader of events. While a cluster elects a leader readers fall silent; one that misses two heartbeats is made
// again, and the server removes the old one after followForgotten.
const (
	followHeartbeat = 1500 * time.Millisecond
	followForgotten = 10 * time.Second
	followBatch     = 64 // messages that are asked for at a time; each has up to wire.EventsMax events

	followLook = 5 * time.Second // between two looks whether it is still the same stream
)

// FollowEvents calls take with the events of tasks of a type and a status (empty: any), in order, after a
// position, until ctx ends or take fails. It reads only a few messages ahead of take. What cannot be decoded
// is skipped. Errors: ErrGone, errOtherStream, ErrRewound, what take returned, what the server said.
func (c *Conn) FollowEvents(ctx context.Context, taskType string, status core.State, after EventPlace, take func(EventPlace, core.Ending) error) error {
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.names.EventsAbout(taskType, string(status))}, DeliverPolicy: jetstream.DeliverNewPolicy, InactiveThreshold: followForgotten,
	}
	stream, err := c.js.Stream(ctx, c.names.StreamEvents())
	if err != nil {
		return fmt.Errorf("stream %s: %w", c.names.StreamEvents(), err)
	}
	identity, last := IdentityOf(stream.CachedInfo()), after.Seq
	if after.Seq > 0 {
		state := stream.CachedInfo().State
		if after.Seq < state.FirstSeq || after.Seq > state.LastSeq {
			return fmt.Errorf("event %d: the stream has %d to %d: %w", after.Seq, state.FirstSeq, state.LastSeq, ErrGone)
		}
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after.Seq
	}
	consumer, err := c.js.OrderedConsumer(ctx, c.names.StreamEvents(), config)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", c.names.StreamEvents(), err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(followBatch), jetstream.PullHeartbeat(followHeartbeat))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", c.names.StreamEvents(), err)
	}
	defer messages.Stop()
	look := time.Now().Add(followLook)
	for {
		bounded, cancel := context.WithDeadline(ctx, look)
		msg, err := messages.Next(jetstream.NextContext(bounded))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if _, err = identity.Check(ctx, c.js, c.names.StreamEvents(), last); err == nil {
				look = time.Now().Add(followLook)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("read stream %s: %w", c.names.StreamEvents(), err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s: %w", c.names.StreamEvents(), err)
		}
		last = meta.Sequence.Stream
		// The stream also says when a task was made, which is no ending.
		if strings.HasSuffix(msg.Subject(), "."+core.StatusCreated) {
			continue
		}
		events, err := decodeEvents(msg.Data())
		if err != nil {
			c.log.Error("an event cannot be decoded", "subject", msg.Subject(), "error", err)
			continue
		}
		for i := range events {
			// Reading began with the message of the position, whose first events are known.
			if meta.Sequence.Stream == after.Seq && i <= after.Index {
				continue
			}
			if err := take(EventPlace{meta.Sequence.Stream, i}, events[i]); err != nil {
				return err
			}
		}
	}
}

// decodeEvents decodes a message of the event stream: endings, or the refusal of a submission.
func decodeEvents(data []byte) ([]core.Ending, error) {
	endings, err := wire.DecodeEndings(data)
	if err == nil {
		return endings, nil
	}
	status, refusal := wire.DecodeStatus(data)
	if refusal != nil || status.Status != core.StatusRefused {
		return nil, err
	}
	return []core.Ending{{ID: status.ID, Type: status.Type, State: core.StatusRefused, Error: status.Error, At: status.At}}, nil
}
