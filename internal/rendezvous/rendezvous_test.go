package rendezvous

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever has owners already, in whatever order the names come: what is given makes the nodes as even as can be, and what had
// an owner keeps it.
//
// covers: S22, I12
func TestPlaceFills(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		names := drawn(draw, 1+draw.IntN(12))
		before := make([]string, draw.IntN(200))
		held := 1 + draw.IntN(len(names)) // few of the nodes may have much
		for p := range before {
			switch draw.IntN(6) {
			case 0:
				before[p] = names[draw.IntN(held)]
			case 1:
				before[p] = "of another"
			}
		}
		owners, again := slices.Clone(before), slices.Clone(before)
		Place(names, owners)
		draw.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		Place(names, again)
		if !slices.Equal(owners, again) {
			t.Fatalf("%d nodes, %d partitions: the order of the names decides", len(names), len(owners))
		}
		had, has := map[string]int{}, map[string]int{}
		for p := range owners {
			had[before[p]]++
			has[owners[p]]++
			if owners[p] == "" || before[p] != "" && owners[p] != before[p] {
				t.Fatalf("partition %d was %q's and is %q's", p, before[p], owners[p])
			}
		}
		least := len(owners)
		for _, name := range names {
			least = min(least, has[name])
		}
		for _, name := range names {
			if has[name] > max(least+1, had[name]) {
				t.Fatalf("%d nodes, %d partitions: %s has %d, had %d, and another has %d", len(names), len(owners), name, has[name], had[name], least)
			}
		}
	}
	none := []string{"", "a", ""}
	if Place(nil, none); !slices.Equal(none, []string{"", "a", ""}) {
		t.Errorf("without nodes: %q", none)
	}
}

// A node that comes moves little more than its part, and as much when it goes: placement depends on nothing but the names.
// The means are logged beside the least that can be, and beside what moves where each partition is the node's that weighs most.
//
// covers: I12
func TestPlaceMovesLittle(t *testing.T) {
	const draws = 200
	for _, x := range []struct {
		partitions int
		each, all  float64 // times the least, at most: between two numbers of nodes, and in all
	}{{16, 2.3, 1.35}, {64, 1.65, 1.2}} {
		draw := rand.New(rand.NewPCG(3, 4))
		var all, allLeast float64
		for n := 1; n <= 8; n++ {
			moved, plain := 0, 0
			for range draws {
				names := drawn(draw, n+1)
				moved += differ(place(names[:n], x.partitions), place(names, x.partitions))
				plain += differ(heaviest(names[:n], x.partitions), heaviest(names, x.partitions))
			}
			least := float64(x.partitions) / float64(n+1)
			mean := float64(moved) / draws
			t.Logf("%d partitions, %d nodes and %d: least %.1f, moved %.1f, by weight alone %.1f", x.partitions, n, n+1, least, mean, float64(plain)/draws)
			if mean > x.each*least {
				t.Errorf("%d partitions, %d nodes and %d: %.1f move, at least %.1f must", x.partitions, n, n+1, mean, least)
			}
			all, allLeast = all+mean, allLeast+least
		}
		if all > x.all*allLeast {
			t.Errorf("%d partitions: %.1f move in all, at least %.1f must", x.partitions, all, allLeast)
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
		n := newNode(x.node)
		if got := n.weight(x.partition); got != x.want {
			t.Errorf("weight of %q for %d: %d, want %d", x.node, x.partition, got, x.want)
		}
	}
}

// What each node does at each change of the live ones.
func BenchmarkPlace(b *testing.B) {
	for _, x := range []struct{ nodes, partitions int }{{4, 16}, {100, 1024}, {200, 4096}} {
		b.Run(fmt.Sprintf("%d-nodes-%d-partitions", x.nodes, x.partitions), func(b *testing.B) {
			names := drawn(rand.New(rand.NewPCG(5, 6)), x.nodes)
			for b.Loop() {
				place(names, x.partitions)
			}
		})
	}
}

func place(names []string, partitions int) []string {
	owners := make([]string, partitions)
	Place(names, owners)
	return owners
}

// heaviest places by weight alone.
func heaviest(names []string, partitions int) []string {
	owners := make([]string, partitions)
	for p := range owners {
		var most uint64
		for _, name := range names {
			n := newNode(name)
			if w := n.weight(p); w > most {
				owners[p], most = name, w
			}
		}
	}
	return owners
}

// drawn are n names of which none comes twice.
func drawn(draw *rand.Rand, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%08x-%d", draw.Uint32(), i)
	}
	return names
}

func differ(a, b []string) (n int) {
	for p := range a {
		if a[p] != b[p] {
			n++
		}
	}
	return n
}
