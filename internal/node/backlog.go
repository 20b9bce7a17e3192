package node

import (
	"context"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/pause"
)

// backlogEvery is how often the server is asked for the backlog while
// submissions come in.
const backlogEvery = 500 * time.Millisecond

// backlog is ingest.Backlog: how far the readers are behind, as last seen. A
// node without submissions asks nothing.
type backlog struct {
	ask       func(context.Context) (map[int]int64, error)
	seen      atomic.Pointer[map[int]int64]
	requested atomic.Bool // since the last look
}

// newBacklog makes one that asks as natsbus.Conn.Backlog does.
func newBacklog(ask func(context.Context) (map[int]int64, error)) *backlog {
	b := &backlog{ask: ask}
	b.seen.Store(&map[int]int64{})
	return b
}

// Pending implements ingest.Backlog.
func (b *backlog) Pending(partition int) int64 {
	if !b.requested.Load() { // a shared line is written once a period, not per submission
		b.requested.Store(true)
	}
	return (*b.seen.Load())[partition]
}

// run asks until ctx ends. A task stream that cannot be asked counts as without backlog:
// its own bound holds submissions back then.
func (b *backlog) run(ctx context.Context) {
	for pause.For(ctx, backlogEvery) == nil {
		if !b.requested.Swap(false) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		pending, _ := b.ask(bounded) // beside an error: of those that could be asked
		cancel()
		b.seen.Store(&pending)
	}
}
