// Package rendezvous places numbered partitions on named nodes, so that a node that comes or goes moves only its own share.
package rendezvous

import "hash/fnv"

// Place says which of the nodes should own each of n partitions: the one with the highest hash of its name and the
// partition's number. The order of the names makes no difference. No nodes: all empty.
func Place(names []string, n int) []string {
	nodes := make([]Node, len(names))
	for i, name := range names {
		nodes[i] = NewNode(name)
	}
	owners := make([]string, n)
	for p := range owners {
		var best uint64
		for _, node := range nodes {
			owners[p], best = node.Over(p, owners[p], best)
		}
	}
	return owners
}

// Node is a node with the part of its weights that is the same for all partitions.
type Node struct {
	Name string
	seed uint64
}

// NewNode is the node of a name. Nodes of two versions must agree on its weights: FNV-1a over the name and two bytes of the
// partition.
func NewNode(name string) Node {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return Node{name, h.Sum64()}
}

// Weight is that of the node for a partition: the node with the highest one is to own it.
func (n Node) Weight(partition int) uint64 {
	const prime = 1099511628211
	x := (n.seed ^ uint64(byte(partition>>8))) * prime
	x = (x ^ uint64(byte(partition))) * prime
	// FNV's last bytes barely reach its high bits: mix, or neighbours tie up.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Over is which of the node and another, with its weight, is to own a partition; of two that weigh the same the one whose name
// comes first. An empty owner: there is no other.
func (n Node) Over(partition int, owner string, weight uint64) (string, uint64) {
	if w := n.Weight(partition); owner == "" || w > weight || w == weight && n.Name < owner {
		return n.Name, w
	}
	return owner, weight
}
