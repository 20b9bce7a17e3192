package scheduler

import (
	"hash/fnv"
	"slices"

	"duly.dev/duly/internal/core"
)

// Place says which of the live nodes should own each of n partitions: the one
// with the highest hash of its name and the partition's number (rendezvous), so
// that a node that comes or goes moves only its own share. No nodes: all empty.
func Place(nodes []string, n int) []string {
	owners := make([]string, n)
	for p := range owners {
		var best uint64
		for _, node := range nodes {
			if w := weight(node, p); owners[p] == "" || w > best || (w == best && node < owners[p]) {
				owners[p], best = node, w
			}
		}
	}
	return owners
}

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

func weight(node string, partition int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	_, _ = h.Write([]byte{byte(partition >> 8), byte(partition)})
	// FNV's last bytes barely reach its high bits: mix, or neighbours tie up.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
