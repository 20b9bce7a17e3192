package natsbus

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/members"
	"duly.dev/duly/internal/wire"
)

// Lease is one key of the bucket DULY_NODES: the membership of a node, or the
// lead of the supervisors. It has no goroutine: its holder's own loop renews it,
// so that a loop that stands still loses it. It is for speed only: what must not
// happen twice is fenced by the epoch in SQL. Only if the database has lost the epoch,
// and all evidence of it as well, is Term the only sign that another may have been at
// work.
type Lease struct {
	conn *Conn
	key  string
	// body is what the key holds. It is unique to this lease, so that another life of the same node is not
	// taken for it.
	body  []byte
	ttl   time.Duration
	clock func() time.Time

	mu sync.Mutex
	// rev is the revision of our value; 0: the key is not ours.
	rev uint64
	// until is, by the local monotonic clock, when we stop using the lease: well before others may take it.
	until time.Time

	termMu sync.Mutex // Term must not wait for a renewal that is under way
	term   int64
	// ends is when others may take the lease, if it is not renewed.
	ends time.Time
}

// leaseBody is what the bucket has under a lease's key: who holds the lease.
type leaseBody struct {
	V      int    `json:"v"`
	Holder string `json:"holder"` // differs between two lives of one node
	Value  string `json:"value,omitempty"`
	// Since is when the holder prepared the lease, by its clock, for people to read.
	Since time.Time `json:"since,omitzero"`
}

// NewLease prepares a lease on a key; value is for people to read. ttl is the bucket's, as
// StreamConfig.Lease; 0 is defaultLease. The holder should renew it every ttl/3.
func (c *Conn) NewLease(key, value string, ttl time.Duration) (*Lease, error) {
	body, err := json.Marshal(leaseBody{V: wire.Version, Holder: rand.Text(), Value: value, Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", key, err)
	}
	return &Lease{conn: c, key: key, body: body, ttl: cmp.Or(ttl, defaultLease), clock: time.Now}, nil
}

// Renew takes the lease if it is free, and renews it if it is ours. held is whether it may be used now; err
// says why the renewal failed, and the lease may be held by an earlier one still. That another holds the
// lease is no error.
func (l *Lease) Renew(ctx context.Context) (held bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := l.clock() // the server counts from later, so this errs on the safe side
	kv, err := l.conn.Bucket(ctx, l.conn.names.BucketNodes())
	if err == nil {
		err = l.put(ctx, kv, began)
	}
	if err != nil {
		err = fmt.Errorf("lease %s: %w", l.key, err)
	}
	return l.clock().Before(l.until), err
}

// Term returns the same number for as long as the lease was ours without a gap, as far as the machine's
// clocks and the server can tell. After a gap another holder may have acted. While the lease is not ours each
// call returns another number.
func (l *Lease) Term() int64 {
	l.termMu.Lock()
	defer l.termMu.Unlock()
	if now := l.clock(); l.ended(now, now.Round(0)) {
		l.term++
	}
	return l.term
}

// ended reports whether others may have the lease. While a machine is suspended its monotonic clock may stand
// still, so the wall clock is compared too.
func (l *Lease) ended(now, wall time.Time) bool {
	return !now.Before(l.ends) || !wall.Before(l.ends.Round(0))
}

// renewed notes a write that the server confirmed: the lease lasts from when it began. A new Term begins if the lease had
// run out by our clocks, or if it is taken: the server did not have it as ours, as at first.
func (l *Lease) renewed(began time.Time, taken bool) {
	l.termMu.Lock()
	defer l.termMu.Unlock()
	if now := l.clock(); taken || l.ended(now, now.Round(0)) {
		l.term++
	}
	l.ends = began.Add(l.ttl)
}

// put writes our value if the key is free or ours.
func (l *Lease) put(ctx context.Context, kv jetstream.KeyValue, began time.Time) error {
	var rev uint64
	var err error
	if l.rev == 0 {
		rev, err = kv.Create(ctx, l.key, l.body)
	} else {
		rev, err = kv.Update(ctx, l.key, l.body, l.rev)
	}
	if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		l.conn.outcomes[kindNodes].note(err)
	}
	switch {
	case err == nil:
		l.renewed(began, l.rev == 0)
		l.rev, l.until = rev, began.Add(l.ttl*2/3)
		return nil
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return l.findHolder(ctx, kv, began)
	}
	return err
}

