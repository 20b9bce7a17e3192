package scheduler_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A committer that is busy lets more arrive before its next commit; one that is
// not keeps nobody waiting, and a stop is never held up.
func TestBusyCommitterGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		var mu sync.Mutex
		var births []time.Time
		c.store.AfterCommit = func(b *core.Batch, _ core.CommitResult) error {
			mu.Lock()
			defer mu.Unlock()
			if len(b.Writes) > 0 {
				births = append(births, time.Now())
			}
			return nil
		}
		n := c.run("a", func(cfg *scheduler.RunConfig) { cfg.Shards, cfg.CommitGap = 1, time.Second })
		c.setLive("a")
		pass(time.Second)
		sent := 0
		send := func(count int) {
			subs := make([]core.Submission, count)
			for i := range subs {
				sent++
				subs[i] = order("t" + strconv.Itoa(sent))
			}
			c.submit(0, subs...)
			pass(20 * time.Millisecond) // the stream is looked at every 10 ms
		}
		send(1)
		send(1)
		send(60) // from now on the committer is busy
		send(1)
		mu.Lock()
		if len(births) < 3 || births[1].Sub(births[0]) > 30*time.Millisecond {
			t.Errorf("commits at %v: the first two should not wait", births)
		}
		before := len(births)
		mu.Unlock()
		pass(2 * time.Second)
		mu.Lock()
		if after := len(births); after != before+1 && after != before {
			t.Errorf("%d commits after the busy one, want what came meanwhile in one", after-before)
		}
		if last, busy := births[len(births)-1], births[2]; last.Sub(busy) < time.Second {
			t.Errorf("the next commit came after %v, want a second", last.Sub(busy))
		}
		mu.Unlock()
		send(60)
		send(1)
		began := time.Now()
		c.end(n)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// While the door of its node is flooded a committer rests after each turn, whatever
// it wrote, and takes what came meanwhile in one; not before, not after, and not where
// that is switched off.
func TestFloodedCommitterRests(t *testing.T) {
	for _, gap := range []time.Duration{time.Second, 0, -1} { // 0: the default
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.answer = -1
			var flood atomic.Bool
			n := c.run("a", func(cfg *scheduler.RunConfig) {
				cfg.Shards, cfg.CommitGap, cfg.FloodGap, cfg.Flooded = 1, -1, gap, flood.Load
			})
			c.setLive("a")
			pass(time.Second)
			sent := 0
			// commits submits ten tasks one after the other and gives how many commits that were.
			commits := func() int {
				var mu sync.Mutex
				count := 0
				c.store.AfterCommit = func(b *core.Batch, _ core.CommitResult) error {
					mu.Lock()
					defer mu.Unlock()
					if len(b.Writes) > 0 {
						count++
					}
					return nil
				}
				for range 10 {
					sent++
					c.submit(0, order("t"+strconv.Itoa(sent)))
					pass(20 * time.Millisecond) // the stream is looked at every 10 ms
				}
				pass(2 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				return count
			}
			if got := commits(); got < 10 {
				t.Errorf("%d commits without a flood, want one for each", got)
			}
			flood.Store(true)
			if got := commits(); gap >= 0 && got > 4 || gap < 0 && got < 10 {
				t.Errorf("gap %v: %d commits in a flood", gap, got)
			}
			flood.Store(false)
			pass(time.Second) // a rest that has begun ends
			if got := commits(); got < 10 {
				t.Errorf("%d commits after the flood, want one for each", got)
			}
			began := time.Now()
			c.end(n)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}
