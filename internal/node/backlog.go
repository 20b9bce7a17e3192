package node

import (
	"context"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
)

// backlogEvery is how often the server is asked for the backlog while
// submissions come in.
const backlogEvery = 500 * time.Millisecond

// backlog is ingest.Backlog: how far the readers are behind, as last seen. A
// node without submissions asks nothing.
type backlog struct {
	conn      *natsbus.Conn
	seen      atomic.Pointer[map[int]int64]
	requested atomic.Bool // since the last look
}

func newBacklog(conn *natsbus.Conn) *backlog {
	b := &backlog{conn: conn}
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

// run asks until ctx ends. What cannot be asked counts as no backlog: the
// stream's own bound holds submissions back then.
func (b *backlog) run(ctx context.Context) {
	for pause.For(ctx, backlogEvery) == nil {
		if !b.requested.Swap(false) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		pending, err := b.conn.Backlog(bounded)
		cancel()
		if err != nil {
			pending = nil
		}
		b.seen.Store(&pending)
	}
}
