package scheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// What was taken over while a node was not among the living is not its own any
// more, also when there was no mail, and so no commit that was fenced; and also when
// the successor's record of its takeover is not heard.
//
// covers: E31, inv11
func TestTakenOverWithoutMail(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for _, names := range [][2]string{{"n1", "n2"}, {"n2", "n1"}} { // commits of n2 have the higher ids
			t.Run(fmt.Sprintf("deaf=%v/%s", deaf, names[0]), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { takenOverWithoutMail(t, deaf, names[0], names[1]) })
			})
		}
	}
}

func takenOverWithoutMail(t *testing.T, deaf bool, first, second string) {
	c := newCluster(t)
	c.deaf = deaf
	c.setLive(first)
	n1 := c.run(first, nil)
	pass(time.Second)
	c.setLive(second)
	n2 := c.run(second, nil)
	pass(time.Second)
	if n2.s.Owned() != 8 {
		t.Fatalf("%s owns %d", second, n2.s.Owned())
	}
	c.setLive("n1", "n2")
	pass(3 * time.Second)
	for p := range 8 {
		if got, want := c.store.Partition(p).Owner, scheduler.Place([]string{"n1", "n2"}, 8)[p]; got != want {
			t.Errorf("partition %d is %s's, want %s", p, got, want)
		}
		c.submit(p, order(fmt.Sprintf("t%d", p)))
	}
	pass(2 * time.Second)
	for p := range 8 {
		c.want(core.StateProcessed, p, fmt.Sprintf("t%d", p))
	}
	c.end(n1, n2)
}

// Two owners may have one epoch, each in its own copy of the database, where nothing was
// recorded outside: the one whose copy is gone finds out also without mail, whichever
// commit has the higher id.
func TestOwnerOfTheSameEpoch(t *testing.T) {
	for _, commit := range []int64{1, 1<<62 + 1} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.setLive("n1")
			copied := c.store.Copy()
			n1 := c.run("n1", nil)
			pass(15 * time.Second)
			for p := range 8 {
				if p != 3 {
					st := c.store.Partition(p)
					if _, err := copied.TakeOver(t.Context(), p, core.Claim{Owner: "n1", Commit: st.LastCommit, Stream: st.Stream}); err != nil {
						t.Fatal(err)
					}
				}
			}
			st, err := copied.TakeOver(t.Context(), 3, core.Claim{Owner: "n2", Commit: commit})
			if err != nil || st.Epoch != c.store.Partition(3).Epoch {
				t.Fatalf("%+v, %v", st, err)
			}
			c.store.Replace(copied)
			pass(3 * time.Second)
			for p := range 8 {
				want := int64(1)
				if p == 3 {
					want = 2
					if commit == 1 { // its own evidence is newer: it looks again, and takes over once more
						want = 3
					}
				}
				if st := c.store.Partition(p); st.Owner != "n1" || st.Epoch != want {
					t.Errorf("commit %d: partition %d: %+v, want epoch %d", commit, p, st, want)
				}
			}
			c.end(n1)
		})
	}
}

// What another owner records outside the store is heard at once, before the next
// look at the store, which may have failed over to a copy from before the takeover.
func TestSuccessorIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(15 * time.Second) // it looks at the store only now and then
		copied := c.store.Copy()
		st, err := c.store.TakeOver(t.Context(), 3, core.Claim{Owner: "n2"})
		if err != nil {
			t.Fatal(err)
		}
		c.store.Replace(copied)
		c.Record([]core.Evidence{{Partition: 3, Epoch: st.Epoch, Commit: st.LastCommit}})
		pass(time.Second)
		if epoch := c.store.Partition(3).Epoch; epoch <= st.Epoch || n1.s.Owned() != 8 {
			t.Errorf("epoch %d, after a successor's %d; %d owned", epoch, st.Epoch, n1.s.Owned())
		}
		c.end(n1)
	})
}

