package console

import (
	"cmp"
	"slices"
)

// Sizes of the graph, in pixels at 100 %.
const (
	nodeHeight   = 34
	layerGap     = 26 // between layers, where the edges bend
	nodeGap      = 20
	laneWidth    = 14 // of an edge that passes a layer
	nodeWidthMin = 132
	nodeWidthMax = 260
	sweeps       = 12     // of the ordering, and as many of the placing
	bendsMax     = 20_000 // with more, of edges that pass many layers, a browser shows nothing that a person could follow
)

// graphNode is one step, or a fan-out of many alike, to be placed.
type graphNode struct {
	Name   string
	Status string // a word that lookOf knows; empty in a plan
	Note   string // right of the name: attempts, or a count
	After  []int  // indexes of earlier nodes
}

// place is where a vertex is: a node, or a bend of an edge in a layer that it passes.
type place struct {
	layer, order int
	width        float64
	x            float64 // of its middle
	up, down     []int   // neighbours in the layers above and below
}

// graph is a placed plan.
type graph struct {
	nodes  []graphNode
	places []place // nodes first, then bends
	layers [][]int
	edges  [][]int // vertices from above to below
	tangle bool    // it has more than bendsMax bends, and is not placed
	width  int     // of a node
}

// layout places a partial order in layers from top to bottom: each node below all it comes after, edges between
// neighbouring layers alone, through a lane of their own where they pass a layer, so that no edge crosses a node.
func layout(nodes []graphNode) *graph {
	g := &graph{nodes: nodes, width: nodeWidthMin}
	for i := range nodes {
		g.width = max(g.width, min(nodeWidthMax, 46+7*len([]rune(nodes[i].Name))+6*len([]rune(nodes[i].Note))))
		g.places = append(g.places, place{width: float64(g.width)})
	}
	for i := range g.places {
		g.places[i].width = float64(g.width)
	}
	for v := range nodes {
		for _, u := range nodes[v].After {
			g.places[v].layer = max(g.places[v].layer, g.places[u].layer+1)
		}
	}
	if len(nodes) > 0 { // of a task whose plan is unknown there are none
		after := needed(nodes)
		if g.tangle = g.bends(after) > bendsMax; g.tangle {
			return g
		}
		g.route(after)
		g.order()
		g.put()
	}
	return g
}

// needed are the edges of a node that do not follow from others: u → v is left out when some other w between says both.
func needed(nodes []graphNode) [][]int {
	words := (len(nodes) + 63) / 64
	reach := make([][]uint64, len(nodes)) // all that come before
	kept := make([][]int, len(nodes))
	for v := range nodes {
		reach[v] = make([]uint64, words)
		after := slices.Clone(nodes[v].After)
		slices.Sort(after)
		after = slices.Compact(after)
		slices.Reverse(after)
		for _, u := range after {
			if reach[v][u/64]&(1<<(u%64)) == 0 {
				kept[v] = append(kept[v], u)
			}
			reach[v][u/64] |= 1 << (u % 64)
			for w := range words {
				reach[v][w] |= reach[u][w]
			}
		}
		slices.Sort(kept[v])
	}
	return kept
}

// bends is how many layers all edges together pass.
func (g *graph) bends(edges [][]int) (n int) {
	for v, after := range edges {
		for _, u := range after {
			n += g.places[v].layer - g.places[u].layer - 1
		}
	}
	return n
}

// route makes the edges, with a bend in each layer that they pass.
func (g *graph) route(edges [][]int) {
	for v, after := range edges {
		for _, u := range after {
			edge := []int{u}
			for l := g.places[u].layer + 1; l < g.places[v].layer; l++ {
				edge = append(edge, len(g.places))
				g.places = append(g.places, place{layer: l, width: laneWidth})
			}
			edge = append(edge, v)
			for i := 1; i < len(edge); i++ {
				g.places[edge[i-1]].down = append(g.places[edge[i-1]].down, edge[i])
				g.places[edge[i]].up = append(g.places[edge[i]].up, edge[i-1])
			}
			g.edges = append(g.edges, edge)
		}
	}
	for v := range g.places {
		for len(g.layers) <= g.places[v].layer {
			g.layers = append(g.layers, nil)
		}
		l := g.places[v].layer
		g.places[v].order = len(g.layers[l])
		g.layers[l] = append(g.layers[l], v)
	}
}

