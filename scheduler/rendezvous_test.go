package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/rendezvous"
)

// What is kept from change to change is what is computed from the beginning, whichever nodes join and leave.
//
// covers: S22
func TestRendezvousFollows(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	r := newPlaces(256)
	live := map[string]bool{}
	for change := range 300 {
		for range 1 + draw.IntN(4) {
			name := fmt.Sprintf("node-%d", draw.IntN(12))
			if live[name] = !live[name]; !live[name] {
				delete(live, name)
			}
		}
		var names []string
		for name := range live {
			names = append(names, name)
		}
		r.set(names)
		slices.Sort(names)
		if want := Place(names, 256); !slices.Equal(r.owners, want) {
			t.Fatalf("change %d: with %q the owners kept differ from those found", change, names)
		}
	}
}

// Nodes of two versions must weigh alike, or each takes from the other.
func TestWeightsStay(t *testing.T) {
	for _, x := range []struct {
		node      string
		partition int
		want      uint64
	}{{"a", 0, 6025810016043709626}, {"node-001", 7, 11401817185303055772}, {"node-001", 4095, 9175567520466486857}, {"", 300, 3342019705404160467}} {
		if got := rendezvous.NewNode(x.node).Weight(x.partition); got != x.want {
			t.Errorf("weight of %q for %d: %d, want %d", x.node, x.partition, got, x.want)
		}
	}
}

func fleet(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("node-%03d", i)
	}
	return names
}

// What a node of a large fleet does when one comes, and twice a second while a node of 20 partitions has stepped down.
func BenchmarkPlace(b *testing.B) {
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			Place(fleet(200), 4096)
		}
	})
	b.Run("comes", func(b *testing.B) {
		r := newPlaces(4096)
		r.set(fleet(199))
		for b.Loop() {
			r.set(fleet(200))
			r.set(fleet(199))
		}
	})
	b.Run("stepped-down", func(b *testing.B) {
		r := newPlaces(4096)
		r.set(fleet(200))
		var wishes []core.Wish
		for p, owner := range r.owners {
			if owner == "node-007" {
				wishes = append(wishes, core.Wish{Partition: p, Avoid: owner, Until: 1})
			}
		}
		for b.Loop() {
			r.by(wishes, 0)
		}
	})
}
