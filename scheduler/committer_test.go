package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Parked tasks of a partition that was taken over are taken up although no mail
// comes.
func TestParkedTasksAfterATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, scheduler.Config{AgentWindow: 1})
		r.now = core.InstantOf(time.Now())
		r.tasks(0, orders(3)...)
		r.cycle()
		r.answer(r.one(), 0)
		r.cycle()
		cmds := r.bus.take()
		r.answer(cmds[0], core.CodeRefused) // t1 is undone
		r.answer(cmds[1], core.CodeRefused) // t2 too; t3 stays parked as the owner dies
		r.store.AfterCommit = func(*core.Batch, core.CommitResult) error { return errCut }
		if _, err := r.try(false); err == nil {
			t.Fatal("no error")
		}
		r.store.AfterCommit = nil

		c := newCluster(t)
		c.store.MemStore = r.store
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(5 * time.Second)
		c.want(core.StateProcessed, 0, "t3")
		c.end(n1)
	})
}

// While a commit that only moves a position is slow, agents work and answer, messages are read, and the other committer's
// tasks go on to their ends. What was answered and read meanwhile is in the commit after it.
//
// covers: I11
func TestWorkGoesOnWhileAPositionIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = 400 * time.Millisecond
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		c.store.positions.Store(int64(3 * time.Second))
		pos := c.submit(0, order("early"))
		pass(300 * time.Millisecond)
		for p := range 8 {
			c.submit(p, order(fmt.Sprintf("t%d", p)))
		}
		pass(1200 * time.Millisecond)
		if cursor := c.store.Partition(0).Cursor; cursor >= pos {
			t.Fatalf("position %d is written, of %d: nothing is slow", cursor, pos)
		}
		ended := 0
		for p := range 8 {
			if task := c.store.Task(p, fmt.Sprintf("t%d", p)); task != nil && task.State == core.StateProcessed {
				ended++
			}
		}
		if ended != 4 {
			t.Errorf("while a position was written %d tasks ended, want the 4 of the other committer", ended)
		}
		c.store.positions.Store(0) // of those to come
		pass(3 * time.Second)
		for p := range 8 {
			c.want(core.StateProcessed, p, fmt.Sprintf("t%d", p))
		}
		c.want(core.StateProcessed, 0, "early")
		if task := c.store.Task(0, "early"); task.Failures != 0 || c.store.Partition(0).Cursor < pos {
			t.Errorf("%d failures, position %d, want none and at least %d", task.Failures, c.store.Partition(0).Cursor, pos)
		}
		c.end(n1)
	})
}

// A cursor that moved is committed within FlushEvery, also while other
// partitions keep the shard busy.
//
// covers: I10
func TestFlushWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.Shards = 1 })
		pass(time.Second)
		pos := c.submit(1) // nothing but a position
		for i := range 30 {
			c.submit(0, order(fmt.Sprintf("t%d", i)))
			pass(20 * time.Millisecond)
		}
		if got := c.store.Partition(1).Cursor; got != pos {
			t.Fatalf("cursor %d, want %d", got, pos)
		}
		c.end(n1)
	})
}

// A partition is handed over as soon as it is drained, however busy the others
// of its shard are.
func TestHandoverWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.Shards = 1 })
		busy := shareOf("n1", "n1", "n2")[0]
		for i := range 300 {
			c.submit(busy, order(fmt.Sprintf("t%d", i)))
			pass(10 * time.Millisecond)
			if i == 100 {
				c.setLive("n1", "n2")
			}
		}
		if want := len(shareOf("n1", "n1", "n2")); n1.s.Owned() != want {
			t.Fatalf("after two seconds it still owns %d, want %d", n1.s.Owned(), want)
		}
		c.end(n1)
	})
}

// A partition that is handed over starts nothing that is parked: its next owner does.
func TestHandoverOfParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.Shards, cfg.AgentWindow, cfg.DrainMax = 1, 1, 10*time.Second })
		goes := shareOf("n2", "n1", "n2")[0]
		for i := range 60 {
			c.submit(goes, order(fmt.Sprintf("t%d", i)))
		}
		pass(time.Second)
		c.setLive("n1", "n2")
		pass(time.Second)
		if want := len(shareOf("n1", "n1", "n2")); n1.s.Owned() != want {
			t.Fatalf("after a second it still owns %d partitions, want %d", n1.s.Owned(), want)
		}
		c.end(n1)
	})
}

