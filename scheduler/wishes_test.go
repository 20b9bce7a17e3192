package scheduler_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Pins count where their node is live; a node that has stepped down owns the partition again when it is the only one, or
// when the time is over.
func TestPlaceBy(t *testing.T) {
	const n, p, now = 16, 3, core.Instant(1000)
	live := nodes(3)
	plain := scheduler.Place(live, n)
	other := live[(slices.Index(live, plain[p])+1)%len(live)]
	for name, c := range map[string]struct {
		live []string
		wish core.Wish
		want string // empty: any but the owner without the wish
	}{
		"pinned":                                      {live, core.Wish{Partition: p, Node: other}, other},
		"pinned to its owner":                         {live, core.Wish{Partition: p, Node: plain[p]}, plain[p]},
		"pinned to a node that is not":                {live, core.Wish{Partition: p, Node: "gone"}, plain[p]},
		"stepped down":                                {live, core.Wish{Partition: p, Avoid: plain[p], Until: now + 1}, ""},
		"stepped down until now":                      {live, core.Wish{Partition: p, Avoid: plain[p], Until: now}, plain[p]},
		"another has stepped down":                    {live, core.Wish{Partition: p, Avoid: other, Until: now + 1}, plain[p]},
		"stepped down, alone":                         {[]string{plain[p]}, core.Wish{Partition: p, Avoid: plain[p], Until: now + 1}, plain[p]},
		"pinned and stepped down":                     {live, core.Wish{Partition: p, Node: plain[p], Avoid: plain[p], Until: now + 1}, plain[p]},
		"pinned to one that is not, and stepped down": {live, core.Wish{Partition: p, Node: "gone", Avoid: plain[p], Until: now + 1}, ""},
		"below":  {live, core.Wish{Partition: -1, Node: other}, plain[p]},
		"beyond": {live, core.Wish{Partition: n, Node: other}, plain[p]},
	} {
		got := scheduler.PlaceBy(c.live, n, []core.Wish{c.wish}, now)
		if got[p] != c.want && (c.want != "" || got[p] == plain[p]) {
			t.Errorf("%s: %s, want %s", name, got[p], c.want)
		}
		if c.want == other { // it counts to the part of its node, which has one of the others less
			for node, has := range sharesOf(got) {
				if has < n/3 || has > n/3+1 {
					t.Errorf("%s: %s has %d", name, node, has)
				}
			}
			continue
		}
		if want := scheduler.Place(c.live, n); !slices.Equal(slices.Delete(got, p, p+1), slices.Delete(want, p, p+1)) {
			t.Errorf("%s: of the others %v, want %v", name, got, want)
		}
	}
	if got := scheduler.PlaceBy(nil, n, []core.Wish{{Partition: p, Node: other}, {Partition: p, Avoid: "", Until: now + 1}}, now); slices.ContainsFunc(got, func(o string) bool { return o != "" }) {
		t.Errorf("without nodes: %v", got)
	}
}

// Of many wishes: a node to which more is pinned than its part has that alone, and what nodes have stepped down from is shared
// out evenly among the others, in whatever order the wishes come.
func TestPlaceByMany(t *testing.T) {
	const n, now = 16, core.Instant(1000)
	live := nodes(3)
	var pins, avoids []core.Wish
	for p := range 10 {
		pins = append(pins, core.Wish{Partition: p, Node: "node-1"})
	}
	plain := scheduler.Place(live, n)
	for p, owner := range plain {
		if owner != "node-2" {
			avoids = append(avoids, core.Wish{Partition: p, Avoid: owner, Until: now + 1})
		}
	}
	if got := sharesOf(scheduler.PlaceBy(live, n, pins, now)); !maps.Equal(got, map[string]int{"node-1": 10, "node-2": 3, "node-3": 3}) {
		t.Errorf("ten pinned: %v", got)
	}
	got := scheduler.PlaceBy(live, n, avoids, now)
	for p, owner := range got {
		if (owner == plain[p]) != (owner == "node-2" && plain[p] == "node-2") {
			t.Errorf("partition %d, which was %s's, is %s's", p, plain[p], owner)
		}
	}
	slices.Reverse(avoids)
	if again := scheduler.PlaceBy(live, n, avoids, now); !slices.Equal(got, again) {
		t.Errorf("%v, in another order %v", got, again)
	}
	one := slices.DeleteFunc(avoids, func(w core.Wish) bool { return w.Avoid != "node-1" })
	got = scheduler.PlaceBy(live, n, one, now)
	if shares := sharesOf(got); !maps.Equal(shares, map[string]int{"node-2": 8, "node-3": 8}) {
		t.Errorf("node-1 has stepped down from all: %v", shares)
	}
}

