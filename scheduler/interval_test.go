package scheduler_test

import (
	"slices"
	"strconv"
	"sync"
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

// After a cycle that wrote several tasks a committer lets more arrive before the next; one that wrote a single task
// keeps no task waiting, and a stop is never held up.
func TestCommitGap(t *testing.T) {
	for wrote, wait := range map[int]time.Duration{1: 0, 2: time.Second, 60: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.answer = -1
			commits := commitTimes(c)
			n := c.run("a", func(cfg *scheduler.RunConfig) { cfg.Shards, cfg.CommitGap = 1, time.Second })
			c.setLive("a")
			pass(2 * time.Second)
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
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}

// With a negative CommitGap each cycle begins as soon as there is mail.
func TestNoCommitGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		commits := commitTimes(c)
		n := c.run("a", func(cfg *scheduler.RunConfig) { cfg.Shards, cfg.CommitGap = 1, -1 })
		c.setLive("a")
		pass(time.Second)
		for i := range 5 {
			c.submit(0, order("a"+strconv.Itoa(i)), order("b"+strconv.Itoa(i)))
			pass(20 * time.Millisecond)
		}
		if got := len(commits()); got != 5 {
			t.Errorf("%d commits, want one for each message", got)
		}
		c.end(n)
	})
}