// order sorts each layer by the middle of its neighbours, down and up again, and keeps what crosses least.
func (g *graph) order() {
	best, fewest := g.snapshot(), g.crossings()
	for sweep := 0; sweep < sweeps && fewest > 0; sweep++ {
		for i := range g.layers {
			l := i
			if sweep%2 == 1 {
				l = len(g.layers) - 1 - i
			}
			middle := map[int]float64{}
			for _, v := range g.layers[l] {
				beside := g.places[v].up
				if sweep%2 == 1 {
					beside = g.places[v].down
				}
				middle[v] = float64(g.places[v].order)
				if len(beside) > 0 {
					sum := 0
					for _, u := range beside {
						sum += g.places[u].order
					}
					middle[v] = float64(sum) / float64(len(beside))
				}
			}
			slices.SortStableFunc(g.layers[l], func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
			for i, v := range g.layers[l] {
				g.places[v].order = i
			}
		}
		if n := g.crossings(); n < fewest {
			best, fewest = g.snapshot(), n
		}
	}
	for l := range best {
		g.layers[l] = best[l]
		for i, v := range best[l] {
			g.places[v].order = i
		}
	}
}

func (g *graph) snapshot() [][]int {
	all := make([][]int, len(g.layers))
	for l := range g.layers {
		all[l] = slices.Clone(g.layers[l])
	}
	return all
}

// crossings counts pairs of edges between two layers that cross: of two edges the one that begins further left ends further
// right. It counts them in a Fenwick tree over the places in the layer below.
func (g *graph) crossings() int {
	n := 0
	for l := range len(g.layers) - 1 {
		tree, edges := make([]int, len(g.layers[l+1])+1), 0
		for _, v := range g.layers[l] {
			for _, w := range g.places[v].down { // those that end left of it, or at the same place, do not cross
				left := 0
				for i := g.places[w].order + 1; i > 0; i -= i & -i {
					left += tree[i]
				}
				n += edges - left
			}
			for _, w := range g.places[v].down {
				for i := g.places[w].order + 1; i < len(tree); i += i & -i {
					tree[i]++
				}
			}
			edges += len(g.places[v].down)
		}
	}
	return n
}

// put gives each vertex its x: as near to the middle of its neighbours as the room between the vertices of its layer
// allows.
func (g *graph) put() {
	for l := range g.layers {
		g.pack(l, func(int) (float64, bool) { return 0, false })
	}
	for sweep := range sweeps {
		for i := range g.layers {
			l := i
			if sweep%2 == 1 {
				l = len(g.layers) - 1 - i
			}
			g.pack(l, func(v int) (float64, bool) {
				beside := g.places[v].up
				if sweep%2 == 1 || len(beside) == 0 {
					beside = g.places[v].down
				}
				if len(beside) == 0 {
					return g.places[v].x, true
				}
				sum := 0.0
				for _, u := range beside {
					sum += g.places[u].x
				}
				return sum / float64(len(beside)), true
			})
		}
	}
	left := g.places[0].x - g.places[0].width/2
	for i := range g.places {
		left = min(left, g.places[i].x-g.places[i].width/2)
	}
	for i := range g.places {
		g.places[i].x -= left
	}
}

// pack puts the vertices of a layer where they want to be, in their order and without overlap: neighbours that want the
// same room share the difference (pool adjacent violators).
func (g *graph) pack(l int, want func(v int) (float64, bool)) {
	type block struct {
		sum float64
		n   int
	}
	var blocks []block
	offset := make([]float64, len(g.layers[l]))
	for i, v := range g.layers[l] {
		if i > 0 {
			offset[i] = offset[i-1] + g.places[g.layers[l][i-1]].width/2 + nodeGap + g.places[v].width/2
		}
		at, ok := want(v)
		if !ok {
			at = 0
		}
		blocks = append(blocks, block{at - offset[i], 1})
		for k := len(blocks) - 1; k > 0 && blocks[k-1].sum/float64(blocks[k-1].n) > blocks[k].sum/float64(blocks[k].n); k-- {
			blocks[k-1] = block{blocks[k-1].sum + blocks[k].sum, blocks[k-1].n + blocks[k].n}
			blocks = blocks[:k]
		}
	}
	i := 0
	for _, b := range blocks {
		for range b.n {
			g.places[g.layers[l][i]].x = b.sum/float64(b.n) + offset[i]
			i++
		}
	}
}

// top is the y of the upper edge of a layer.
func top(layer int) int { return layer*(nodeHeight+layerGap) + 2 }
