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

// Genuine reports whether a reply answers the command that this commit issued. Only
// the owner of the task knows the commit, so it asks.
func (c *Conn) Genuine(r *core.Reply, commit int64) bool {
	return c.signer.Load().Genuine(r, commit)
}

// useKey makes the connection mark its commands and take no reply without its
// mark from now on, with the key that all nodes share: a successor takes what
// answers its predecessor's commands. The first node draws it. Where the bucket was
// lost, the key that this connection has goes there again: what is under way keeps
// its marks.
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
	m, err := wire.NewSigner(key)
	if err == nil {
		c.signer.Store(m)
	}
	return err
}

// forged counts a reply that nobody was asked for, and says so now and then: a
// forger must not fill the log.
func (c *Conn) forged(subject string) {
	if n := c.forgeries.Add(1); n&(n-1) == 0 {
		c.log.Warn("a reply is not to a command of ours; it is passed over", "subject", wire.Short(subject), "so_far", n)
	}
}

// Forged is how many messages on subjects of replies were passed over because no batch
// of ours has their token. The tokens of single replies are the owner's to check: see Genuine.
func (c *Conn) Forged() int64 { return c.forgeries.Load() }
