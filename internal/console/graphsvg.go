package console

import (
	"fmt"
	"html"
	"html/template"
	"strings"

	"duly.dev/duly/internal/say"
)

// SVG draws the graph. The page has the same in a table, so that it is one picture to a reader.
func (g *graph) SVG(label string) template.HTML {
	if g.tangle {
		return template.HTML(`<p class="dim">` + html.EscapeString(say.Of("graph.tangle", "n", len(g.nodes))) + `</p>`)
	}
	width, height := 0.0, top(len(g.layers)-1)+nodeHeight+2
	for i := range g.places {
		width = max(width, g.places[i].x+g.places[i].width/2)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="graph" viewBox="-2 0 %.0f %d" width="%.0f" height="%d" role="img" aria-label="%s">`, width+4, height, width+4, height, html.EscapeString(label))
	for _, edge := range g.edges {
		x, y := g.places[edge[0]].x, top(g.places[edge[0]].layer)+nodeHeight
		fmt.Fprintf(&b, `<path class="edge" d="M%.0f %d`, x, y)
		for _, v := range edge[1:] {
			to, below := g.places[v].x, top(g.places[v].layer)
			if y < below-layerGap { // past the layer of the bend
				y = below - layerGap
				fmt.Fprintf(&b, "V%d", y)
			}
			fmt.Fprintf(&b, "C%.0f %d %.0f %d %.0f %d", x, y+layerGap/2, to, below-layerGap/2, to, below)
			x, y = to, below
		}
		b.WriteString(`"/>`)
	}
	for i := range g.nodes {
		n, p := &g.nodes[i], &g.places[i]
		l := lookOf(n.Status)
		if n.Status == "" {
			l = look{Icon: "plan", Class: "calm"}
		}
		x, y := p.x-p.width/2, top(p.layer)
		room := (g.width - 40 - 6*len([]rune(n.Note))) / 7
		fmt.Fprintf(&b, `<g class="node %s"><title>%s</title><rect x="%.0f" y="%d" width="%d" height="%d" rx="5"/>`, l.Class, html.EscapeString(strings.TrimSpace(n.Name+" "+l.Word+" "+n.Note)), x, y, g.width, nodeHeight)
		fmt.Fprintf(&b, `<path class="sign" transform="translate(%.0f %d)" d="%s"/>`, x+8, y+9, paths[l.Icon])
		// A picture of its own cuts off what is wider than its letters are counted.
		fmt.Fprintf(&b, `<svg x="%.0f" y="%d" width="%d" height="%d"><text y="22">%s</text></svg>`, x+30, y, max(0, g.width-36-7*len([]rune(n.Note))), nodeHeight, html.EscapeString(cutRunes(n.Name, room)))
		if n.Note != "" {
			fmt.Fprintf(&b, `<text class="note" x="%.0f" y="%d" text-anchor="end">%s</text>`, x+float64(g.width)-8, y+22, html.EscapeString(n.Note))
		}
		b.WriteString(`</g>`)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func cutRunes(s string, most int) string {
	if r := []rune(s); len(r) > most && most > 1 {
		return string(r[:most-1]) + "…"
	}
	return s
}
