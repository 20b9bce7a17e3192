package scheduler

import (
	"maps"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/rendezvous"
)

// Place says which of the live nodes should own each of n partitions: none has more than one more than another, and a node
// that comes or goes moves little more than its part. No nodes: all empty.
func Place(nodes []string, n int) []string { return PlaceBy(nodes, n, nil, 0) }

// PlaceBy is Place with what operators want: a partition that is pinned to a live node is that node's, and counts to its part;
// one whose owner has stepped down is another's as long as there is another, and moves none of the others. Pins to nodes that
// are not live count for nothing.
func PlaceBy(nodes []string, n int, wishes []core.Wish, now core.Instant) []string {
	owners := make([]string, n)
	var avoided []core.Wish
	for _, w := range wishes {
		switch {
		case w.Partition < 0 || w.Partition >= n:
		case slices.Contains(nodes, w.Node):
			owners[w.Partition] = w.Node
		case w.Avoids(w.Avoid, now):
			avoided = append(avoided, w)
		}
	}
	rendezvous.Place(nodes, owners)
	left := map[string][]int{}
	for _, w := range avoided {
		if owners[w.Partition] == w.Avoid && len(nodes) > 1 {
			left[w.Avoid] = append(left[w.Avoid], w.Partition)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(left)) {
		for _, p := range left[node] {
			owners[p] = ""
		}
		rendezvous.Place(slices.DeleteFunc(slices.Clone(nodes), func(other string) bool { return other == node }), owners)
	}
	return owners
}

// placement is which node should own each partition, by the live nodes and what operators want, and since when this
// node has waited to take one over. What it holds is not here: see Committer.
type placement struct {
	// change is set when Reassign has something to do.
	change signal

	mu     sync.Mutex
	live   []string
	wishes []core.Wish
	// owners is what PlaceBy says of them; nil: the live nodes are not known yet.
	owners []string
	// changed is whether owners may have changed since the last Reassign.
	changed bool

	// moved is when the live nodes or the owners last changed.
	moved time.Time
	// compared is when the store was last compared with what this node holds.
	compared time.Time
	// waiting holds since when this node waits for a live predecessor to let go of a partition.
	waiting map[int]time.Time
}

func newPlacement() placement {
	return placement{change: newSignal(), waiting: map[int]time.Time{}}
}
