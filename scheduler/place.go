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
	r := newPlaces(n)
	r.set(nodes)
	return r.by(wishes, now)
}

// places is which of the live nodes is to own each partition. It is kept from change to change: a node that comes is
// weighed once for each partition, and one that goes costs only the partitions that it had.
type places struct {
	live   []candidate
	owners []string // by partition; empty: there is no node
	best   []uint64 // their weights
}

// candidate is a live node. Its seed is the hash of its name, the part of its weights that is the same for all partitions.
type candidate struct {
	name string
	seed uint64
}

func newPlaces(n int) *places {
	return &places{owners: make([]string, n), best: make([]uint64, n)}
}

// set makes these the live nodes.
func (r *places) set(nodes []string) {
	was := make(map[string]uint64, len(r.live))
	for _, c := range r.live {
		was[c.name] = c.seed
	}
	is := make(map[string]bool, len(nodes))
	var came []candidate
	r.live = r.live[:0]
	for _, name := range nodes {
		seed, known := was[name]
		if !known {
			seed = rendezvous.Seed(name)
			came = append(came, candidate{name, seed})
		}
		is[name] = true
		r.live = append(r.live, candidate{name, seed})
	}
	for p, owner := range r.owners {
		among := came
		if !is[owner] {
			r.owners[p], r.best[p], among = "", 0, r.live
		}
		for _, c := range among {
			if w := rendezvous.Weigh(c.seed, p); r.owners[p] == "" || w > r.best[p] || w == r.best[p] && c.name < r.owners[p] {
				r.owners[p], r.best[p] = c.name, w
			}
		}
	}
}

// without is whose a partition would be without a node; empty: there is no other.
func (r *places) without(node string, partition int) (owner string) {
	var best uint64
	for _, c := range r.live {
		if c.name == node {
			continue
		}
		if w := rendezvous.Weigh(c.seed, partition); owner == "" || w > best || w == best && c.name < owner {
			owner, best = c.name, w
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
		case slices.ContainsFunc(r.live, func(c candidate) bool { return c.name == w.Node }):
			owners[w.Partition] = w.Node
		case w.Avoids(owners[w.Partition], now):
			if other := r.without(w.Avoid, w.Partition); other != "" {
				owners[w.Partition] = other
			}
		}
	}
	return owners
}
