package sim_test

import (
	"flag"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
)

var (
	seeds = flag.Int("seeds", 1000, "how many seeds to run")
	first = flag.Uint64("seed", 1, "the first of them")
)

// Storm, then calm: whatever the faults, every accepted task ends, and the books
// of the services agree with what it ended as.
//
// covers: E2, E4, S1, S16, S42, I2, I19, inv1, inv2, inv3, inv4, inv7, inv10, inv12
func TestStormThenCalm(t *testing.T) {
	rows, faults := map[core.Kind]int{}, map[string]int{}
	for i := range *seeds {
		w := sim.New(sim.Draw(*first + uint64(i)))
		if err := w.Run(); err != nil {
			t.Fatalf("%v\nagain with: go run ./internal/sim/run -seeds 1 -seed %d", err, *first+uint64(i))
		}
		for kind, n := range w.Store.Kinds() {
			rows[kind] += n
		}
		for name, n := range w.Faults() {
			faults[name] += n
		}
	}
	if *seeds >= 300 {
		stormy(t, rows, faults)
	}
}

// The same where plans are graphs of steps of all kinds and tasks have tasks; these worlds are larger, so that fewer are run.
//
// covers: G1, G2, G3, G5, G6, G7, G8
func TestGraphStormThenCalm(t *testing.T) {
	for i := range max(1, *seeds*3/10) {
		cfg := sim.Draw(*first + uint64(i))
		cfg.Graph = true
		if err := sim.New(cfg).Run(); err != nil {
			t.Fatalf("%v\nagain with: go run ./internal/sim/run -seeds 1 -seed %d -world graph", err, cfg.Seed)
		}
	}
}

// The same while operators change limits, pauses and versions of plans, in the storm and after it: what can go on goes on,
// something wakes whatever is parked, it is claimed in order, and no place of a limit is used twice.
//
// covers: Q1, Q2, L4, L15, L24
func TestGatesStormThenCalm(t *testing.T) {
	for i := range max(1, *seeds*3/10) {
		cfg := sim.Draw(*first + uint64(i)).AsGates()
		if err := sim.New(cfg).Run(); err != nil {
			t.Fatalf("%v\nagain with: go run ./internal/sim/run -seeds 1 -seed %d -world gates", err, cfg.Seed)
		}
	}
}

// stormy checks that the storm deserves its name: every fault has happened, and
// whatever can happen to a task has happened to some.
func stormy(t *testing.T, kinds map[core.Kind]int, faults map[string]int) {
	t.Helper()
	for _, kind := range []core.Kind{
		core.KindSubmitted, core.KindStarted, core.KindDone, core.KindRefused, core.KindFailed, core.KindOverdue,
		core.KindUnserved, core.KindUndone, core.KindUndoFailed, core.KindUndoOverdue, core.KindUndoUnserved, core.KindUndoGaveUp,
		core.KindExpired, core.KindCancelled, core.KindUndoAsked, core.KindResubmitted, core.KindExtended,
		core.KindLate, core.KindUndoLate, core.KindPoisoned, core.KindAsked, core.KindWentBack, core.KindAccepted, core.KindResolved,
	} {
		if kinds[kind] < 3 {
			t.Errorf("%s happened %d times", kind, kinds[kind])
		}
	}
	for name, n := range faults {
		// The first takes a takeover that was not heard of, and a failover to before it, the other a partition that stands still
		// before a short deadline: the world of overload has it all the time.
		if n < 3 && name != sim.FormerOwner.String() && name != sim.BacklogFull.String() {
			t.Errorf("fault %q happened %d times", name, n)
		}
	}
}

// The same seed is the same run, to the last journal row.
//
// covers: S42
func TestSameSeedSameRun(t *testing.T) {
	for seed := range uint64(20) {
		a, b := sim.New(sim.Draw(seed)), sim.New(sim.Draw(seed))
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
