package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// open creates the reader's consumer, to begin after r.last, and removes those that it replaces: the reader's
// own before, and those of lower epochs. The new one is created first, so that a reader that finds its
// consumer gone can see that it has a successor.
func (r *Reader) open(ctx context.Context) error {
	r.mu.Lock()
	after, stored := r.last, r.stored
	r.mu.Unlock()
	stream, err := r.conn.stream(ctx, r.stream)
	if err != nil {
		return err
	}
	switch id := streamID(stream.CachedInfo()); {
	case r.identity == "":
		r.identity = id
	case r.identity != id:
		return fmt.Errorf("%w: it is %s, the cursor %d is of %s", errOtherStream, id, after, r.identity)
	}
	if end := stream.CachedInfo().State.LastSeq; end < after {
		return fmt.Errorf("%w: it ends at %d, the cursor is %d", ErrRewound, end, after)
	}
	if err := r.unchanged(ctx, stream, after, stored); err != nil {
		return err
	}
	old, err := r.consumers(ctx, stream)
	if err != nil {
		return err
	}
	r.n++
	name := wire.ConsumerName(r.partition, r.epoch, r.n)
	config := jetstream.ConsumerConfig{
		Durable:           name,
		FilterSubject:     r.filter,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       after + 1,
		AckPolicy:         jetstream.AckExplicitPolicy,
		AckWait:           r.config.AckWait,
		MaxDeliver:        -1,
		MaxAckPending:     r.config.AckPending,
		InactiveThreshold: consumerIdle,
		// The cursor is in SQL: what the server would write to disk, and sync, at
		// every acknowledgement is never read again. Nor need other servers of a
		// cluster know it: one that is lost with its server is created again sooner
		// than many would elect their leaders.
		MemoryStorage: true,
		Replicas:      1,
	}
	_, err = stream.CreateConsumer(ctx, config)
	if apiCode(err) == codeMemory { // an account without memory
		config.MemoryStorage = false
		_, err = stream.CreateConsumer(ctx, config)
	}
	if err != nil {
		return fmt.Errorf("consumer %s: %w", name, err)
	}
	// A message larger than the limit would never come.
	limit := max(prefetchBytes, r.conn.MaxPayload()+deadRoom)
	pull, err := newPuller(r.conn.nc, r.stream, name, r.config, limit)
	if err != nil {
		return fmt.Errorf("consumer %s: %w", name, err)
	}
	if r.pull != nil {
		r.pull.close()
	}
	r.pull, r.name, r.dseq, r.dirty = pull, name, 0, false
	for _, o := range old {
		if err := stream.DeleteConsumer(ctx, o); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			// It only wastes the server's memory: the epoch in SQL keeps its reader from writing.
			r.conn.log.Warn("an old consumer stays", "consumer", o, "stream", r.stream, "error", err)
		}
	}
	return nil
}

// unchanged checks that the message at the cursor is still the one that was read: a stream that went back and
// has grown since may well end after the cursor. If the message is gone or cannot be read, nothing is proved
// and nothing refused.
func (r *Reader) unchanged(ctx context.Context, stream jetstream.Stream, seq uint64, stored core.Instant) error {
	if seq == 0 || stored == 0 || stream.CachedInfo().State.FirstSeq > seq {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	msg, err := stream.GetMsg(bounded, seq)
	if err != nil || core.InstantOf(msg.Time) == stored {
		return nil
	}
	return fmt.Errorf("%w: message %d is of %s, was of %s", ErrRewound, seq, msg.Time.UTC().Format(time.RFC3339Nano), stored.Time().Format(time.RFC3339Nano))
}

// consumers lists the partition's consumers of this epoch and lower ones. A consumer of a higher epoch means
// errLost.
func (r *Reader) consumers(ctx context.Context, stream jetstream.Stream) ([]string, error) {
	var old []string
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		p, epoch, n, ok := wire.ParseConsumer(name)
		if !ok || p != r.partition {
			continue
		}
		if epoch > r.epoch {
			for range names.Name() { // the lister ends with its channel
			}
			return nil, fmt.Errorf("%w: consumer %s", errLost, name)
		}
		if epoch == r.epoch {
			r.n = max(r.n, n)
		}
		old = append(old, name)
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list of consumers: %w", err)
	}
	return old, nil
}

// reopen creates the consumer again until that succeeds, the reader is lost, or ctx ends.
func (r *Reader) reopen(ctx context.Context) error {
	defer r.conn.tries.note(TroubleReaders, r, nil) // it works, or is not tried any more
	wait, deadline := reopenFirst, askDeadline
	for ctx.Err() == nil {
		r.mu.Lock()
		r.recreate = false // a recheck from here on reopens once more
		clear(r.unacked)
		r.mu.Unlock()
		// A request that comes while a cluster elects a leader is never answered, so
		// the first ones are not waited for as long as a busy server may need.
		bounded, cancel := context.WithTimeout(ctx, deadline)
		err := r.open(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if errors.Is(err, errLost) || errors.Is(err, ErrRewound) || errors.Is(err, errOtherStream) || errors.Is(err, ErrInstallation) {
			return fmt.Errorf("partition %d of %s under epoch %d: %w", r.partition, r.stream, r.epoch, err)
		}
		if ctx.Err() == nil {
			r.conn.tries.note(TroubleReaders, r, fmt.Errorf("partition %d of %s: %w", r.partition, r.stream, err))
		}
		_ = pause.For(ctx, wait) // the loop looks whether ctx has ended
		wait, deadline = min(2*wait, reopenMost), min(2*deadline, reopenDeadline)
	}
	return nil
}

// gone reports whether the consumer is missing. A reader that stood still or was cut off while its consumer
// was removed hears only the absence of heartbeats; so does one whose server died while the rest of the
// cluster lives.
func (r *Reader) gone(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	_, err := r.conn.js.Consumer(bounded, r.stream, r.name)
	return err != nil && ctx.Err() == nil && r.conn.Connected()
}
