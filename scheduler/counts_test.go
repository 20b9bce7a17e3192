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

// ofType adds up what a snapshot says of a type.
func ofType(s *scheduler.Snapshot, name string) (created int64, ended map[core.State]int64) {
	ended = map[core.State]int64{}
	for _, t := range s.Types {
		if t.Type == name {
			created += t.Created
			for state, n := range t.Ended {
				ended[state] += n
			}
		}
	}
	return created, ended
}

// TestSnapshot: what a scheduler has counted can be read beside it, by type and state, from all its shards.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		for p := range 4 {
			c.submit(p, order(fmt.Sprint("t", p)))
		}
		c.submit(0, core.Submission{Type: "unknown", ID: "u"})
		c.submit(0, order("t0")) // once more
		pass(5 * time.Second)
		s := n1.s.Snapshot()
		if created, ended := ofType(&s, "order"); created != 4 || ended[core.StateProcessed] != 4 || ended[core.StateUndone]+ended[core.StateError] != 0 {
			t.Errorf("order: %d created, %v", created, ended)
		}
		if created, ended := ofType(&s, "other"); created != 1 || ended[core.StateError] != 1 {
			t.Errorf("other: %d created, %v", created, ended)
		}
		if s.Stats.Do != 8 || s.Stats.Undo != 0 || s.Stats.Duplicates != 1 || s.Stats.Commits < 4 || len(s.Owned) != 8 || s.InFlight != 0 || s.Window == 0 || len(s.Away) != 0 {
			t.Errorf("%+v", s)
		}
		cycles := int64(0)
		for _, n := range s.Cycles.Counts {
			cycles += n
		}
		if cycles == 0 || cycles > s.Stats.Commits {
			t.Errorf("%d cycles of %d commits", cycles, s.Stats.Commits)
		}
		// Slow ones are counted as such.
		c.store.slow.Store(int64(300 * time.Millisecond))
		c.code = core.CodeRefused
		c.submit(0, order("r"))
		pass(5 * time.Second)
		s = n1.s.Snapshot()
		at, _ := slices.BinarySearch(scheduler.CycleBounds[:], 300*time.Millisecond)
		if s.Cycles.Counts[at] == 0 || s.Cycles.Sum < 300*time.Millisecond {
			t.Errorf("%+v", s.Cycles)
		}
		if _, ended := ofType(&s, "order"); ended[core.StateUndone] != 1 {
			t.Errorf("%v", ended)
		}
		c.end(n1)
	})
}

// TestFencedTasksAreNotCounted: what the fence left out was not created by this node.
func TestFencedTasksAreNotCounted(t *testing.T) {
	seen := newSeeing("all", nil)
	r := newRig(t, scheduler.Config{Observers: seen.of(t)})
	r.adopt(1)
	r.steal(0)
	r.tasks(0, order("lost"))
	r.tasks(1, order("kept"))
	r.cycle()
	if got, want := <-seen.commits, []string{"kept of order: submitted, born true"}; !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

// TestAgentsAway: an agent that tasks wait for is told with their number, also while retries are out, until it answers.
func TestAgentsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.absent = "agent.b"
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		for n := range 3 {
			c.submit(n%2, order(fmt.Sprint("t", n)))
		}
		pass(12 * time.Second)
		since := core.Instant(0)
		for range 20 {
			away := n1.s.Snapshot().Away
			if len(away) != 1 || away[0].Agent != "agent.b" || away[0].Tasks != 3 || since != 0 && away[0].Since != since {
				t.Fatalf("%+v", away)
			}
			since = away[0].Since
			pass(1700 * time.Millisecond)
		}
		c.mu.Lock()
		c.absent = ""
		c.mu.Unlock()
		pass(time.Minute)
		if away := n1.s.Snapshot().Away; len(away) != 0 {
			t.Errorf("%+v", away)
		}
		c.want(core.StateProcessed, 0, "t0")
		c.end(n1)
	})
}

// TestAgentsUnable: an agent that is there and does not serve the step that tasks wait at is told with their number and that
// step, until it does.
func TestAgentsUnable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.code = core.CodeUnable
		c.setLive("n1")
		n1 := c.run("n1", nil)
		pass(time.Second)
		for n := range 3 {
			c.submit(n%2, order(fmt.Sprint("t", n)))
		}
		pass(12 * time.Second)
		for range 20 {
			away := n1.s.Snapshot().Away
			if len(away) != 1 || away[0].Agent != "agent.a" || away[0].Tasks != 3 || len(away[0].Steps) != 1 || away[0].Steps[0] != (scheduler.AwayStep{Type: "order", Step: "a", Tasks: 3, Unable: true}) {
				t.Fatalf("%+v", away)
			}
			pass(1700 * time.Millisecond)
		}
		c.mu.Lock()
		c.code = 0
		c.mu.Unlock()
		pass(2 * time.Minute)
		if away := n1.s.Snapshot().Away; len(away) != 0 {
			t.Errorf("%+v", away)
		}
		c.want(core.StateProcessed, 0, "t0")
		c.end(n1)
	})
}
