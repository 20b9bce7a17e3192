package natsbus

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/wire"
)

// watchedOnce is a bucket that can be watched once and no more.
type watchedOnce struct {
	jetstream.KeyValue
	times atomic.Int64
}

func (b *watchedOnce) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if b.times.Add(1) > 1 {
		return nil, errors.New("no watch")
	}
	return b.KeyValue.Watch(ctx, keys, opts...)
}

// TestWatchNodesIsHeardAgain: a watch that was silent and could not be replaced, and is heard again
// after all, is no trouble any more.
func TestWatchNodesIsHeardAgain(t *testing.T) {
	t.Parallel()
	var trouble atomic.Pointer[error]
	c := dialWith(t, Options{URL: serve(t, natsserver.Options{}).ClientURL(), Report: func(name string, err error) {
		if name == TroubleWatch {
			trouble.Store(&err)
		}
	}})
	setUp(t, c, StreamConfig{Lease: leaseLife})
	kv, err := c.Bucket(t.Context(), c.names.BucketNodes())
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.buckets[c.names.BucketNodes()] = &watchedOnce{KeyValue: kv}
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ended, said := make(chan error, 1), make(chan []string, 10)
	go func() { ended <- c.WatchNodes(ctx, func(nodes []string) { said <- nodes }) }()
	defer func() {
		cancel()
		if err := receive(t, "end of the watch", ended); err != nil {
			t.Error(err)
		}
	}()
	receive(t, "that no node lives", said)
	eventually(t, "a silent watch that cannot be replaced is reported", func() bool { e := trouble.Load(); return e != nil && *e != nil })
	renew(t, newLease(t, c, wire.NodeKey("a"), ""), true)
	receive(t, "that a is there", said)
	eventually(t, "a watch that is heard again is told", func() bool { return *trouble.Load() == nil })
}