// wishes tells nodes where operators want partitions to be.
type wishes struct {
	mu    sync.Mutex
	all   []core.Wish
	hears []func([]core.Wish)
}

func (w *wishes) set(all ...core.Wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = all
	for _, heard := range w.hears {
		heard(all)
	}
}

func (w *wishes) watch(cfg *scheduler.RunConfig) {
	cfg.Wishes = func(ctx context.Context, heard func([]core.Wish)) error {
		w.mu.Lock()
		w.hears = append(w.hears, heard)
		heard(w.all)
		w.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
}

// A pin moves its partition to the node, which gives another for it, in order: what is out is answered before; without the pin
// it goes back. A node that starts takes nothing that is pinned elsewhere.
func TestPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		w := &wishes{}
		c.setLive("n1", "n2")
		n1, n2 := c.run("n1", w.watch), c.run("n2", w.watch)
		pass(2 * time.Second)
		p := shareOf("n1", "n1", "n2")[0]
		mine := n1.s.Owned() // half, whatever is pinned
		c.answer = time.Second
		c.submit(p, order("t1"))
		pass(500 * time.Millisecond)
		c.store.takenFrom()
		w.set(core.Wish{Partition: p, Node: "n2"})
		pass(400 * time.Millisecond)
		if owner := c.store.Partition(p).Owner; owner != "n1" {
			t.Fatalf("partition %d is %s's while a command is out", p, owner)
		}
		pass(4 * time.Second)
		if owner := c.store.Partition(p).Owner; owner != "n2" || n1.s.Owned() != mine {
			t.Fatalf("partition %d is %s's, and n1 has %d of %d", p, owner, n1.s.Owned(), mine)
		}
		if taken := c.store.takenFrom(); !slices.Equal(taken, []string{"", ""}) {
			t.Fatalf("taken over from %q, want two that were released: it, and another in exchange", taken)
		}
		c.want(core.StateProcessed, p, "t1")
		c.end(n1)
		c.setLive("n2")
		pass(2 * time.Second)
		c.store.takenFrom()
		n1 = c.run("n1", w.watch)
		c.setLive("n1", "n2")
		pass(2 * time.Second)
		if owner := c.store.Partition(p).Owner; owner != "n2" {
			t.Fatalf("partition %d is %s's after a start", p, owner)
		}
		w.set()
		pass(2 * time.Second)
		if owner := c.store.Partition(p).Owner; owner != "n1" {
			t.Fatalf("partition %d is %s's without the pin", p, owner)
		}
		c.end(n1, n2)
	})
}

// A node that steps down lets its partition go, and may own it again when the time is over, without anything being told.
func TestStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		w := &wishes{}
		c.setLive("n1", "n2")
		n1, n2 := c.run("n1", w.watch), c.run("n2", w.watch)
		pass(2 * time.Second)
		p := shareOf("n1", "n1", "n2")[0]
		w.set(core.Wish{Partition: p, Avoid: "n1", Until: core.InstantOf(time.Now().Add(time.Minute))})
		pass(2 * time.Second)
		if owner := c.store.Partition(p).Owner; owner != "n2" {
			t.Fatalf("partition %d is %s's", p, owner)
		}
		c.submit(p, order("t1"))
		pass(50 * time.Second)
		c.want(core.StateProcessed, p, "t1")
		if owner := c.store.Partition(p).Owner; owner != "n2" {
			t.Fatalf("partition %d is %s's before the time is over", p, owner)
		}
		pass(12 * time.Second)
		if owner := c.store.Partition(p).Owner; owner != "n1" {
			t.Fatalf("partition %d is %s's when the time is over", p, owner)
		}
		c.end(n1, n2)
	})
}

// A scheduler that cannot hear what operators want goes on without it after a while.
func TestWishesAreNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) {
			cfg.Wishes = func(ctx context.Context, _ func([]core.Wish)) error {
				<-ctx.Done()
				return fmt.Errorf("cut: %w", ctx.Err())
			}
		})
		pass(time.Second)
		if n := n1.s.Owned(); n != 0 {
			t.Errorf("%d partitions are taken over at once", n)
		}
		pass(3 * time.Second)
		if n := n1.s.Owned(); n != 8 {
			t.Errorf("%d partitions are owned, want all", n)
		}
		c.end(n1)
	})
}
