package main

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is one plot.
type chart struct {
	Title, x, y string
	logX, logY  bool
	Curves      []curve
	bars        []plotter.HistogramBin
	SVG         template.HTML
}

// curve is one line of a chart and its entry in the legend.
type curve struct {
	Name           string
	color          color.RGBA
	Dashed, filled bool // filled: down to the axis
	xys            plotter.XYs
}

// CSS is the curve's colour.
func (c curve) CSS() string { return fmt.Sprintf("#%02x%02x%02x", c.color.R, c.color.G, c.color.B) }

// Colours that colour-blind readers tell apart too (Okabe and Ito).
var (
	blue, orange = color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	green, red   = color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	sky, pale    = color.RGBA{0x8f, 0xc9, 0xec, 0xff}, color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	dark         = color.RGBA{0x44, 0x44, 0x44, 0xff}
)

// charts are the plots that the run has data for, not yet drawn.
func charts(r *Result) []chart {
	var out []chart
	if len(r.Timeline) > 0 {
		out = timeCharts(r)
	}
	quantiles := map[string]Quantiles{"submit": r.Submit, "end_to_end": r.EndToEnd, "overhead": r.Overhead}
	for _, h := range r.Histogram {
		if len(h.Buckets) > 0 {
			out = append(out, histogramChart(h, quantiles[h.Name]))
		}
	}
	if len(r.Growth) > 0 {
		over := func(name string, c color.RGBA, value func(Growth) float64) curve {
			out := curve{Name: name, color: c}
			for _, g := range r.Growth {
				out.xys = append(out.xys, plotter.XY{X: float64(g.Parked), Y: value(g)})
			}
			return out
		}
		out = append(out, chart{Title: "Cost beside parked tasks", x: "parked tasks (without 0)", y: "time (ms)", logX: true, logY: true, Curves: []curve{
			over("submit p99", blue, func(g Growth) float64 { return g.Submit.P99 }),
			over("end to end p99", orange, func(g Growth) float64 { return g.EndToEnd.P99 }),
			over("scan", green, func(g Growth) float64 { return g.ScanMS }),
			over("takeover", red, func(g Growth) float64 { return g.TakeoverMS }),
		}})
	}
	return out
}

// timeCharts are the plots over the seconds of the run.
func timeCharts(r *Result) []chart {
	over := func(name string, c color.RGBA, value func(Point) float64) curve {
		out := curve{Name: name, color: c}
		for _, p := range r.Timeline {
			out.xys = append(out.xys, plotter.XY{X: float64(p.Second), Y: value(p)})
		}
		return out
	}
	dashed := func(c curve) curve { c.Dashed = true; return c }
	filled := func(c curve) curve { c.filled = true; return c }
	x := "time since the load began (s)"
	latencies := []curve{
		dashed(over("submit p50", blue, func(p Point) float64 { return p.SubmitP50 })),
		over("submit p99", blue, func(p Point) float64 { return p.SubmitP99 }),
		dashed(over("end to end p50", red, func(p Point) float64 { return p.EndToEndP50 })),
		over("end to end p99", red, func(p Point) float64 { return p.EndToEndP99 }),
	}
	if r.Disk != nil {
		latencies = append(latencies, over("a block's sync, the longest", green, func(p Point) float64 { return p.DiskMS }))
	}
	return []chart{
		{Title: "Throughput", x: x, y: "tasks per second", Curves: []curve{
			dashed(over("offered", dark, func(p Point) float64 { return float64(p.Offered) })),
			over("accepted", orange, func(p Point) float64 { return float64(p.Accepted) }),
			over("processed in time", blue, func(p Point) float64 { return float64(p.InTime) }),
		}},
		{Title: "Backlog: accepted and not ended", x: x, y: "tasks", Curves: []curve{
			filled(over("backlog", blue, func(p Point) float64 { return float64(p.Backlog) })),
		}},
		{Title: "Latency", x: x, y: "latency (ms)", logY: true, Curves: latencies},
		// Each is painted over the one before, so that what shows is its own part.
		{Title: "CPU by process, stacked", x: x, y: "cores", Curves: []curve{
			filled(over("generator", pale, func(p Point) float64 { return p.Cores.Engine + p.Cores.Database + p.Cores.Agents + p.Cores.Generator })),
			filled(over("agents", green, func(p Point) float64 { return p.Cores.Engine + p.Cores.Database + p.Cores.Agents })),
			filled(over("database", orange, func(p Point) float64 { return p.Cores.Engine + p.Cores.Database })),
			filled(over("engine", blue, func(p Point) float64 { return p.Cores.Engine })),
		}},
	}
}

// histogramChart shows how a latency is distributed, with its p50 and p99.
func histogramChart(h Histogram, q Quantiles) chart {
	name := strings.ReplaceAll(h.Name, "_", " ")
	out := chart{Title: "Distribution of " + name + " latency", x: "latency (ms)", y: "share of all (%)", logX: true}
	total, highest := 0.0, 0.0
	for _, b := range h.Buckets {
		total += float64(b.Count)
	}
	// The first bucket reaches down to 0, where a log axis does not: it is drawn
	// as wide as the next one.
	first := h.Buckets[0].UpToMS
	lower := first / 2
	if len(h.Buckets) > 1 {
		lower = first * first / h.Buckets[1].UpToMS
	}
	for _, b := range h.Buckets {
		share := 100 * float64(b.Count) / max(1, total)
		highest = max(highest, share)
		out.bars = append(out.bars, plotter.HistogramBin{Min: lower, Max: b.UpToMS, Weight: share})
		lower = b.UpToMS
	}
	mark := func(name string, ms float64, c color.RGBA, dashed bool) curve {
		return curve{Name: name + " " + readable(ms) + " ms", color: c, Dashed: dashed, xys: plotter.XYs{{X: ms, Y: 0}, {X: ms, Y: highest}}}
	}
	out.Curves = []curve{mark("p50", q.P50, dark, true), mark("p99", q.P99, red, false)}
	return out
}

