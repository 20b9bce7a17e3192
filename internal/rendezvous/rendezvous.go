// Package rendezvous places numbered partitions on named nodes, so that a node that comes or goes moves only its own share.
package rendezvous

import "hash/fnv"

// Place says which of the nodes should own each of n partitions: the one with the highest hash of its name and the
// partition's number. The order of the names makes no difference. No nodes: all empty.
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
