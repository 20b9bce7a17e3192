package natsbus

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

const (
	alertsAgain = time.Second // after which an ending comes again that done had an error for
	// errorsMost is how many messages are handed out that are not done with. Endings that are told together wait for that for
	// seconds, and a reader that may have no more than NATS's default, 1,000, would fall behind.
	errorsMost = 10_000
)

// ReadErrors calls take with every task that ended in error, also from times without a reader, until ctx ends
// (nil) or reading fails. A message is acknowledged once done was called, with nil, for each of its endings; after an
// error all of them come again, and so they do half a minute after a reader that has died, or one that has not called it.
// Several readers share the endings between them.
func (c *Conn) ReadErrors(ctx context.Context, take func(e core.Ending, done func(error))) error {
	return c.consume(ctx, c.names.StreamEvents(), jetstream.ConsumerConfig{Durable: wire.ConsumerAlerts, FilterSubject: c.names.PatternErrors(), MaxAckPending: errorsMost},
		func(msg jetstream.Msg) error { return c.takeError(msg, take) })
}

// consume calls take with every message that a durable consumer has not acknowledged, also from times without
// a reader, until ctx ends (nil) or something fails.
func (c *Conn) consume(ctx context.Context, stream string, config jetstream.ConsumerConfig, take func(jetstream.Msg) error) error {
	config.AckPolicy, config.MaxDeliver, config.DeliverPolicy = jetstream.AckExplicitPolicy, -1, jetstream.DeliverAllPolicy
	err := c.consumeEach(ctx, stream, config, take)
	if ctx.Err() != nil {
		return nil // whatever it was doing
	}
	return fmt.Errorf("consumer %s: %w", config.Durable, err)
}

// consumeEach is consume; its error at the end of ctx is whatever was going on.
func (c *Conn) consumeEach(ctx context.Context, stream string, config jetstream.ConsumerConfig, take func(jetstream.Msg) error) error {
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, stream, config)
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
		if err := take(msg); err != nil {
			return publishError(err)
		}
	}
}

// takeError hands the endings of one message to take; the last that is done with acknowledges it or has it delivered again.
func (c *Conn) takeError(msg jetstream.Msg, take func(e core.Ending, done func(error))) error {
	endings, err := wire.DecodeEndings(msg.Data())
	if err != nil {
		c.log.Error("an ending in error cannot be decoded", "subject", msg.Subject(), "error", err)
		return msg.Term()
	}
	var left, failed atomic.Int64
	left.Store(int64(len(endings)) + 1)
	done := func(err error) {
		if err != nil {
			failed.Add(1)
		}
		if left.Add(-1) > 0 {
			return
		}
		end := msg.Ack
		if failed.Load() > 0 {
			end = func() error { return msg.NakWithDelay(alertsAgain) }
		}
		if err := end(); err != nil {
			c.log.Warn("endings in error cannot be acknowledged; they come again", "subject", msg.Subject(), "error", err)
		}
	}
	for i := range endings {
		take(endings[i], done)
	}
	done(nil)
	return nil
}

// deliveryAckWait is after how long an alert comes again whose reader has died.
const deliveryAckWait = 10 * time.Second

// PublishAlert stores an alert and waits for the confirmation. An alert whose id was stored a short time ago
// is not stored again.
func (c *Conn) PublishAlert(ctx context.Context, a core.Alert) error {
	data, err := wire.AppendAlert(nil, a)
	if err != nil {
		return err
	}
	if _, err := c.store(ctx, kindAlerts, c.names.AlertSubject(a.Name), nats.Header{nats.MsgIdHdr: []string{a.ID}}, data); err != nil {
		return fmt.Errorf("alert %s: %w", a.Name, err)
	}
	return nil
}

// AlertMessage is an alert that its reader has to end with Done. Until then the reader calls Working every
// few seconds, or the alert is delivered again.
type AlertMessage struct {
	Alert core.Alert
	msg   jetstream.Msg
}

// Done says that the alert is delivered.
func (m *AlertMessage) Done() error { return m.msg.Ack() }

// Working says that the alert is still being delivered.
func (m *AlertMessage) Working() error { return m.msg.InProgress() }

// ReadAlerts calls take with every alert that is not done, also from times without a reader, until ctx ends
// (nil) or reading fails. take must not block for long; at most most alerts are handed out that are not done.
func (c *Conn) ReadAlerts(ctx context.Context, most int, take func(*AlertMessage)) error {
	config := jetstream.ConsumerConfig{Durable: wire.ConsumerDelivery, FilterSubject: c.names.PatternAlerts(), AckWait: deliveryAckWait, MaxAckPending: most}
	return c.consume(ctx, c.names.StreamAlerts(), config, func(msg jetstream.Msg) error {
		alert, err := wire.DecodeAlert(msg.Data())
		if err != nil {
			c.log.Error("an alert cannot be decoded", "subject", msg.Subject(), "error", err)
			return msg.Term()
		}
		take(&AlertMessage{Alert: alert, msg: msg})
		return nil
	})
}