// A drain that ends in the middle of a commit lets its partitions go, so that the
// successor need not wait, and keeps the others of its shard.
//
// covers: inv4
func TestHandoverEndsWithinACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.Shards, cfg.DrainMax = 1, time.Second })
		pass(time.Second)
		for p := range 8 {
			c.submit(p, order(fmt.Sprintf("t%d", p)))
		}
		pass(time.Second)
		c.store.takenFrom()
		c.store.slow.Store(int64(300 * time.Millisecond))
		c.setLive("n1", "n2")
		n2 := c.run("n2", func(cfg *scheduler.RunConfig) { cfg.Shards, cfg.DrainMax = 1, -1 })
		keeps := shareOf("n1", "n1", "n2")[0]
		for i := range 300 { // so that there is always something to commit
			c.submit(keeps, order(fmt.Sprintf("more%d", i)))
			pass(10 * time.Millisecond)
		}
		taken := c.store.takenFrom()
		if want := len(shareOf("n2", "n1", "n2")); len(taken) != want || n2.s.Owned() != want {
			t.Errorf("three seconds on %d partitions were taken over and n2 owns %d, want %d: a drain takes one", len(taken), n2.s.Owned(), want)
		}
		if slices.ContainsFunc(taken, func(owner string) bool { return owner != "" }) {
			t.Errorf("taken from %q, want partitions that were let go", taken)
		}
		n1.stop()
		c.end(n1, n2)
	})
}

// A backoff ends by itself.
func TestBackoffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.code = core.CodeAgentError
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		c.submit(0, order("t1"))
		pass(500 * time.Millisecond)
		c.mu.Lock()
		c.code = 0
		c.mu.Unlock()
		pass(5 * time.Second)
		c.want(core.StateProcessed, 0, "t1")
		c.end(n1)
	})
}

// A partition with as much in flight as it may have holds its own stream back and
// no other.
func TestGateOfABusyPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.Shards, cfg.InFlight, cfg.DrainMax = 1, 3, -1 })
		pass(time.Second)
		for i := range 9 {
			c.submit(0, order(fmt.Sprintf("t%d", i)))
		}
		pass(time.Second)
		c.submit(1, order("other"))
		pass(time.Second)
		c.want(core.StateProcessing, 1, "other")
		c.want(core.StateProcessing, 0, "t0", "t2")
		if c.store.Task(0, "t3") != nil {
			t.Fatal("more in flight than allowed")
		}
		c.end(n1)
	})
}

// While commit cycles take long, fewer tasks are in flight, down to a sixteenth of what is allowed; when they are short
// again, more by and by, although no mail comes.
//
// covers: E15, I6
func TestLongCyclesHoldNewTasksBack(t *testing.T) {
	for _, target := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.answer = -1
			c.setLive("n1")
			n1 := c.run("n1", func(cfg *scheduler.RunConfig) {
				cfg.Partitions, cfg.InFlight, cfg.CycleTarget, cfg.DrainMax, cfg.Shards = 1, 640, target, -1, 1
			})
			pass(time.Second)
			slow := 2 * scheduler.DefaultCycleTarget
			c.store.slow.Store(int64(slow))
			for i := range 120 {
				c.submit(0, order(fmt.Sprintf("t%d", i)))
			}
			pass(5 * time.Second)
			inFlight := func(id string) bool { return c.store.Task(0, id) != nil }
			if got := inFlight("t39"); !got {
				t.Errorf("target %v: the least that is always admitted is not in flight", target)
			}
			if got := inFlight("t60"); got != (target < 0) {
				t.Errorf("target %v: more than a sixteenth in flight: %v", target, got)
			}
			c.store.slow.Store(0)
			pass(scheduler.DefaultCycleTarget / 3)
			if got := inFlight("t90"); got != (target < 0) {
				t.Errorf("target %v: all at once when cycles are short again: %v", target, got)
			}
			pass(time.Minute)
			c.want(core.StateProcessing, 0, "t119")
			if n1.s.Overloaded() {
				t.Errorf("target %v: still overloaded", target)
			}
			c.end(n1)
		})
	}
}

// The announcement of a plan reaches every shard.
func TestPlansChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		for p := range 8 {
			c.submit(p, core.Submission{Type: "later", ID: "before"})
		}
		pass(100 * time.Millisecond)
		c.store.AddPlan(orderPlan("later", 1, "a"))
		n1.s.PlansChanged()
		for p := range 8 {
			c.submit(p, core.Submission{Type: "later", ID: "after"})
		}
		pass(time.Second)
		for p := range 8 {
			c.want(core.StateError, p, "before")
			c.want(core.StateProcessed, p, "after")
		}
		c.end(n1)
	})
}
