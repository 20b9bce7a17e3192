package scheduler_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// many are submissions of that name.
func many(n int, name string) []core.Submission {
	subs := make([]core.Submission, n)
	for i := range subs {
		subs[i] = order(fmt.Sprint(name, i))
	}
	return subs
}

// quickly has the first committer do some tasks in little time.
func (c *cluster) quickly() {
	c.t.Helper()
	for _, sub := range many(20, "quick") {
		c.submit(0, sub)
		pass(20 * time.Millisecond)
	}
	pass(400 * time.Millisecond)
	c.want(core.StateProcessed, 0, "quick0", "quick19")
}

// A committer that takes a partition over, or waits until old tasks are forgotten, keeps no other waiting.
func TestOneCommitterHoldsNoOtherUp(t *testing.T) {
	t.Run("a takeover", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.setLive("a")
			n := c.run("a", nil)
			pass(time.Second)
			c.store.takes.Store(int64(5 * time.Second))
			c.lost[1](errCut)
			pass(time.Second)
			c.quickly()
			if e := c.store.Partition(1).Epoch; e != 1 {
				t.Errorf("the takeover is over already: epoch %d", e)
			}
			pass(5 * time.Second)
			if e := c.store.Partition(1).Epoch; e != 2 {
				t.Errorf("epoch %d after the takeover", e)
			}
			c.end(n)
		})
	})
	t.Run("forgetting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			n, control := c.forgetting()
			control()
			c.quickly()
			if c.store.Task(1, "none") != nil {
				t.Error("the control did not wait for forgetting")
			}
			pass(time.Minute)
			c.want(core.StateUndone, 1, "none")
			c.end(n)
		})
	})
}

// forgetting is a node that forgets old tasks of its second committer, slowly, and a
// control for that one, which may resume such a task.
func (c *cluster) forgetting() (n *node, control func()) {
	c.store.forgets.Store(int64(5 * time.Second))
	c.setLive("a")
	n = c.run("a", func(cfg *scheduler.RunConfig) { cfg.Retain.Detail = time.Hour })
	pass(3 * time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.ears[1][0]
	return n, func() {
		in.Control(scheduler.ControlMail{Partition: 1, Pos: 1, Control: core.Control{Kind: core.EventCancel, ID: "none", Type: "order", Actor: "olga"}, Ack: func() {}})
	}
}

// Each committer commits the partitions of its own shard, and no others.
func TestCommittersAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var fails atomic.Bool
		c.store.BeforeCommit = func(b *core.Batch) error {
			for i := range b.Partitions {
				if b.Partitions[i].Partition%3 != b.Partitions[0].Partition%3 {
					t.Errorf("partitions %d and %d in one commit", b.Partitions[0].Partition, b.Partitions[i].Partition)
				}
			}
			if fails.Load() && b.Partitions[0].Partition%3 == 1 {
				return errCut // it costs the other committers nothing
			}
			return nil
		}
		n := c.run("a", func(cfg *scheduler.RunConfig) { cfg.Shards = 3 })
		c.setLive("a")
		pass(time.Second)
		fails.Store(true)
		for p := range 3 {
			c.submit(p, many(10, fmt.Sprint("p", p, "-"))...)
		}
		pass(5 * time.Second)
		c.want(core.StateProcessed, 0, "p0-0", "p0-9")
		c.want(core.StateProcessed, 2, "p2-0", "p2-9")
		if epochs := []int64{c.store.Partition(0).Epoch, c.store.Partition(2).Epoch}; !slices.Equal(epochs, []int64{1, 1}) {
			t.Errorf("partitions 0 and 2 were taken over again: epochs %v", epochs)
		}
		fails.Store(false)
		pass(5 * time.Second)
		c.want(core.StateProcessed, 1, "p1-0", "p1-9")
		c.end(n)
	})
}
