package scheduler

import (
	"slices"
	"sync"
	"time"

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
	r := newPlaces(n)
	r.set(nodes)
	return r.by(wishes, now)
}

// places computes incrementally which live node should own each partition. A node that comes is compared once with each
// partition's owner; when one goes, only the partitions that it had are assigned anew.
type places struct {
	live []rendezvous.Node
	// owners names each partition's node; empty: there is no node.
	owners []string
	// best holds the rendezvous weight of each partition's owner.
	best []uint64
}

func newPlaces(n int) *places {
	return &places{owners: make([]string, n), best: make([]uint64, n)}
}

// set replaces the live nodes.
func (r *places) set(nodes []string) {
	was := make(map[string]rendezvous.Node, len(r.live))
	for _, node := range r.live {
		was[node.Name] = node
	}
	is := make(map[string]bool, len(nodes))
	var came []rendezvous.Node
	r.live = r.live[:0]
	for _, name := range nodes {
		node, known := was[name]
		if !known {
			node = rendezvous.NewNode(name)
			came = append(came, node)
		}
		is[name] = true
		r.live = append(r.live, node)
	}
	for p, owner := range r.owners {
		among := came
		if !is[owner] {
			r.owners[p], r.best[p], among = "", 0, r.live
		}
		for _, node := range among {
			r.owners[p], r.best[p] = node.Over(p, r.owners[p], r.best[p])
		}
	}
}

// without returns the node that would own the partition if the given node were gone; empty: there is no
// other.
func (r *places) without(node string, partition int) (owner string) {
	var best uint64
	for _, other := range r.live {
		if other.Name != node {
			owner, best = other.Over(partition, owner, best)
		}
	}
	return owner
}

// by returns a copy of the owners, changed by the operators' wishes: pins, and nodes that have stepped down.
func (r *places) by(wishes []core.Wish, now core.Instant) []string {
	owners := slices.Clone(r.owners)
	for _, w := range wishes {
		switch {
		case w.Partition < 0 || w.Partition >= len(owners):
		case slices.ContainsFunc(r.live, func(node rendezvous.Node) bool { return node.Name == w.Node }):
			owners[w.Partition] = w.Node
		case w.Avoids(owners[w.Partition], now):
			if other := r.without(w.Avoid, w.Partition); other != "" {
				owners[w.Partition] = other
			}
		}
	}
	return owners
}

// placement is which node should own each partition, by the live nodes and what operators want, and since when this
// node has waited to take one over. What it holds is not here: see Committer.
type placement struct {
	// change is set when Reassign has something to do.
	change signal

	mu   sync.Mutex
	live []string
	// among computes owners from the live nodes alone, without the wishes.
	among  *places
	wishes []core.Wish
	// owners is among with the wishes applied; nil: the live nodes are not known yet.
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

func newPlacement(partitions int) placement {
	return placement{change: newSignal(), among: newPlaces(partitions), waiting: map[int]time.Time{}}
}
