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
			if w := Weigh(Seed(node), p); owners[p] == "" || w > best || (w == best && node < owners[p]) {
				owners[p], best = node, w
			}
		}
	}
	return owners
}

// Seed is the part of the weights of a node that is the same for all partitions. Nodes of two versions must agree on it.
func Seed(node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	return h.Sum64()
}

// Weigh is the weight of a node, by its seed, for a partition: FNV-1a over the name and two bytes of the partition. The node
// with the highest one is to own it, of two that are equal the one whose name comes first.
func Weigh(seed uint64, partition int) uint64 {
	const prime = 1099511628211
	x := (seed ^ uint64(byte(partition>>8))) * prime
	x = (x ^ uint64(byte(partition))) * prime
	// FNV's last bytes barely reach its high bits: mix, or neighbours tie up.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
