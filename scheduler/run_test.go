package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Nodes share the partitions as Place says; when one dies, the others take over
// what it had and finish its tasks.
//
// covers: E3, S22, S38, I9, I19, T9
func TestNodesShareAndTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1", "n2")
		crash := func(cfg *scheduler.RunConfig) { cfg.DrainMax = -1 }
		n1, n2 := c.run("n1", nil), c.run("n2", crash)
		pass(time.Second)
		owners := scheduler.Place([]string{"n1", "n2"}, 8)
		for p, owner := range owners {
			if got := c.store.Partition(p).Owner; got != owner {
				t.Errorf("partition %d is owned by %s, want %s", p, got, owner)
			}
			c.submit(p, order(fmt.Sprintf("t%d", p)))
		}
		if n1.s.Owned()+n2.s.Owned() != 8 || n2.s.Owned() == 0 {
			t.Errorf("owned %d and %d", n1.s.Owned(), n2.s.Owned())
		}
		pass(150 * time.Millisecond) // b is out
		c.end(n2)
		if n2.s.Owned() != 0 {
			t.Errorf("a stopped node owns %d", n2.s.Owned())
		}
		c.setLive("n1")
		pass(time.Second)
		for p := range owners {
			c.want(core.StateProcessed, p, fmt.Sprintf("t%d", p))
		}
		if n1.s.Owned() != 8 {
			t.Errorf("owned %d", n1.s.Owned())
		}
		c.end(n1)
	})
}

// A node that is not among the living owns nothing; one whose own name has been
// seen goes on when the list is lost for a while.
//
// covers: E31, inv11
func TestNotAmongTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("other")
		n1 := c.run("n1", nil)
		pass(time.Minute)
		if n1.s.Owned() != 0 {
			t.Fatalf("owned %d", n1.s.Owned())
		}
		c.setLive("n1")
		pass(time.Second)
		if n1.s.Owned() != 8 {
			t.Fatalf("owned %d", n1.s.Owned())
		}
		c.store.takenFrom()
		c.setLive()
		pass(time.Second)
		c.submit(3, order("t3"))
		pass(time.Second)
		c.want(core.StateProcessed, 3, "t3")
		c.setLive("n1")
		pass(time.Second)
		if taken := c.store.takenFrom(); n1.s.Owned() != 8 || len(taken) != 0 {
			t.Fatalf("owned %d; taken over again %d, though no other node was there", n1.s.Owned(), len(taken))
		}
		c.end(n1)
	})
}

// A planned handover drains first: the new owner waits for the release.
//
// covers: E12, I9, inv4
func TestPlannedHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = 2 * time.Second
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		for p := range 8 {
			c.submit(p, order(fmt.Sprintf("t%d", p)))
		}
		pass(time.Second)
		c.store.takenFrom()
		c.setLive("n1", "n2")
		n2 := c.run("n2", nil)
		pass(900 * time.Millisecond)
		if n2.s.Owned() != 0 {
			t.Fatalf("n2 took %d partitions that have commands out", n2.s.Owned())
		}
		pass(3500 * time.Millisecond) // their drains took place together
		taken := c.store.takenFrom()
		if len(taken) == 0 || len(taken) != n2.s.Owned() || slices.ContainsFunc(taken, func(owner string) bool { return owner != "" }) {
			t.Fatalf("taken from %q", taken)
		}
		for p := range 8 {
			c.want(core.StateProcessed, p, fmt.Sprintf("t%d", p))
		}
		c.end(n1, n2)
	})
}

