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

// places is which of the live nodes is to own each partition. It is kept from change to change: a node that comes is
// weighed once for each partition, and one that goes costs only the partitions that it had.
type places struct {
	live   []rendezvous.Node
	owners []string // by partition; empty: there is no node
	best   []uint64 // their weights
}

func newPlaces(n int) *places {
	return &places{owners: make([]string, n), best: make([]uint64, n)}
}

// set makes these the live nodes.
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

// without is whose a partition would be without a node; empty: there is no other.
func (r *places) without(node string, partition int) (owner string) {
	var best uint64
	for _, other := range r.live {
		if other.Name != node {
			owner, best = other.Over(partition, owner, best)
		}
	}
	return owner
}

// by is a copy of the owners, with what operators want.
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

// placement is which partitions are to be whose, and what a node has done about it.
type placement struct {
	change signal // Reassign has something to do

	mu      sync.Mutex
	live    []string
	among   *places // of the live nodes, without the wishes
	wishes  []core.Wish
	owners  []string // whose each partition is to be, of the live nodes; nil: they are not known yet
	changed bool     // since the last Reassign

	// The rest belongs to the goroutine that calls Reassign.
	moved    time.Time         // when the live nodes last changed
	compared time.Time         // when the store was last compared with what this node holds
	waiting  map[int]time.Time // since when a live predecessor of a partition is waited for
}

func newPlacement(partitions int) placement {
	return placement{change: newSignal(), among: newPlaces(partitions), waiting: map[int]time.Time{}}
}
