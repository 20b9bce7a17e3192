package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// Beat is a unique word that a live node writes into its database and then here. A node that finds different
// words in its database and its NATS has not got the two that belong together.
type Beat struct {
	Beat string `json:"beat"`
	By   string `json:"by"` // the node and its database, for people to read
}

// Beat reads the last beat on this NATS, and the identity of the bucket of live nodes. Both are empty if
// there are none.
func (c *Conn) Beat(ctx context.Context) (id string, last Beat, err error) {
	name := wire.BucketStream(c.names.BucketNodes())
	ctx, end := c.UntilDenied(ctx, "$JS.API.STREAM.INFO."+name, "$JS.API.DIRECT.GET."+name)
	defer func() { err = end(err) }()
	stream, err := c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", last, nil
	}
	if err != nil {
		return "", last, fmt.Errorf("bucket %s: %w", c.names.BucketNodes(), err)
	}
	id = streamID(stream.CachedInfo())
	kv, err := c.Bucket(ctx, c.names.BucketNodes())
	if err != nil {
		return id, last, err
	}
	if _, err := readAt(ctx, kv, wire.KeyBeat, &last); err != nil {
		return id, last, fmt.Errorf("last beat in bucket %s: %w", c.names.BucketNodes(), err)
	}
	return id, last, nil
}

// Server is the address of the server that the connection is to, without secrets.
func (c *Conn) Server() string { return c.nc.ConnectedUrlRedacted() }

// PutBeat writes a beat.
func (c *Conn) PutBeat(ctx context.Context, b Beat) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	kv, err := c.Bucket(ctx, c.names.BucketNodes())
	if err == nil {
		_, err = kv.Put(ctx, wire.KeyBeat, data)
	}
	if err != nil {
		return fmt.Errorf("beat in bucket %s: %w", c.names.BucketNodes(), err)
	}
	return nil
}
