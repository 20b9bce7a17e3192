package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/rendezvous"
)

// Place says which of the live nodes should own each of n partitions: the one
// with the highest hash of its name and the partition's number (rendezvous), so
// that a node that comes or goes moves only its own share. No nodes: all empty.
func Place(nodes []string, n int) []string { return rendezvous.Place(nodes, n) }

// PlaceBy is Place with what operators want: a partition that is pinned to a live node is that node's, and one whose
// owner has stepped down is another's as long as there is another. Pins to nodes that are not live count for nothing.
func PlaceBy(nodes []string, n int, wishes []core.Wish, now core.Instant) []string {
	owners := Place(nodes, n)
	for _, w := range wishes {
		switch {
		case w.Partition < 0 || w.Partition >= n:
		case slices.Contains(nodes, w.Node):
			owners[w.Partition] = w.Node
		case w.Avoids(owners[w.Partition], now):
			others := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return node == w.Avoid })
			if len(others) > 0 {
				owners[w.Partition] = Place(others, n)[w.Partition]
			}
		}
	}
	return owners
}
