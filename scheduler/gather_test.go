package scheduler_test

import (
	"strconv"
	"sync"
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
