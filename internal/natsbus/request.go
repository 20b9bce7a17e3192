package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrInbox is the error where the connection's user may not hear the answers to its requests.
var ErrInbox = errors.New("the NATS user may not subscribe to the connection's inbox: say what its rights have, which is _INBOX_<user> by duly nats-permissions, as --nats-inbox-prefix (NATS_INBOX_PREFIX), or in a program as nats.CustomInboxPrefix")

// When a request that is not answered yet looks whether the server refuses it.
const (
	deniedSoon  = 100 * time.Millisecond
	deniedLater = time.Second
)

// undenied is ctx until denied finds an error, which end gives in place of the request's own. The server tells the connection
// what its user may not do, and no request: each would wait for its whole time.
func undenied(ctx context.Context, denied func() error) (_ context.Context, end func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	look := func() {
		if err := denied(); err != nil {
			cancel(err)
		}
	}
	soon, later := time.AfterFunc(deniedSoon, look), time.AfterFunc(deniedLater, look)
	return ctx, func(err error) error {
		defer cancel(nil)
		soon.Stop()
		later.Stop()
		if err == nil {
			return nil
		}
		look()
		if why := context.Cause(ctx); errors.Is(why, nats.ErrPermissionViolation) {
			return why
		}
		return err
	}
}

// Request sends a request on a connection of someone else and waits for the answer until ctx ends, or the server refuses what
// the connection's user may not do (nats.ErrPermissionViolation).
func Request(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	before := nc.LastError()
	ctx, end := undenied(ctx, func() error {
		last := nc.LastError()
		if d, is := denialOf(last); is && (d.Subscribe || last != before) {
			return d.of(nc, []string{msg.Subject})
		}
		return nil
	})
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	return answer, end(err)
}

// Request is the function of that name on this connection.
func (c *Conn) Request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	return Request(ctx, c.nc, &nats.Msg{Subject: subject, Data: data})
}

// UntilDenied is ctx until the server refuses, from now on, what the connection's user may not publish to a subject that begins
// so, or that it may not hear answers. end gives the refusal in place of the error of what ran with it, and has to be called.
func (c *Conn) UntilDenied(ctx context.Context, prefixes ...string) (_ context.Context, end func(error) error) {
	began := time.Now()
	return undenied(ctx, func() error {
		for _, d := range c.Denials() {
			if d.Subscribe || !d.seen.Before(began) {
				if err := d.of(c.nc, prefixes); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// of is the error of a request on nc to a subject that begins so which is denied; nil: the denial is not about it.
func (d *Denial) of(nc *nats.Conn, prefixes []string) error {
	begins := func(prefix string) bool { return strings.HasPrefix(d.Subject, prefix) }
	switch {
	case d.Subscribe && begins(inboxPrefix(nc)+"."):
		return fmt.Errorf("%w: %w", ErrInbox, d.Err)
	case !d.Subscribe && slices.ContainsFunc(prefixes, begins):
		return d.Err
	}
	return nil
}

// checkInbox makes sure that answers will come, before the first request waits for one.
func (c *Conn) checkInbox(ctx context.Context) error {
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // gone already is fine
	ctx, cancel := context.WithTimeout(ctx, defaultAckTimeout)
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	if err := c.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) { // which comes before the flush is answered
		return fmt.Errorf("%w: %w", ErrInbox, err)
	}
	return nil
}