// What the store says is a node's, and that node does not hold, is released by it
// at once: whose it is now need not wait for a life that is over.
//
// covers: E31, inv11
func TestRowsOfAnEarlierLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for p := range 8 { // n2 had all of them, and died
			if _, err := c.store.TakeOver(t.Context(), p, core.Claim{Owner: "n2"}); err != nil {
				t.Fatal(err)
			}
		}
		c.store.takenFrom()
		c.setLive("n1", "n2")
		n1, n2 := c.run("n1", nil), c.run("n2", nil)
		pass(1500 * time.Millisecond)
		for _, n := range []*node{n1, n2} {
			if want := len(shareOf(n.name, "n1", "n2")); n.s.Owned() != want {
				t.Errorf("%s owns %d, want %d", n.name, n.s.Owned(), want)
			}
		}
		c.end(n1, n2)
	})
}

// Also when the node itself wants nothing.
//
// covers: inv11
func TestRowsThatAppear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1", "n2")
		n1 := c.run("n1", nil)
		pass(time.Second)
		for _, p := range shareOf("n2", "n1", "n2") {
			if _, err := c.store.TakeOver(t.Context(), p, core.Claim{Owner: "n1"}); err != nil {
				t.Fatal(err)
			}
		}
		n2 := c.run("n2", nil)
		pass(2 * time.Second)
		if want := len(shareOf("n2", "n1", "n2")); n2.s.Owned() != want {
			t.Errorf("n2 owns %d, want %d", n2.s.Owned(), want)
		}
		c.end(n1, n2)
	})
}

// Also when it lost them on their way to another: the last commit of the drain
// failed.
//
// covers: E31, inv11
func TestRowsOfAFailedDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = 300 * time.Millisecond
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		for p := range 8 {
			c.submit(p, order(fmt.Sprintf("t%d", p)))
		}
		pass(100 * time.Millisecond)
		c.store.broken.Store(true)
		c.setLive("n1", "n2")
		n2 := c.run("n2", nil)
		pass(300 * time.Millisecond)
		c.store.broken.Store(false)
		pass(2 * time.Second)
		for _, n := range []*node{n1, n2} {
			if want := len(shareOf(n.name, "n1", "n2")); n.s.Owned() != want {
				t.Errorf("%s owns %d, want %d", n.name, n.s.Owned(), want)
			}
		}
		pass(5 * time.Second)
		for p := range 8 {
			c.want(core.StateProcessed, p, fmt.Sprintf("t%d", p))
		}
		c.end(n1, n2)
	})
}

// A wait for a live owner counts again from the start when the partition has meanwhile been
// another's: the owner is to have its time to drain.
//
// covers: inv4
func TestEachWaitIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("zombie", "n1")
		mine := shareOf("n1", "n1", "zombie")
		for p := range 8 {
			if _, err := c.store.TakeOver(t.Context(), p, core.Claim{Owner: "zombie"}); err != nil {
				t.Fatal(err)
			}
		}
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.HandoverMax = 3 * time.Second })
		pass(2 * time.Second)
		c.setLive("zombie", "n1", "n2", "n3", "n4") // some of them are others' now, and come back
		pass(2 * time.Second)
		others := 0
		for _, p := range mine {
			if scheduler.Place([]string{"zombie", "n1", "n2", "n3", "n4"}, 8)[p] != "n1" {
				others++
			}
		}
		if others == 0 || others == len(mine) {
			t.Fatalf("%d of %d moved: choose other names", others, len(mine))
		}
		c.setLive("zombie", "n1")
		pass(2 * time.Second)
		if want := len(mine) - others; n1.s.Owned() != want {
			t.Errorf("owns %d, want %d: the others have waited for two seconds", n1.s.Owned(), want)
		}
		pass(3 * time.Second)
		if n1.s.Owned() != len(mine) {
			t.Errorf("owns %d in the end, want %d", n1.s.Owned(), len(mine))
		}
		c.end(n1)
	})
}
