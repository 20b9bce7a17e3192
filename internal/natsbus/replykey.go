package natsbus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Genuine reports whether a reply's token is that of the command that this commit issued. Only the owner of
// the task knows the commit. Before Setup every reply is genuine.
func (c *Conn) Genuine(r *core.Reply, commit int64) bool {
	return c.signer.Load().Genuine(r, commit)
}

// useKey makes the connection sign its commands and check the tokens of replies. All nodes share one key, so
// that a successor accepts answers to its predecessor's commands. The first node draws the key. If the bucket
// was lost, this connection writes its key there again, so that tokens of commands on their way stay valid.
func (c *Conn) useKey(ctx context.Context) error {
	kv, err := c.Bucket(ctx, c.names.BucketKeys())
	if err != nil {
		return err
	}
	key := c.signer.Load().Key()
	if key == nil {
		key = make([]byte, wire.SignerKeyBytes)
		_, _ = rand.Read(key) // it never fails
	}
	if _, err = kv.Create(ctx, wire.KeyReplies, key); errors.Is(err, jetstream.ErrKeyExists) {
		var entry jetstream.KeyValueEntry
		if entry, err = kv.Get(ctx, wire.KeyReplies); err == nil {
			key = entry.Value()
		}
	}
	if err != nil {
		return fmt.Errorf("key %s: %w", wire.KeyReplies, err)
	}
	signer, err := wire.NewSigner(key)
	if err == nil {
		c.signer.Store(signer)
	}
	return err
}

// forged counts a message with a wrong token, and logs it at powers of two: it must not fill the log.
func (c *Conn) forged(subject string) {
	if n := c.forgeries.Add(1); n&(n-1) == 0 {
		c.log.Warn("a message on a reply subject has no token of ours and is ignored", "subject", wire.Short(subject), "so_far", n)
	}
}

// Forged counts the messages on reply subjects that were ignored because no batch of ours has their token.
// The owner of a partition checks the tokens of single replies: see Genuine.
func (c *Conn) Forged() int64 { return c.forgeries.Load() }
