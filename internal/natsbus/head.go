package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/wire"
)

// RecordHead keeps the newest head of a partition's hash chain outside the database. It does not wait; done
// is called with the outcome, from any goroutine.
func (c *Conn) RecordHead(h *chain.Head, done func(error)) {
	data, err := json.Marshal(h)
	if err != nil {
		done(err)
		return
	}
	c.acks.publish(c.names.HeadSubject(h.Partition), nil, data, func(_ uint64, err error) { done(err) })
}

// Heads returns the newest recorded heads of the chains of all partitions. Error: one of them cannot be read.
func (c *Conn) Heads(ctx context.Context, partitions int) (all []chain.Head, err error) {
	kv, err := c.Bucket(ctx, c.names.BucketPartitions())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("heads of chains: %w", err)
	}
	for p := range partitions {
		var h chain.Head
		revision, err := readAt(ctx, kv, wire.HeadKey(p), &h)
		if err != nil {
			return nil, fmt.Errorf("head of the chain of partition %d: %w", p, err)
		}
		if revision > 0 {
			all = append(all, h)
		}
	}
	return all, nil
}

// Partitions returns how many partitions the installation has, as its task stream says. Error: ErrNoStream; it does not say.
func (c *Conn) Partitions(ctx context.Context) (int, error) {
	name := c.names.StreamTasks()
	stream, err := c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, fmt.Errorf("%w: %s", ErrNoStream, name)
	}
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	has := stream.CachedInfo().Config.Metadata[metaPartitions]
	n, err := strconv.Atoi(has)
	if err != nil || n < 1 || n > PartitionsMax {
		return 0, fmt.Errorf("stream %s: metadata %s is %q, want 1 to %d", name, metaPartitions, has, PartitionsMax)
	}
	return n, nil
}

// readAt reads the JSON at a key of a bucket into a value, and returns its revision; 0: there is none.
func readAt(ctx context.Context, kv jetstream.KeyValue, key string, into any) (revision uint64, err error) {
	entry, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err == nil {
		err = json.Unmarshal(entry.Value(), into)
	}
	if err != nil {
		return 0, err
	}
	return entry.Revision(), nil
}
