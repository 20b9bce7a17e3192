package natsbus

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/redact"
	"duly.dev/duly/internal/wire"
)

// DialToAsk connects as Dial does, for someone who only sends requests to nodes: it needs neither JetStream nor the right
// to ask for it. It waits for a server that is not up until ctx ends. Errors: the server's refusal of the credentials; ctx's,
// with the last reason.
func DialToAsk(ctx context.Context, o Options) (*Conn, error) { return dialHearing(ctx, o, dialToAsk) }

func dialToAsk(ctx context.Context, o Options) (_ *Conn, own string, _ error) {
	c := newConn(o)
	c.own = true
	var err error
	if c.names, err = wire.NewNames(o.Namespace); err != nil {
		return nil, "", err
	}
	url, own, opts, err := c.options(o)
	if err != nil {
		return nil, "", err
	}
	if c.nc, err = connect(ctx, url, opts, c.log); err == nil {
		if err = c.begin(); err == nil {
			err = c.checkInbox(ctx)
		}
		if err != nil {
			c.nc.Close()
		}
	}
	if err != nil {
		return nil, own, redact.Error(fmt.Errorf("nats at %s: %w", url, err))
	}
	return c, own, nil
}
