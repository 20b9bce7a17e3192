package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

const alertsAgain = time.Second // before an ending that was not taken comes again

// ReadErrors calls take with every task that ended in error, also while there was no
// reader, until ctx ends (nil) or reading fails. If take returns an error, all endings of
// the same message come again. Several readers share
// the endings between them.
func (c *Conn) ReadErrors(ctx context.Context, take func(core.Ending) error) error {
	err := c.readErrors(ctx, take)
	if ctx.Err() != nil {
		return nil // whatever it was doing
	}
	return fmt.Errorf("consumer %s: %w", wire.ConsumerAlerts, err)
}

// readErrors reads until something fails.
func (c *Conn) readErrors(ctx context.Context, take func(core.Ending) error) error {
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, c.names.StreamEvents(), jetstream.ConsumerConfig{
		Durable: wire.ConsumerAlerts, FilterSubject: c.names.PatternErrors(),
		AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
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
		if err := c.takeError(msg, take); err != nil {
			return publishError(err)
		}
	}
}

func (c *Conn) takeError(msg jetstream.Msg, take func(core.Ending) error) error {
	endings, err := wire.DecodeEndings(msg.Data())
	if err != nil {
		c.log.Error("an ending in error cannot be decoded", "subject", msg.Subject(), "error", err)
		return msg.Term()
	}
	var failed error
	for i := range endings {
		failed = errors.Join(failed, take(endings[i]))
	}
	if failed != nil {
		return msg.NakWithDelay(alertsAgain)
	}
	return msg.Ack()
}
