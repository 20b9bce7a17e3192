package natsbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// PutWish stores where operators want a partition to be. With neither Node nor Avoid it removes their wish.
func (c *Conn) PutWish(ctx context.Context, w core.Wish) error {
	kv, err := c.Bucket(ctx, c.names.BucketPartitions())
	if err != nil {
		return err
	}
	if key := wire.WishKey(w.Partition); w.Node == "" && w.Avoid == "" {
		err = kv.Delete(ctx, key)
	} else {
		_, err = kv.Put(ctx, key, wire.AppendWish(nil, &w))
	}
	if err != nil {
		return fmt.Errorf("where partition %d is to be: %w", w.Partition, publishError(err))
	}
	return nil
}

// Wish returns where operators want a partition to be. Only Partition is set if they have no wish.
func (c *Conn) Wish(ctx context.Context, partition int) (core.Wish, error) {
	none := core.Wish{Partition: partition}
	kv, err := c.Bucket(ctx, c.names.BucketPartitions())
	if err != nil {
		return none, err
	}
	entry, err := kv.Get(ctx, wire.WishKey(partition))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("where partition %d is to be: %w", partition, err)
	}
	return wire.DecodeWish(entry.Key(), entry.Value())
}

// WatchWishes calls heard with all wishes, sorted by partition, first as they are and then at each change. It
// ends with ctx, or when the watch breaks. It does not notice that its bucket was made again: heard is called no more
// then. What cannot be decoded is ignored.
func (c *Conn) WatchWishes(ctx context.Context, heard func([]core.Wish)) error {
	kv, err := c.Bucket(ctx, c.names.BucketPartitions())
	if err != nil {
		return err
	}
	watcher, err := kv.Watch(ctx, wire.WishesPattern)
	if err != nil {
		return fmt.Errorf("watch of bucket %s: %w", c.names.BucketPartitions(), err)
	}
	defer func() { _ = watcher.Stop() }() // its only error: it has stopped already
	wishes, all := map[string]core.Wish{}, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case entry, ok := <-watcher.Updates():
			switch {
			case !ok:
				return fmt.Errorf("watch of bucket %s: %w", c.names.BucketPartitions(), ErrClosed)
			case entry == nil:
				all = true
			case entry.Operation() != jetstream.KeyValuePut:
				delete(wishes, entry.Key())
			default:
				delete(wishes, entry.Key())
				w, err := wire.DecodeWish(entry.Key(), entry.Value())
				if err != nil {
					c.log.Warn("what an operator wants of a partition is not understood", "error", err)
					break
				}
				wishes[entry.Key()] = w
			}
			if all {
				heard(slices.SortedFunc(maps.Values(wishes), func(a, b core.Wish) int { return a.Partition - b.Partition }))
			}
		}
	}
}

// Lag is how far a partition's owner is behind in the task stream.
type Lag struct {
	// Pending counts messages that are not committed: not handed to the owner yet, or not acknowledged by it.
	Pending uint64
	// Epoch is of the owner that reads.
	Epoch int64
}

// Lags returns the lags of all partitions that have a reader, or had one within the hour. It costs one
// request for each task stream.
func (c *Conn) Lags(ctx context.Context) (map[int]Lag, error) {
	lags, err := eachTaskStream(ctx, c, 0, func(ctx context.Context, stream jetstream.Stream, has func(int) bool) (map[int]Lag, error) {
		lags := map[int]Lag{}
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			p, epoch, _, ok := wire.ParseConsumer(info.Name)
			if is, seen := lags[p]; ok && has(p) && (!seen || epoch >= is.Epoch) {
				lags[p] = Lag{Pending: info.NumPending + uint64(max(0, info.NumAckPending)), Epoch: epoch}
			}
		}
		return lags, list.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("lag of the partitions: %w", err)
	}
	return lags, nil
}
