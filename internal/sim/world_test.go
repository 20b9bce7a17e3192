package sim_test

import (
	"flag"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
)

var (
	seeds = flag.Int("seeds", 300, "how many seeds to run")
	first = flag.Uint64("seed", 1, "the first of them")
)

// Storm, then calm: whatever the faults, every accepted task ends, and the books
// of the services agree with what it ended as.
func TestStormThenCalm(t *testing.T) {
	kinds := map[core.Kind]int{}
	for i := range *seeds {
		seed := *first + uint64(i)
		w := world(seed)
		if err := w.Run(); err != nil {
			t.Fatalf("%v\n\nagain with: go test ./internal/sim -run %s -seed %d -seeds 1", err, t.Name(), seed)
		}
		for kind, n := range w.Store.Kinds() {
			kinds[kind] += n
		}
	}
	if *seeds >= 300 {
		stormy(t, kinds)
	}
}

// stormy checks that the storm deserves its name: whatever can happen to a task
// has happened to some.
func stormy(t *testing.T, kinds map[core.Kind]int) {
	t.Helper()
	for _, kind := range []core.Kind{
		core.KindSubmitted, core.KindStarted, core.KindDone, core.KindRefused, core.KindFailed, core.KindOverdue,
		core.KindUnserved, core.KindUndone, core.KindUndoFailed, core.KindUndoOverdue, core.KindUndoUnserved,
		core.KindExpired, core.KindCancelled, core.KindUndoAsked, core.KindResubmitted, core.KindExtended,
		core.KindPoisoned, core.KindAsked,
	} {
		if kinds[kind] < 5 {
			t.Errorf("%s happened %d times", kind, kinds[kind])
		}
	}
}

// The same seed is the same run, to the last journal row.
func TestSameSeedSameRun(t *testing.T) {
	for seed := range uint64(20) {
		a, b := world(seed), world(seed)
		if err := a.Run(); err != nil {
			t.Fatal(err)
		}
		if err := b.Run(); err != nil {
			t.Fatal(err)
		}
		if a.Story() != b.Story() {
			t.Fatalf("seed %d: two runs, two stories:\n%s\n%s", seed, a.Story(), b.Story())
		}
	}
}

func world(seed uint64) *sim.World {
	return sim.New(sim.Config{
		Seed: seed, Nodes: 2 + int(seed%2), Partitions: 1 + int(seed%3), Tasks: 20,
		Storm: 3 * time.Second, Calm: 5 * time.Minute,
	})
}