// findHolder reads the key after a write was refused because of its revision. The lease may still be ours, if
// the answer to an earlier write was lost.
func (l *Lease) findHolder(ctx context.Context, kv jetstream.KeyValue, began time.Time) error {
	had := l.rev != 0
	entry, err := kv.Get(ctx, l.key)
	if err == nil && string(entry.Value()) == string(l.body) {
		// Not renewed now, because the time of that write is not known: the next call does.
		l.rev = entry.Revision()
		return nil
	}
	if err == nil || errors.Is(err, jetstream.ErrKeyNotFound) {
		l.rev, l.until = 0, time.Time{}
		if err != nil && had { // the bucket was made again, or ours has just ended: it is free
			return l.put(ctx, kv, began)
		}
		return nil
	}
	return err
}

// Release gives the lease back, so that others need not wait for its end. It also works if the answer to the
// last renewal was lost.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rev := l.rev
	l.rev, l.until = 0, time.Time{}
	kv, err := l.conn.Bucket(ctx, l.conn.names.BucketNodes())
	if err == nil && rev != 0 {
		if err = kv.Delete(ctx, l.key, jetstream.LastRevision(rev)); err == nil {
			return nil
		}
	}
	if err == nil || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		var entry jetstream.KeyValueEntry
		if entry, err = kv.Get(ctx, l.key); err == nil && string(entry.Value()) == string(l.body) {
			err = kv.Delete(ctx, l.key, jetstream.LastRevision(entry.Revision()))
		}
	}
	for _, free := range []error{jetstream.ErrKeyRevisionMismatch, jetstream.ErrKeyNotFound, jetstream.ErrBucketNotFound} {
		if errors.Is(err, free) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("release of lease %s: %w", l.key, err)
	}
	return nil
}

// Bucket opens a bucket, once. The handle stays valid if the bucket is made again.
func (c *Conn) Bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	c.mu.Lock()
	kv := c.buckets[name]
	c.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	kv, err := c.js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	c.mu.Lock()
	c.buckets[name] = kv
	c.mu.Unlock()
	return kv, nil
}

// LiveNodes lists the nodes whose lease has not ended. Error: the bucket cannot be read. If there is no
// bucket there are no nodes.
func (c *Conn) LiveNodes(ctx context.Context) (nodes []string, err error) {
	kv, err := c.Bucket(ctx, c.names.BucketNodes())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := kv.ListKeysFiltered(ctx, wire.KeyNodePrefix+">")
	if err != nil {
		return nil, fmt.Errorf("live nodes: %w", err)
	}
	for key := range list.Keys() {
		nodes = append(nodes, strings.TrimPrefix(key, wire.KeyNodePrefix))
	}
	slices.Sort(nodes)
	return nodes, nil
}

// WatchNodes calls live with the sorted names of the nodes that hold their lease: first the present ones,
// then at each change. It returns nil when ctx ends. Errors: the bucket cannot be watched.
//
// While any node lives its renewals are heard. So a watch that hears nothing was forgotten by the server, as
// happens when the server is restarted. Then WatchNodes begins another watch; until that has reported all
// present nodes, nobody joins or leaves.
func (c *Conn) WatchNodes(ctx context.Context, live func(nodes []string)) error {
	kv, err := c.Bucket(ctx, c.names.BucketNodes())
	if err != nil {
		return err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", c.names.BucketNodes(), err)
	}
	watcher, err := kv.Watch(ctx, wire.KeyNodePrefix+">")
	if err != nil {
		return fmt.Errorf("watch of nodes: %w", err)
	}
	defer func() { _ = watcher.Stop() }() // its only error: it has stopped already
	m := members.New(status.TTL(), time.Now)
	defer c.tries.note(TroubleWatch, m, nil)
	// A server that was down when a lease ended reports nothing about it: a node that
	// is not renewed is dropped here in the end.
	tick := time.NewTicker(max(status.TTL()/3, time.Second/10))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case entry, ok := <-watcher.Updates():
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("watch of nodes: %w", ErrClosed)
			}
			if entry == nil {
				m.All()
			} else {
				m.Hear(strings.TrimPrefix(entry.Key(), wire.KeyNodePrefix), entry.Operation() == jetstream.KeyValuePut)
			}
			c.tries.note(TroubleWatch, m, nil) // also where another watch could not begin
		case <-tick.C:
			if !m.Mute(c.Connected()) {
				m.Prune()
				break
			}
			again, err := kv.Watch(ctx, wire.KeyNodePrefix+">")
			if err != nil {
				if ctx.Err() == nil {
					c.tries.note(TroubleWatch, m, err)
				}
				break
			}
			c.tries.note(TroubleWatch, m, nil)
			_ = watcher.Stop()
			watcher = again
			m.Restart()
		}
		if names, changed := m.Take(); changed {
			live(names)
		}
	}
}
