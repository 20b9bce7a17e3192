package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"duly.dev/duly/scheduler"
)

func nodes(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i+1)
	}
	return names
}

// The order of the nodes makes no difference, every partition has one owner, and
// the shares are about even.
//
// covers: S22, I12
func TestPlaceBalances(t *testing.T) {
	if owners := scheduler.Place(nil, 3); !slices.Equal(owners, []string{"", "", ""}) {
		t.Fatalf("without nodes: %q", owners)
	}
	for n := 1; n <= 8; n++ {
		const partitions = 1024
		names := nodes(n)
		owners := scheduler.Place(names, partitions)
		slices.Reverse(names)
		if !slices.Equal(owners, scheduler.Place(names, partitions)) {
			t.Fatalf("%d nodes: the order of the names decides", n)
		}
		share := map[string]int{}
		for _, o := range owners {
			share[o]++
		}
		for _, name := range names {
			if even := partitions / n; share[name] < even*7/10 || share[name] > even*13/10 {
				t.Errorf("%d nodes: %s has %d partitions, even would be %d", n, name, share[name], even)
			}
		}
	}
}

// With few partitions, as by default, no node of a small cluster goes without.
//
// covers: S22
func TestPlaceLeavesNoNodeOut(t *testing.T) {
	for n := 1; n <= 4; n++ {
		owners := scheduler.Place(nodes(n), 16)
		for _, name := range nodes(n) {
			if !slices.Contains(owners, name) {
				t.Errorf("%d nodes, 16 partitions: %s owns none", n, name)
			}
		}
	}
}

// A node that comes or goes moves only its own share.
//
// covers: I12
func TestPlaceMovesLittle(t *testing.T) {
	for n := 1; n <= 6; n++ {
		before, after := scheduler.Place(nodes(n), 256), scheduler.Place(nodes(n+1), 256)
		newcomer := nodes(n + 1)[n]
		for p := range before {
			if before[p] != after[p] && after[p] != newcomer {
				t.Fatalf("partition %d moved from %s to %s when %s came", p, before[p], after[p], newcomer)
			}
		}
	}
}
