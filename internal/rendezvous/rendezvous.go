// Package rendezvous places numbered partitions on named nodes, so that none has more than its part, and a node that comes or
// goes moves little else.
package rendezvous

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Place gives the partitions in owners that have none, "", to the nodes: each as many as the others, or one more, counted with
// what it has in owners already; one that has more than that there gets none. Round by round each partition asks the node with
// room that weighs most for it, and those that weigh most are taken. The order of the names, of which none may come twice,
// makes no difference. No nodes: nothing is given.
func Place(names, owners []string) {
	if len(names) == 0 {
		return
	}
	nodes := make([]node, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		nodes[i] = newNode(name)
	}
	has := map[string]int{}
	var rest []int
	for p, owner := range owners {
		if has[owner]++; owner == "" {
			rest = append(rest, p)
		}
	}
	for i := range nodes {
		nodes[i].has = has[nodes[i].name]
	}
	// Each node may have part, and as many as spare one more.
	part, spare := 0, len(rest)
	for {
		below := 0
		for i := range nodes {
			if nodes[i].has <= part {
				below++
			}
		}
		if spare < below {
			break
		}
		part, spare = part+1, spare-below
	}
	room := func(n *node) bool { return n.has < part || n.has == part && spare > 0 }
	bids := make([]bid, 0, len(rest))
	for len(rest) > 0 {
		bids = bids[:0]
		for _, p := range rest {
			best := bid{partition: p, node: -1}
			for i := range nodes {
				if room(&nodes[i]) {
					if w := nodes[i].weight(p); best.node < 0 || w > best.weight { // of two that weigh the same the first by name
						best.node, best.weight = i, w
					}
				}
			}
			bids = append(bids, best)
		}
		slices.SortFunc(bids, func(a, b bid) int {
			return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.node, b.node), cmp.Compare(a.partition, b.partition))
		})
		rest = rest[:0]
		for _, b := range bids {
			n := &nodes[b.node]
			if !room(n) {
				rest = append(rest, b.partition)
				continue
			}
			if n.has == part {
				spare--
			}
			n.has++
			owners[b.partition] = n.name
		}
	}
}

// bid is a partition that asks a node.
type bid struct {
	partition, node int
	weight          uint64
}

// node is a node with the part of its weights that is the same for all partitions, and how many partitions it has.
type node struct {
	name string
	seed uint64
	has  int
}

// newNode is the node of a name. Nodes of two versions must agree on its weights: FNV-1a over the name and two bytes of the
// partition.
func newNode(name string) node {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return node{name: name, seed: h.Sum64()}
}

// weight is that of the node for a partition.
func (n *node) weight(partition int) uint64 {
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
