package scheduler_test

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// commitTimes makes the cluster keep when it committed tasks, and gives a look at it.
func commitTimes(c *cluster) func() []time.Time {
	var mu sync.Mutex
	var times []time.Time
	c.store.AfterCommit = func(b *core.Batch, _ core.CommitResult) error {
		mu.Lock()
		defer mu.Unlock()
		if len(b.Writes) > 0 {
			times = append(times, time.Now())
		}
		return nil
	}
	return func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(times)
	}
}

// A committer that is busy lets more arrive before its next commit, for longer the
// more it wrote; one that is not keeps nobody waiting, and a stop is never held up.
func TestBusyCommitterGathers(t *testing.T) {
	for wrote, wait := range map[int]time.Duration{1: 0, 2: 250 * time.Millisecond, 6: 750 * time.Millisecond, 8: time.Second, 60: time.Second, 1000: 0} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.answer = -1
			commits := commitTimes(c)
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
			send(wrote)
			if got := len(commits()); got != 1 {
				t.Fatalf("%d commits after a quiet time, want one at once", got)
			}
			send(1)
			send(1)
			pass(2 * time.Second)
			at := commits()
			if wait == 0 && len(at) != 3 || wait > 0 && len(at) != 2 {
				t.Fatalf("commits at %v after one that wrote %d", at, wrote)
			}
			if took := at[1].Sub(at[0]); took < wait || took > wait+30*time.Millisecond {
				t.Errorf("the next commit came %v after one that wrote %d, want %v", took, wrote, wait)
			}
			send(60)
			send(1)
			began := time.Now()
			c.end(n)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}

// When everybody has answered there is no company to wait for. In a flood the rest is
// the door's all the same.
func TestCommitterGoesWhenAllHaveAnswered(t *testing.T) {
	for _, tc := range []struct {
		name          string
		silent, flood bool          // one task's agent never answers; the door is flooded
		floodGap      time.Duration // negative: a flood is as any time
		quick         bool
	}{
		{"all answer", false, false, time.Second, true},
		{"one is silent", true, false, time.Second, false},
		{"in a flood", false, true, time.Second, false},
		{"in a flood without a rest", false, true, -1, true},
		{"one is silent in a flood without a rest", true, true, -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.answer = -1
				var flood atomic.Bool
				n := c.run("a", func(cfg *scheduler.RunConfig) {
					cfg.Shards, cfg.CommitGap, cfg.FloodGap, cfg.Flooded = 1, time.Second, tc.floodGap, flood.Load
				})
				c.setLive("a")
				pass(time.Second)
				flood.Store(tc.flood)
				if tc.silent {
					c.submit(1, order("silent"))
					pass(20 * time.Millisecond)
				}
				c.mu.Lock()
				c.answer = 5 * time.Millisecond
				c.mu.Unlock()
				c.submit(0, orders(60)...)
				pass(100 * time.Millisecond)
				task := c.store.Task(0, "t1")
				if quick := task != nil && task.State.Ended(); quick != tc.quick {
					t.Errorf("ended in a tenth of the gap: %v, want %v", quick, tc.quick)
				}
				pass(10 * time.Second)
				c.want(core.StateProcessed, 0, "t1", "t60")
				c.end(n)
			})
		})
	}
}

// While the door of its node is flooded a committer rests after each turn, whatever
// it wrote, and takes what came meanwhile in one; not before, not after, and not where
// that is switched off.
//
// covers: I6
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
			times := commitTimes(c)
			// commits submits ten tasks one after the other and gives how many commits that were.
			commits := func() int {
				before := len(times())
				for range 10 {
					sent++
					c.submit(0, order("t"+strconv.Itoa(sent)))
					pass(20 * time.Millisecond) // the stream is looked at every 10 ms
				}
				pass(2 * time.Second)
				return len(times()) - before
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