// draw makes the chart's SVG.
func (c *chart) draw() error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.x, c.y
	p.Title.Padding, p.X.Label.Padding, p.Y.Label.Padding = vg.Points(8), vg.Points(3), vg.Points(3)
	for style, size := range map[*text.Style]float64{
		&p.Title.TextStyle: 13, &p.X.Label.TextStyle: 11, &p.Y.Label.TextStyle: 11, &p.X.Tick.Label: 10, &p.Y.Tick.Label: 10,
	} {
		style.Font.Variant, style.Font.Size, style.Color = "Sans", vg.Points(size), dark
	}
	if len(c.bars) > 0 {
		p.Add(&plotter.Histogram{Bins: c.bars, FillColor: sky, LineStyle: draw.LineStyle{Color: color.White, Width: vg.Points(0.5)}})
	}
	for _, curve := range c.Curves {
		for _, stretch := range c.unbroken(curve.xys) {
			if err := curve.addTo(p, stretch); err != nil {
				return err
			}
		}
	}
	scale(&p.X, c.logX, 1)
	scale(&p.Y, c.logY, 1.05)
	p.Add(grid())
	canvas := vgsvg.New(vg.Points(430), vg.Points(255))
	p.Draw(draw.Crop(draw.New(canvas), vg.Points(4), -vg.Points(8), vg.Points(4), -vg.Points(4)))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return fmt.Errorf("write SVG: %w", err)
	}
	_, body, _ := strings.Cut(svg.String(), "<svg") // without the XML prolog, which HTML does not know
	c.SVG = template.HTML("<svg" + body)
	return nil
}

// unbroken splits points where one has no place on a log axis: a second in which
// nothing ended has no latency.
func (c *chart) unbroken(xys plotter.XYs) []plotter.XYs {
	var out []plotter.XYs
	broken := true
	for _, xy := range xys {
		if c.logX && xy.X <= 0 || c.logY && xy.Y <= 0 {
			broken = true
			continue
		}
		if broken {
			out, broken = append(out, nil), false
		}
		out[len(out)-1] = append(out[len(out)-1], xy)
	}
	return out
}

// addTo draws a stretch of the curve; so few points that a line says little of
// them are dots too.
func (c curve) addTo(p *plot.Plot, xys plotter.XYs) error {
	line, err := plotter.NewLine(xys)
	if err != nil {
		return fmt.Errorf("line %s: %w", c.Name, err)
	}
	line.Color, line.Width = c.color, vg.Points(1.4)
	if c.Dashed {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	if c.filled {
		line.FillColor = c.color
	}
	p.Add(line)
	if len(xys) == 2 && xys[0].X == xys[1].X || len(xys) > 8 {
		return nil
	}
	dots, err := plotter.NewScatter(xys)
	if err != nil {
		return fmt.Errorf("dots %s: %w", c.Name, err)
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: c.color, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
	p.Add(dots)
	return nil
}

// tickLabel ends with a space, so that a reader's font may be wider than the one
// that the plot is laid out with.
func tickLabel(v float64) string { return readable(v) + " " }

// scale sets an axis from what is on it: from 0, or whole decades.
func scale(a *plot.Axis, log bool, headroom float64) {
	if a.Min > a.Max { // nothing is
		a.Min, a.Max = 1, 1
	}
	if !log {
		a.Min, a.Max = min(0, a.Min), max(1, a.Max)*headroom
		a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
			ticks := plot.DefaultTicks{}.Ticks(low, high)
			for i := range ticks {
				if !ticks[i].IsMinor() {
					ticks[i].Label = tickLabel(ticks[i].Value)
				}
			}
			return ticks
		})
		return
	}
	low, high := math.Floor(math.Log10(a.Min)), math.Ceil(math.Log10(a.Max))
	high = max(high, low+1)
	var ticks plot.ConstantTicks
	for e := low; e <= high; e++ {
		ticks = append(ticks, plot.Tick{Value: math.Pow(10, e), Label: tickLabel(math.Pow(10, e))})
		for k := 2.0; k < 10 && e < high; k++ {
			ticks = append(ticks, plot.Tick{Value: k * math.Pow(10, e)})
		}
	}
	a.Min, a.Max, a.Scale, a.Tick.Marker = math.Pow(10, low), math.Pow(10, high), plot.LogScale{}, ticks
}

// grid is faint enough to be drawn over what it measures.
func grid() *plotter.Grid {
	faint := draw.LineStyle{Color: color.NRGBA{0x88, 0x88, 0x88, 0x50}, Width: vg.Points(0.4)}
	return &plotter.Grid{Vertical: faint, Horizontal: faint}
}
