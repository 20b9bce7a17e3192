package console

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares a text with its file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; -rewrite, and read what changed", file)
	}
}

// shapes are plans of the sizes that must be readable.
func shapes() map[string]*core.Plan {
	five := chain("five", 1, "check", "reserve", "charge", "ship", "mail")
	twenty, sixty := partial("twenty", 20), partial("sixty", 60)
	chained := chain("chained", 1)
	wide := core.Plan{Name: "wide", Version: 1}
	all := core.Plan{Name: "all", Version: 1} // each after every one before: the densest order there is
	for i := range core.StepsMax {
		s := core.Step{Name: fmt.Sprintf("s%d", i), Agent: "a"}
		if i > 0 {
			s.After = []int{i - 1}
		}
		chained.Steps = append(chained.Steps, s)
		s.After = nil
		if i > 0 && i < core.StepsMax-1 {
			s.After = []int{0}
		}
		for a := 1; i == core.StepsMax-1 && a < i; a++ {
			s.After = append(s.After, a)
		}
		wide.Steps = append(wide.Steps, s)
		s.After = nil
		for a := range i {
			s.After = append(s.After, a)
		}
		all.Steps = append(all.Steps, s)
	}
	return map[string]*core.Plan{"five": &five, "twenty": &twenty, "sixty": &sixty, "chained": &chained, "wide": &wide, "all": &all}
}

// TestGraph: no node is on another, each is below all that it comes after, edges cross no node, and the picture is the
// one that was looked at.
//
// covers: OP14
func TestGraph(t *testing.T) {
	for name, p := range shapes() {
		g := planGraph(p)
		for a := range g.nodes {
			for b := range a {
				if g.places[a].layer == g.places[b].layer && math.Abs(g.places[a].x-g.places[b].x) < float64(g.width) {
					t.Errorf("%s: nodes %d and %d overlap", name, a, b)
				}
			}
			for _, u := range p.Steps[a].After {
				if g.places[u].layer >= g.places[a].layer {
					t.Errorf("%s: step %d comes after step %d, and is not below it", name, a, u)
				}
			}
		}
		drawn := make([]core.StepBuilder, len(p.Steps)) // what each step is seen to come after
		for i, edge := range g.edges {
			u, v := edge[0], edge[len(edge)-1]
			drawn[v].Add(u)
			for k, at := range edge {
				if want := g.places[u].layer + k; g.places[at].layer != want {
					t.Errorf("%s: edge %d skips layer %d without a lane", name, i, want)
				}
				if at < len(g.nodes) {
					continue
				}
				for n := range g.nodes { // it passes this layer straight down: beside every node
					if g.places[n].layer == g.places[at].layer && math.Abs(g.places[n].x-g.places[at].x) < float64(g.width)/2 {
						t.Errorf("%s: edge %d crosses node %d", name, i, n)
					}
				}
			}
		}
		// What is not drawn follows from what is.
		before := make([]core.StepSet, len(p.Steps))
		for v := range p.Steps {
			edges := drawn[v].Set()
			drawn[v].AddAll(edges)
			edges.Each(func(u int) { drawn[v].AddAll(before[u]) })
			before[v] = drawn[v].Set()
			for _, u := range p.Steps[v].After {
				if !before[v].Has(u) {
					t.Errorf("%s: that %d comes after %d is neither drawn nor follows", name, v, u)
				}
			}
		}
		switch name {
		case "five", "twenty", "sixty":
			golden(t, "graph-"+name+".svg", string(g.SVG("Graph of "+name))+"\n")
		}
	}
}

// TestGraphCrossings counts crossings by looking at each pair of edges.
func TestGraphCrossings(t *testing.T) {
	for n := 2; n < 40; n++ {
		p := partial("drawn", n)
		g := planGraph(&p)
		want := 0
		for l := range g.layers {
			var edges [][2]int
			for at, v := range g.layers[l] {
				for _, w := range g.places[v].down {
					for _, e := range edges {
						if e[0] < at && e[1] > g.places[w].order || e[0] > at && e[1] < g.places[w].order {
							want++
						}
					}
					edges = append(edges, [2]int{at, g.places[w].order})
				}
			}
		}
		if got := g.crossings(); got != want {
			t.Errorf("%d steps: %d crossings, want %d", n, got, want)
		}
	}
}

// TestGraphOfTangle: a graph whose edges pass too many layers is not drawn, and says so.
func TestGraphOfTangle(t *testing.T) {
	var p core.Plan
	last := core.Step{Name: "last"}
	for i := range core.StepsMax - 1 {
		s := core.Step{Name: fmt.Sprintf("s%d", i)}
		if last.After = append(last.After, i); i > 0 && i < core.StepsMax/2 {
			s.After = []int{i - 1}
		}
		p.Steps = append(p.Steps, s)
	}
	p.Steps = append(p.Steps, last)
	if got := string(planGraph(&p).SVG("x")); !strings.Contains(got, "too many edges") {
		t.Errorf("%d bytes of a picture", len(got))
	}
}

// TestGraphOfMany: a fan-out of 10,000 is one node with its counts.
//
// covers: OP14
func TestGraphOfMany(t *testing.T) {
	svg := string(layout([]graphNode{{Name: "split", Status: "done"}, {Name: "resize", Status: "running", Note: "9,950 of 10,000", After: []int{0}}, {Name: "join", Status: "waiting", After: []int{1}}}).SVG("x"))
	if n := strings.Count(svg, `<g class="node`); n != 3 {
		t.Errorf("%d nodes, want 3", n)
	}
	if !strings.Contains(svg, ">9,950 of 10,000</text>") {
		t.Error("the node has no counts")
	}
}
