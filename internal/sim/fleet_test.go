package sim_test

import (
	"reflect"
	"testing"
	"time"

	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

func smallFleet(s sim.Scenario) sim.FleetConfig {
	return sim.FleetConfig{Seed: 1, Scenario: s, Nodes: 20, Partitions: 256, Kill: 3, Limit: 10 * time.Minute}
}

// counted is how much there was of one kind.
func counted(t *testing.T, rep *sim.FleetReport, what string) sim.FleetCount {
	t.Helper()
	for _, c := range rep.Counts {
		if c.What == what {
			return c
		}
	}
	t.Fatalf("%s: nothing counted %q: %+v", rep.Config.Scenario, what, rep.Counts)
	return sim.FleetCount{}
}

// Whatever happens to a fleet: a partition has one owner at most under its epoch, it is read again soon, only what must
// move moves, and in the end every node has what falls to it. RunFleet checks the first and the last.
//
// covers: inv11, S22
func TestFleet(t *testing.T) {
	const lease = 6 * time.Second
	for _, x := range []struct {
		scenario sim.Scenario
		unread   time.Duration // at most
		needed   [2]int        // between
	}{
		{sim.FleetStart, 3 * time.Second, [2]int{256, 256}},
		{sim.FleetRestart, 2 * time.Second, [2]int{3 * 2 * 6, 3 * 2 * 24}},
		{sim.FleetDie, lease + time.Second, [2]int{3 * 6, 3 * 24}},
		{sim.FleetSplit, lease + time.Second, [2]int{3 * 2 * 6, 3 * 2 * 24}},
		{sim.FleetAway, 31 * time.Second, [2]int{0, 0}},
		{sim.FleetJoin, 2 * time.Second, [2]int{6, 24}}, // of 256: a twenty-first is 12
	} {
		t.Run(string(x.scenario), func(t *testing.T) {
			t.Parallel()
			rep, err := sim.RunFleet(smallFleet(x.scenario))
			if err != nil {
				t.Fatal(err)
			}
			if rep.Unread > x.unread {
				t.Errorf("a partition was read by none for %s, want %s at most", rep.Unread, x.unread)
			}
			if rep.Needed < x.needed[0] || rep.Needed > x.needed[1] {
				t.Errorf("%d partitions had to move, want %v", rep.Needed, x.needed)
			}
			most := rep.Needed
			switch x.scenario { // as nodes come and go one after the other, partitions move between those that stay, and back
			case sim.FleetSplit, sim.FleetDie:
				most += rep.Needed / 5
			case sim.FleetStart:
				most += rep.Needed * 3 / 2
			}
			if rep.Moved < rep.Needed || rep.Moved > most {
				t.Errorf("%d partitions moved, want %d to %d", rep.Moved, rep.Needed, most)
			}
			if rep.Peak > 2*maxShare(20, 256) {
				t.Errorf("a node had %d partitions at once, where %d fall to the fullest", rep.Peak, maxShare(20, 256))
			}
		})
	}
}

// maxShare is how many partitions fall to the node that has most.
func maxShare(nodes, partitions int) (most int) {
	share := map[string]int{}
	for _, owner := range scheduler.Place(sim.FleetNames(nodes), partitions) {
		share[owner]++
		most = max(most, share[owner])
	}
	return most
}

// What is asked of the database and of NATS grows with nodes and with partitions, not with nodes times partitions.
func TestFleetAsksWhatItNeeds(t *testing.T) {
	rep, err := sim.RunFleet(smallFleet(sim.FleetDie))
	if err != nil {
		t.Fatal(err)
	}
	// Each owner compares its rows every two seconds; others' rows are theirs.
	if rows := counted(t, &rep, "SQL rows of partitions").Idle; rows > 256/2+20 {
		t.Errorf("%d rows of partitions a second while nothing happens, want %d: each once in two seconds", rows, 256/2)
	}
	if got, records := counted(t, &rep, "evidence deliveries").Total, counted(t, &rep, "of these: evidence").Total; got > 2*records {
		t.Errorf("%d records of evidence are delivered %d times, want once or twice: to the owner, and to the one before", records, got)
	}
	// For 10 s after a change each node looks twice a second, and each takeover looks at its row.
	if rows := counted(t, &rep, "SQL rows of partitions").Total; rows > 256*2*20+8*rep.Moved {
		t.Errorf("%d rows of partitions were read for %d takeovers", rows, rep.Moved)
	}
}

// The same seed is the same run.
func TestFleetIsDeterministic(t *testing.T) {
	first, err1 := sim.RunFleet(smallFleet(sim.FleetSplit))
	second, err2 := sim.RunFleet(smallFleet(sim.FleetSplit))
	if err1 != nil || err2 != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("two runs of a seed differ: %v, %v\n%+v\n%+v", err1, err2, first, second)
	}
}
