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

// ErrInbox is the error if the connection's user may not subscribe to the subjects of answers to its requests.
var ErrInbox = errors.New("the NATS user may not subscribe to the connection's inbox: say what its rights have, which is _INBOX_<user> by duly nats-permissions, as --nats-inbox-prefix (NATS_INBOX_PREFIX), or in a program as nats.CustomInboxPrefix")

// When an unanswered request checks whether the server has denied it.
const (
	deniedSoon  = 100 * time.Millisecond
	deniedLater = time.Second
)

// undenied returns a ctx that ends when denied returns an error. end must be called with the error of what
// ran under it, and returns the denial instead, if there is one. Without it a denied request would wait until
// its timeout: the server reports a denial to the connection, not to the request.
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

// Request sends a request on somebody else's connection. It waits for the answer until ctx ends or the server
// denies something to the connection's user (nats.ErrPermissionViolation).
func Request(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	before := nc.LastError()
	ctx, end := undenied(ctx, func() error {
		last := nc.LastError()
		// What another request is denied meanwhile, to a subject that only begins alike, says nothing of this one.
		if d, is := denialOf(last); is && (d.Subscribe || last != before && d.Subject == msg.Subject) {
			return d.of(nc, []string{msg.Subject})
		}
		return nil
	})
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	return answer, end(err)
}

// Request is the function Request on this connection.
func (c *Conn) Request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	return Request(ctx, c.nc, &nats.Msg{Subject: subject, Data: data})
}

// UntilDenied returns a ctx that ends when the server denies, from now on, a publish to a subject with one of
// these prefixes, or the subscription to answers. end must be called with the error of what ran under ctx; it
// returns the denial instead, if there is one.
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

// of returns the error of a request to a subject with one of these prefixes if the denial is about it; nil:
// it is not.
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

// checkInbox checks that answers can arrive, before the first request waits for one.
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