// Nodes that start together take no partition from each other: what the first was
// to take over while it was alone is not taken from the second, which has it by now.
func TestStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		warned := &warnings{}
		c.logs = slog.New(warned)
		c.store.takes.Store(int64(50 * time.Millisecond))
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(10 * time.Millisecond)
		c.setLive("n1", "n2")
		n2 := c.run("n2", nil)
		pass(2 * time.Second)
		if taken := c.store.takenFrom(); slices.ContainsFunc(taken, func(owner string) bool { return owner != "" }) {
			t.Errorf("partitions were taken from %q, want from none", taken)
		}
		if one, two := n1.s.Owned(), n2.s.Owned(); one+two != 8 || two != len(shareOf("n2", "n1", "n2")) {
			t.Errorf("they own %d and %d", one, two)
		}
		if n := warned.n.Load(); n != 0 {
			t.Errorf("%d warnings about a start", n)
		}
		c.end(n1, n2)
	})
}

// warnings counts what is logged above info.
type warnings struct{ n atomic.Int64 }

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level > slog.LevelInfo }

func (w *warnings) Handle(context.Context, slog.Record) error {
	w.n.Add(1)
	return nil
}

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w *warnings) WithGroup(string) slog.Handler      { return w }

// A live owner that never lets go is not waited for without end; its next commit
// is fenced, and nothing of it leaves.
func TestHandoverHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("zombie", "n1")
		for p := range 8 {
			if _, err := c.store.TakeOver(t.Context(), p, core.Claim{Owner: "zombie"}); err != nil {
				t.Fatal(err)
			}
		}
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.HandoverMax = 3 * time.Second })
		pass(2900 * time.Millisecond)
		if n1.s.Owned() != 0 {
			t.Fatal("took a partition of a live node at once")
		}
		pass(2 * time.Second)
		if want := len(shareOf("n1", "n1", "zombie")); n1.s.Owned() != want {
			t.Fatalf("owned %d, want %d", n1.s.Owned(), want)
		}
		c.end(n1)
	})
}

func shareOf(name string, nodes ...string) []int {
	var mine []int
	for p, owner := range scheduler.Place(nodes, 8) {
		if owner == name {
			mine = append(mine, p)
		}
	}
	return mine
}

// A stop waits for the commands that are out, commits the cursors and releases
// the partitions; work that came meanwhile is left to the next owner.
//
// covers: I9
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = time.Second
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		pos := c.submit(3, order("t1"))
		pass(100 * time.Millisecond)
		n1.stop()
		late := c.submit(3, order("t2"))
		pass(500 * time.Millisecond)
		select {
		case <-n1.done:
			t.Fatal("it did not wait for the command that is out")
		default:
		}
		c.end(n1)
		c.want(core.StateProcessed, 3, "t1")
		if st := c.store.Partition(3); st.Owner != "" || st.Cursor != pos || st.Told != 1 {
			t.Fatalf("left %+v", st)
		}
		if c.store.Task(3, "t2") != nil || c.acked[late] || !c.acked[pos] {
			t.Fatalf("acked %v", c.acked)
		}
	})
}

// The wait of a stop has an end.
func TestDrainHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.DrainMax = 2 * time.Second })
		pass(time.Second)
		c.submit(3, order("t1"))
		pass(100 * time.Millisecond)
		start := time.Now()
		c.end(n1)
		if took := time.Since(start); took < 1600*time.Millisecond || took > 2*time.Second {
			t.Fatalf("the stop took %v", took)
		}
		if st := c.store.Partition(3); st.Owner != "" || st.Cursor != 1 {
			t.Fatalf("left %+v", st)
		}
	})
}

// An abrupt stop is over at once, commits and releases nothing, and leaves no
// goroutine: the bubble would not end.
//
// covers: E3
func TestAbruptStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.DrainMax = -1; cfg.InFlight = 1 })
		pass(time.Second)
		c.submit(3, order("t1"))
		c.submit(3, order("t2")) // waits at the gate
		pass(100 * time.Millisecond)
		start := time.Now()
		c.end(n1)
		if time.Since(start) != 0 {
			t.Fatalf("the stop took %v", time.Since(start))
		}
		if st := c.store.Partition(3); st.Owner != "n1" {
			t.Fatalf("left %+v", st)
		}
	})
}

