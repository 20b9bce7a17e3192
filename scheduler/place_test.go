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

// No node has more than its part, nor less, or the others' tasks wait and are undone while it has room.
//
// covers: S22, I12
func TestPlaceBalances(t *testing.T) {
	if owners := scheduler.Place(nil, 3); !slices.Equal(owners, []string{"", "", ""}) {
		t.Fatalf("without nodes: %q", owners)
	}
	for n := 1; n <= 8; n++ {
		for _, partitions := range []int{16, 64, 1024} {
			share := sharesOf(scheduler.Place(nodes(n), partitions))
			for _, name := range nodes(n) {
				if least, most := partitions/n, (partitions+n-1)/n; share[name] < least || share[name] > most {
					t.Errorf("%d nodes, %d partitions: %s has %d, want %d to %d", n, partitions, name, share[name], least, most)
				}
			}
		}
	}
}

func sharesOf(owners []string) map[string]int {
	share := map[string]int{}
	for _, o := range owners {
		share[o]++
	}
	return share
}
