package natsbus

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// ServerClock is the server's clock as one request showed it.
type ServerClock struct {
	Time time.Time // of the server, when it answered
	// Asked is when the request was sent, by the local clock.
	Asked time.Time
	// Travel is how long the answer took.
	Travel time.Duration
}

// ServerClock asks the server that leads the task stream for its time. local is the local clock.
func (c *Conn) ServerClock(ctx context.Context, local func() time.Time) (ServerClock, error) {
	asked := local()
	stream, err := c.js.Stream(ctx, c.names.StreamTasks())
	if err != nil {
		return ServerClock{}, fmt.Errorf("time of the server: stream %s: %w", c.names.StreamTasks(), err)
	}
	clock := ServerClock{Time: stream.CachedInfo().TimeStamp, Asked: asked, Travel: local().Sub(asked)}
	if clock.Time.IsZero() {
		return ServerClock{}, fmt.Errorf("time of the server: the answer about stream %s has none", c.names.StreamTasks())
	}
	return clock, nil
}

// Holder is who holds a lease now.
type Holder struct {
	Value string // for people to read: the node
	// Since is when the holder first asked for it; zero: unknown.
	Since    time.Time
	Revision uint64 // higher after each renewal
	life     string
}

// Holder reads who holds a lease; nil: nobody.
func (c *Conn) Holder(ctx context.Context, key string) (*Holder, error) {
	kv, err := c.Bucket(ctx, c.names.BucketNodes())
	if err != nil {
		return nil, err
	}
	var body leaseBody
	revision, err := readAt(ctx, kv, key, &body)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", key, err)
	}
	if revision == 0 {
		return nil, nil
	}
	return &Holder{Value: body.Value, Since: body.Since, Revision: revision, life: body.Holder}, nil
}

// EndBy bounds every later Stop and Close: the end of a process must not take longer than it may, whatever
// the server does. What is not finished by then is dropped.
func (c *Conn) EndBy(at time.Time) { c.endBy.Store(&at) }

// patience returns how long a stop may wait: d, or less because of EndBy.
func (c *Conn) patience(d time.Duration) time.Duration {
	if at := c.endBy.Load(); at != nil {
		return max(0, min(d, time.Until(*at)))
	}
	return d
}

// What a connection retries for ever, and reports.
const (
	TroubleReaders = "readers" // making consumers again
	TroubleWatch   = "watch"   // watching the live nodes
)

// tries holds the present failures, by trouble and by who retries, so that one that succeeds does not hide
// the failures of others.
type tries struct {
	mu     sync.Mutex
	failed map[string]map[any]error
	report func(trouble string, err error) // may be nil
}

// note takes the outcome of one try and reports the trouble's state, over all that retry the same.
func (t *tries) note(trouble string, by any, err error) {
	t.mu.Lock()
	of := t.failed[trouble]
	switch {
	case err == nil && of[by] == nil:
		t.mu.Unlock()
		return
	case err == nil:
		delete(of, by)
	case of == nil:
		t.failed[trouble] = map[any]error{by: err}
	default:
		of[by] = err
	}
	n := len(t.failed[trouble])
	for _, first := range t.failed[trouble] {
		err = first
		break
	}
	t.mu.Unlock()
	if n > 1 {
		err = fmt.Errorf("%d of them, for one: %w", n, err)
	}
	if t.report != nil {
		t.report(trouble, err)
	}
}