// A foreign row under our own epoch ends Run, drained, with the error.
//
// covers: inv4
func TestForeignRowEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		c.store.BeforeCommit = func(b *core.Batch) error {
			if len(b.Writes) > 0 {
				return fmt.Errorf("row 1: %w", core.ErrForeignRow)
			}
			return nil
		}
		c.submit(3, order("t1"))
		if <-n1.done; !errors.Is(n1.err, core.ErrForeignRow) {
			t.Fatalf("ended with %v", n1.err)
		}
		if len(c.ears[3])+len(c.ears[4]) != 0 {
			t.Fatal("it still listens")
		}
	})
}

// Any other failure of a cycle costs a takeover, no task.
//
// covers: E10
func TestFailedCycleIsTakenOverAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.failing = 3
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(3 * time.Second)
		var commits atomic.Int32
		c.store.BeforeCommit = func(*core.Batch) error {
			if commits.Add(1) <= 3 {
				return errCut
			}
			return nil
		}
		for p := range 8 {
			c.submit(p, order(fmt.Sprintf("t%d", p)))
		}
		pass(10 * time.Second)
		for p := range 8 {
			c.want(core.StateProcessed, p, fmt.Sprintf("t%d", p))
		}
		c.end(n1)
	})
}

// When the reader is taken away, the partition is let go and, if it is still
// ours by placement, taken again. The news about an ownership before is no news.
//
// covers: E12
func TestReaderLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		lost := c.lost[3]
		lost(errCut)
		pass(2 * time.Second)
		if e := c.store.Partition(3).Epoch; e != 2 {
			t.Fatalf("epoch %d", e)
		}
		lost(errCut)
		pass(2 * time.Second)
		if e := c.store.Partition(3).Epoch; e != 2 || n1.s.Owned() != 8 {
			t.Fatalf("epoch %d, owned %d", e, n1.s.Owned())
		}
		c.end(n1)
	})
}

// A stream that ends before its cursor is read again from its beginning, once, and the
// other one goes on where it is.
//
// covers: A6
func TestReaderRewound(t *testing.T) {
	for _, c := range []struct {
		why            error
		tasks, control uint64
	}{{scheduler.ErrRewound, 0, 50}, {scheduler.ErrControlRewound, 40, 0}, {errCut, 40, 50}} {
		synctest.Test(t, func(t *testing.T) {
			x := newCluster(t)
			x.setLive("n1")
			n1 := x.run("n1", nil)
			pass(time.Second)
			x.store.SetStream(3, "stream-1", 40, 50)
			x.lost[3](fmt.Errorf("reader: %w", c.why))
			pass(2 * time.Second)
			if st := x.store.Partition(3); st.Epoch != 2 || st.Cursor != c.tasks || st.ControlCursor != c.control || n1.s.Owned() != 8 {
				t.Errorf("%v: %+v", c.why, st)
			}
			x.store.SetStream(3, "stream-1", 60, 70)
			x.lost[3](errCut)
			pass(2 * time.Second)
			if st := x.store.Partition(3); st.Epoch != 3 || st.Cursor != 60 || st.ControlCursor != 70 {
				t.Errorf("%v, the second time: %+v", c.why, st)
			}
			x.end(n1)
		})
	}
}

// Run ends with the error of the list of the living, and without one when
// its caller stops it, whatever their cause.
func TestEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		cfg := scheduler.RunConfig{Config: scheduler.Config{Node: "n1", Now: func() core.Instant { return 1 }}, Partitions: 8, Rand: chance("n1")}
		s := scheduler.New(cfg, c.store, c, c, failingMembers{}, c.logs)
		if err := s.Run(t.Context()); !errors.Is(err, errCut) {
			t.Fatalf("ended with %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("another role has failed"))
		s = scheduler.New(cfg, c.store, c, c, c, c.logs)
		if err := s.Run(ctx); err != nil {
			t.Fatalf("ended with %v", err)
		}
	})
}

type failingMembers struct{}

func (failingMembers) Watch(context.Context, func([]string)) error { return errCut }
