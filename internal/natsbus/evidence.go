package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Record stores evidence of commits in a bucket. It does not wait. What the bucket does not take is lost; the
// next commit brings newer evidence.
func (c *Conn) Record(all []core.Evidence) {
	for i := range all {
		e := &all[i]
		data, err := json.Marshal(e)
		if err != nil {
			continue // four numbers always can be
		}
		c.acks.publish(c.names.EvidenceSubject(e.Partition, e.Former), nil, data, func(_ uint64, err error) {
			if err != nil {
				c.log.Debug("evidence of a commit is not recorded", "partition", e.Partition, "error", err)
			}
		})
	}
}

// Evidence returns what the partition's owner recorded last, and what the last owner recorded that lost the
// partition. Zero: nothing was.
func (c *Conn) Evidence(ctx context.Context, partition int) (owner, former core.Evidence, err error) {
	kv, err := c.Bucket(ctx, c.names.BucketPartitions())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return owner, former, nil
	}
	if err == nil {
		_, err = readAt(ctx, kv, wire.EvidenceKey(partition, false), &owner)
	}
	if err == nil {
		_, err = readAt(ctx, kv, wire.EvidenceKey(partition, true), &former)
	}
	if err != nil {
		return owner, former, fmt.Errorf("evidence of partition %d: %w", partition, err)
	}
	return owner, former, nil
}

// evidenceApart is up to how many partitions a watch names one by one: the server compares each named key with each other.
const evidenceApart = 128

// WatchEvidence calls heard with the newest evidence of some partitions and then with each new one, until ctx
// ends or the watch breaks. For more than evidenceApart partitions it watches all of them. Few nodes have so
// many, and if many nodes watched all, NATS would send each record to each node.
func (c *Conn) WatchEvidence(ctx context.Context, partitions []int, heard func(core.Evidence)) error {
	kv, err := c.Bucket(ctx, c.names.BucketPartitions())
	if err != nil {
		return fmt.Errorf("bucket %s: %w", c.names.BucketPartitions(), err)
	}
	keys := []string{jetstream.AllKeys}
	if len(partitions) > 0 && len(partitions) <= evidenceApart {
		keys = keys[:0]
		for _, p := range partitions {
			keys = append(keys, wire.EvidenceKey(p, false), wire.EvidenceKey(p, true))
		}
	}
	watcher, err := kv.WatchFiltered(ctx, keys, jetstream.IgnoreDeletes())
	if err != nil {
		return fmt.Errorf("watch of bucket %s: %w", c.names.BucketPartitions(), err)
	}
	defer func() { _ = watcher.Stop() }() // its only error: it has stopped already
	for {
		select {
		case <-ctx.Done():
			return nil
		case entry, ok := <-watcher.Updates():
			if !ok {
				return fmt.Errorf("watch of bucket %s: %w", c.names.BucketPartitions(), ErrClosed)
			}
			var e core.Evidence
			if entry == nil || wire.IsWishKey(entry.Key()) || wire.IsHeadKey(entry.Key()) || wire.IsRemovedKey(entry.Key()) || json.Unmarshal(entry.Value(), &e) != nil {
				continue // all of what was there has come, or it is not ours
			}
			heard(e)
		}
	}
}

// TasksEnd returns the position of a partition's last message in the task stream; 0: it has none.
func (c *Conn) TasksEnd(ctx context.Context, partition int) (uint64, error) {
	name := c.StreamTasks(partition)
	stream, err := c.js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	last, err := stream.GetLastMsgForSubject(ctx, c.names.TasksPattern(partition))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("last message of partition %d in stream %s: %w", partition, name, err)
	}
	return last.Sequence, nil
}
