package natsbus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/wire"
)

// leaseLife is of the bucket in these tests: a third of it is longer than a busy machine stands still.
const leaseLife = 3 * time.Second

func newLease(t *testing.T, c *Conn, key, value string) *Lease {
	t.Helper()
	l, err := c.NewLease(key, value, leaseLife)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func renew(t *testing.T, l *Lease, want bool) {
	t.Helper()
	held, err := l.Renew(within(t))
	if err != nil || held != want || l.Held() != want {
		t.Fatalf("held %v, %v, want %v", held, err, want)
	}
}

// covers: S36
func TestLeaseHasOneHolder(t *testing.T) {
	c := ready(t)
	a, b := newLease(t, c, wire.KeyLeader, "a"), newLease(t, c, wire.KeyLeader, "b")
	if a.Held() {
		t.Error("held before it was taken")
	}
	renew(t, a, true)
	renew(t, b, false)
	renew(t, a, true)
	if err := b.Release(within(t)); err != nil { // it has nothing
		t.Fatal(err)
	}
	renew(t, a, true)
	if err := a.Release(within(t)); err != nil || a.Held() {
		t.Fatalf("held after release, %v", err)
	}
	renew(t, b, true)
	renew(t, a, false)
}

// TestLeaseZombie: a holder that slept loses the lease by its own clock first,
// then on the server, and cannot take it back from its successor.
//
// covers: E6, S36, I9
func TestLeaseZombie(t *testing.T) {
	t.Parallel()
	c := ready(t)
	zombie, heir := newLease(t, c, wire.KeyLeader, "zombie"), newLease(t, c, wire.KeyLeader, "heir")
	began := time.Now() // the server counts from later, however late it answers
	renew(t, zombie, true)
	renewed := time.Now()
	if end := zombie.until.Sub(renewed); end > leaseLife*2/3 {
		t.Errorf("it steps down after %v of %v", end, leaseLife)
	}
	eventually(t, "the local end", func() bool { return !zombie.Held() })
	// Still ours on the server: no other node may have it yet.
	if held, err := heir.Renew(within(t)); err == nil && held && time.Since(began) < leaseLife {
		t.Errorf("taken %v after the last renewal", time.Since(began))
	}
	eventually(t, "the heir's turn", func() bool { held, err := heir.Renew(within(t)); return err == nil && held })
	if passed := time.Since(began); passed < leaseLife {
		t.Errorf("taken after %v", passed)
	}
	kv, err := c.Bucket(within(t), names.BucketNodes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(within(t), wire.KeyLeader, zombie.body, zombie.rev); !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		t.Errorf("the zombie's own update: %v", err)
	}
	renew(t, zombie, false)
	renew(t, heir, true)
}

// TestLeaseLateRenewal: one that comes late, but before another node's, is good.
func TestLeaseLateRenewal(t *testing.T) {
	t.Parallel()
	c := ready(t)
	l := newLease(t, c, wire.KeyLeader, "")
	renew(t, l, true)
	eventually(t, "the local end", func() bool { return !l.Held() })
	eventually(t, "held again", func() bool { held, err := l.Renew(within(t)); return err == nil && held })
}

// TestLeaseLostAnswer: a write that was done without our hearing of it does not
// cost us the lease, nor does it count as a renewal.
func TestLeaseLostAnswer(t *testing.T) {
	c := ready(t)
	l := newLease(t, c, wire.KeyLeader, "")
	kv, err := c.Bucket(within(t), names.BucketNodes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(within(t), wire.KeyLeader, l.body); err != nil {
		t.Fatal(err)
	}
	renew(t, l, false)
	renew(t, l, true)
	if _, err := kv.Update(within(t), wire.KeyLeader, l.body, l.rev); err != nil {
		t.Fatal(err)
	}
	renew(t, l, true) // by the renewal before
	renew(t, l, true)
}

// TestLeaseReleasedAfterALostAnswer: a holder that stops while the answer to its first or a later renewal is lost gives the
// lease back all the same.
//
// covers: inv11
func TestLeaseReleasedAfterALostAnswer(t *testing.T) {
	c := ready(t)
	for _, before := range []int{0, 1} {
		l := newLease(t, c, wire.KeyLeader, "a")
		for range before {
			renew(t, l, true)
		}
		rev := l.rev
		renew(t, l, true)
		l.rev = rev // as if its answer had not come
		if err := l.Release(within(t)); err != nil {
			t.Fatal(err)
		}
		renew(t, newLease(t, c, wire.KeyLeader, fmt.Sprint("b", before)), true)
		kv, err := c.Bucket(within(t), c.names.BucketNodes())
		if err == nil {
			err = kv.Delete(within(t), wire.KeyLeader)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLeaseWithoutServer(t *testing.T) {
	t.Parallel()
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{Lease: leaseLife})
	l := newLease(t, c, wire.KeyLeader, "")
	renew(t, l, true)
	if err := server.Shutdown(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnect", func() bool { return !c.Connected() })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	held, err := l.Renew(ctx)
	if err == nil || held != l.Held() {
		t.Errorf("held %v, %v", held, err)
	}
	eventually(t, "the local end", func() bool { return !l.Held() })
	if err := l.Release(ctx); err == nil {
		t.Error("released without a server")
	}
}

// TestLeaseKeepsExpiring: renewal must not make the key live for ever, as an
// update of a key with a life of its own does.
//
// covers: I9
func TestLeaseKeepsExpiring(t *testing.T) {
	t.Parallel()
	c := ready(t)
	l := newLease(t, c, wire.NodeKey("n1"), "")
	for range 3 {
		renew(t, l, true)
	}
	kv, err := c.Bucket(within(t), names.BucketNodes())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "expiry", func() bool {
		_, err := kv.Get(within(t), wire.NodeKey("n1"))
		return errors.Is(err, jetstream.ErrKeyNotFound)
	})
}

// crowd gathers what WatchNodes says.
type crowd struct {
	mu   sync.Mutex
	said []string
}

func (w *crowd) live(nodes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprint(nodes))
}

func (w *crowd) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.said) == 0 {
		return "nothing"
	}
	return w.said[len(w.said)-1]
}

func TestWatchNodes(t *testing.T) {
	t.Parallel()
	c := ready(t)
	b := newLease(t, c, wire.NodeKey("b"), "")
	renew(t, b, true)
	ctx, cancel := context.WithCancel(context.Background())
	var w crowd
	ended := make(chan error, 1)
	go func() { ended <- c.WatchNodes(ctx, w.live) }()
	defer func() {
		cancel()
		if err := receive(t, "end of the watch", ended); err != nil {
			t.Error(err)
		}
	}()
	is := func(what, want string) {
		t.Helper()
		eventually(t, what+" "+want, func() bool { renew(t, b, true); return w.last() == want })
	}
	is("at first", "[b]")
	renew(t, newLease(t, c, wire.KeyLeader, ""), true) // is no node
	a := newLease(t, c, wire.NodeKey("a"), "")
	renew(t, a, true)
	is("joined", "[a b]")
	if err := a.Release(within(t)); err != nil {
		t.Fatal(err)
	}
	is("left", "[b]")
	renew(t, newLease(t, c, wire.NodeKey("dies"), ""), true)
	is("joined", "[b dies]")
	is("expired", "[b]")
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := []string{"[b]", "[a b]", "[b]", "[b dies]", "[b]"}; !slices.Equal(w.said, want) {
		t.Errorf("said %v, want %v: renewals are no news", w.said, want)
	}
}

func TestWatchNodesEmpty(t *testing.T) {
	c := ready(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended, said := make(chan error, 1), make(chan []string, 1)
	go func() { ended <- c.WatchNodes(ctx, func(nodes []string) { said <- nodes }) }()
	if nodes := receive(t, "that no node lives", said); len(nodes) != 0 {
		t.Errorf("%v", nodes)
	}
	cancel()
	if err := receive(t, "end of the watch", ended); err != nil {
		t.Error(err)
	}
}

// TestWatchNodesOverARestart: a server that is restarted has forgotten the watch.
// No node that renews is dropped for it, and a node that joins is seen.
//
// covers: E29, inv11
func TestWatchNodesOverARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := serve(t, natsserver.Options{Dir: dir})
	u, err := url.Parse(first.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, first.ClientURL())
	setUp(t, c, StreamConfig{Lease: leaseLife})
	a := newLease(t, c, wire.NodeKey("a"), "")
	renew(t, a, true)
	ctx, cancel := context.WithCancel(context.Background())
	var w crowd
	ended := make(chan error, 1)
	go func() { ended <- c.WatchNodes(ctx, w.live) }()
	defer func() {
		cancel()
		if err := receive(t, "end of the watch", ended); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "a seen", func() bool { return w.last() == "[a]" })
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnect", func() bool { return !c.Connected() })
	serve(t, natsserver.Options{Dir: dir, Port: port})
	eventually(t, "reconnect", c.Connected)
	again := func(l *Lease) { _, _ = l.Renew(within(t)) } // it may be free for a moment: that is not what is tried
	eventually(t, "a renewed", func() bool { again(a); return a.Held() })
	b := newLease(t, c, wire.NodeKey("b"), "")
	eventually(t, "b seen", func() bool { again(a); again(b); return strings.Contains(w.last(), "b") })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, said := range w.said {
		if said == "[]" {
			t.Errorf("said %v: none, while a renewed its lease", w.said)
		}
	}
}

// TestLeaseCountsFromItsRequest: an answer that comes late makes a lease no longer: the
// server has counted since before.
//
// covers: inv4
func TestLeaseCountsFromItsRequest(t *testing.T) {
	c := ready(t)
	l := newLease(t, c, wire.KeyLeader, "")
	now, late := time.Now(), time.Duration(0)
	l.clock = func() time.Time {
		was := now
		now, late = now.Add(late), 0 // the next look is that much later
		return was
	}
	renew(t, l, true)
	late = leaseLife
	if held, err := l.Renew(within(t)); err != nil || held {
		t.Errorf("held %v, %v, when the answer came after the end", held, err)
	}
}

// TestLeaseTerm: a holder finds by itself that the lease may have been another's: by its own clock before it renews, by that of
// the wall where the other stood still, and by the server's word. A renewal in time, and one of which the answer is lost, are
// no gaps.
//
// covers: inv4
func TestLeaseTerm(t *testing.T) {
	c := ready(t)
	l := newLease(t, c, wire.KeyLeader, "")
	now := time.Now()
	l.clock = func() time.Time { return now }
	last := l.Term()
	is := func(when string, same bool) {
		t.Helper()
		if term := l.Term(); (term == last) != same || term < last {
			t.Errorf("%s: term %d after %d", when, term, last)
		}
		last = l.Term()
	}
	is("before the first renewal", false)
	renew(t, l, true)
	is("taken", false)
	is("held", true)
	now = now.Add(leaseLife - time.Millisecond)
	is("just before its end", true)
	renew(t, l, true)
	is("renewed late, in time", true)
	now = now.Add(leaseLife)
	is("at its end", false)
	is("without it", false)
	renew(t, l, true)
	is("renewed after its end", false)
	is("held again", true)
	now = now.Add(leaseLife)
	renew(t, l, true) // before anyone has asked
	is("after a gap that no one saw", false)
	if l.ended(now, now.Round(0)) || !l.ended(now, now.Round(0).Add(leaseLife)) {
		t.Error("a machine that was suspended takes the lease for its own")
	}
	kv, err := c.Bucket(within(t), names.BucketNodes())
	if err == nil {
		_, err = kv.Update(within(t), wire.KeyLeader, l.body, l.rev)
	}
	if err != nil {
		t.Fatal(err)
	}
	renew(t, l, true)
	renew(t, l, true)
	is("after a lost answer", true)
	if err := kv.Delete(within(t), wire.KeyLeader); err != nil {
		t.Fatal(err)
	}
	renew(t, l, true)
	is("after the server had let it go", false)
}
