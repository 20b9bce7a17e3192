package natsbus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/redact"
)

// Connect makes a connection as [Dial] does, for an agent: it asks neither for JetStream nor for the right to look at it.
// The caller closes it. Error: the server's refusal of the credentials, or ctx's, with the last reason.
func Connect(ctx context.Context, o Options) (*nats.Conn, error) {
	c := newConn(o)
	url, _, opts, err := c.options(o) // an agent makes no requests
	if err != nil {
		return nil, err
	}
	// An agent's own listeners are told of errors; what the connection keeps of its streams has no use here.
	opts = append(opts, nats.ClosedHandler(nil), nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil {
			c.log.Warn("lost the connection to NATS", "error", err)
		}
	}), nats.ReconnectHandler(func(nc *nats.Conn) {
		c.log.Info("connected to NATS again", "url", nc.ConnectedUrlRedacted())
	}))
	nc, err := connect(ctx, url, opts, c.log)
	if err != nil {
		return nil, redact.Error(fmt.Errorf("nats at %s: %w", url, err))
	}
	c.log.Info("connected to NATS", "url", nc.ConnectedUrlRedacted(), "version", nc.ConnectedServerVersion())
	return nc, nil
}
