package main

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// report is what the page shows.
type report struct {
	*Result
	Short  string
	Missed []string
	Groups []figureGroup
	Charts []chart
}

// figureGroup is a part of the table of key figures.
type figureGroup struct {
	Name    string
	Figures []figure
}

// figure is a row of that table, with one floor at most.
type figure struct {
	Name, Unit, floor string
	values            []float64 // none: what the floor measures
	Verdict           *verdict
}

// Value is what was measured, for a reader.
func (f figure) Value() string {
	if len(f.values) == 0 {
		return f.Verdict.Measured()
	}
	var out []string
	for _, v := range f.values {
		out = append(out, readable(v))
	}
	return strings.Join(out, " / ")
}

// Of names the one of several values that the floor is for.
func (f figure) Of() string {
	if len(f.values) < 2 {
		return ""
	}
	return f.floor[strings.LastIndex(f.floor, ".")+1:]
}

// writeHTML writes a run as a page of its own: no script, and nothing to load.
func writeHTML(w io.Writer, r *Result) error {
	verdicts := verify(r)
	page := report{Result: r, Short: shortRound(r), Groups: keyFigures(r, verdicts), Charts: charts(r)}
	for _, v := range verdicts {
		if v.Missed() {
			page.Missed = append(page.Missed, v.name)
		}
	}
	for i := range page.Charts {
		if err := page.Charts[i].draw(); err != nil {
			return fmt.Errorf("write report: draw %q: %w", page.Charts[i].Title, err)
		}
	}
	if err := reportPage.Execute(w, page); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// keyFigures are all figures beside their floors, without those that this run
// has none of: nothing but 0, and no floor for it.
func keyFigures(r *Result, verdicts []verdict) []figureGroup {
	row := func(name, unit, floor string, values ...float64) figure {
		return figure{name, unit, floor, values, nil}
	}
	latency := func(name, floor string, q Quantiles) figure {
		return row(name+": p50 / p99 / p99.9 / max", "ms", floor, q.P50, q.P99, q.P999, q.Max)
	}
	var idle Idle
	if r.Idle != nil {
		idle = *r.Idle
	}
	var disk Disk
	if r.Disk != nil {
		disk = *r.Disk
	}
	c := r.CPUPerTask
	all := []figureGroup{
		{"Load", []figure{
			row("duration", "s", "", r.Seconds),
			row("offered by the schedule", "/s", "", r.OfferedPerS),
			row("offered / accepted / refused", "", "refused", float64(r.Offered), float64(r.Accepted), float64(r.Refused)),
			row("accepted rate by offered rate", "", "accepted / offered"),
			row("no answer within 5 s", "", "timed_out"),
			row("partitions", "", "", float64(r.Partitions)),
			row("committers, where they were told", "", "", float64(r.Shards)),
			row("gap between commits, where it was told", "ms", "", r.CommitGap),
			row("already there", "", "", float64(r.Preloaded)),
			latency("generator behind its schedule", "", r.GeneratorLate),
		}},
		{"Latency", []figure{
			latency("submit", "submit_ms.p99", r.Submit),
			latency("end to end", "end_to_end_ms.p99", r.EndToEnd),
			latency("overhead", "overhead_ms.p99", r.Overhead),
			row("takeover of everything parked", "ms", "growth.takeover_ms"),
			row("scan beside everything parked", "ms", "growth.scan_ms"),
		}},
		{"Books", []figure{
			row("processed / undone / expired / error", "", "error", float64(r.Processed), float64(r.Undone), float64(r.Expired), float64(r.Error)),
			row("undone, expired or late", "", "undone + expired + late"),
			row("accepted and never ended", "", "accepted - ended"),
			row("lost", "", "lost"),
			row("doubled", "", "doubled"),
			row("half done", "", "half_done"),
		}},
		{"Throughput", []figure{
			row("tasks processed in time", "/s", "tasks_per_s", r.TasksPerS),
			row("steps", "/s", "", r.StepsPerS),
			row("backlog: highest / when the load stopped", "", "", float64(r.BacklogMax), float64(r.FinalBacklog)),
			row("drain", "s", "", r.DrainSeconds),
			row("processed in time in the drain", "/s", "drain_tasks_per_s", r.DrainTasksPerS),
			row("recovered after", "s", "", r.RecoverSeconds),
		}},
		{"CPU", []figure{
			row("used of the machine", "cores", "cores", r.Cores),
			row("taken by the machine's host", "cores", "", r.StolenCores),
			row("the machine stood still for up to", "ms", "", r.FrozenMS),
			row("per task: total / generator / engine / agents / database", "µs", "cpu_us_per_task.total",
				c.Total, c.Generator, c.Engine, c.Agents, c.Database),
			row("engine without work", "% of a core", "idle.engine_cpu_percent"),
			row("agents / database without work", "% of a core", "", idle.AgentsCPUPercent, idle.DatabaseCPUPercent),
			row("transactions without work", "/min", "", idle.StatementsPerMinute),
			row("watched without work", "s", "", idle.Seconds),
		}},
		{"Memory and disk", []figure{
			latency("a block written and synced beside the load", "", disk.Sync),
			row("such syncs of 50 ms and more", "", "", float64(disk.Stalls)),
			row("these together", "ms", "", disk.StalledMS),
			row("PSS at its highest: engine / database", "MiB", "pss_mb_max.engine", r.PSSMax.Engine, r.PSSMax.Database),
			row("WAL per task", "bytes", "", r.WALPerTask),
			row("checkpoints", "", "checkpoints", float64(r.Checkpoints)),
			row("details kept", "s", "", r.RetainDetail),
			row("journals purged", "", "", float64(r.Purged)),
		}},
	}
	for i := range all {
		for k := range all[i].Figures {
			f := &all[i].Figures[k]
			if at := slices.IndexFunc(verdicts, func(v verdict) bool { return v.name == f.floor }); at >= 0 {
				f.Verdict = &verdicts[at]
			}
		}
		all[i].Figures = slices.DeleteFunc(all[i].Figures, func(f figure) bool {
			return f.Verdict == nil && !slices.ContainsFunc(f.values, func(v float64) bool { return v != 0 })
		})
	}
	return slices.DeleteFunc(all, func(g figureGroup) bool { return len(g.Figures) == 0 })
}

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{"readable": readable, "whole": func(n int) string { return readable(float64(n)) }}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Scenario}}, {{.Store}}, {{.Wire}}: {{.Date}}</title>
<style>
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: #fff; color: #222; font: 15px/1.45 system-ui, "Segoe UI", Roboto, sans-serif }
h1 { margin: 0 0 .5rem; font-size: 1.6rem } h2 { margin: 2rem 0 .5rem; font-size: 1.15rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 } dt { color: #666 } dd { margin: 0; overflow-wrap: anywhere }
.said { display: inline-block; margin: .8rem 0 0; padding: .3rem .7rem; border-radius: .3rem; background: #eee; font-weight: 600 }
.good { color: #00664a } .bad { color: #b3400a } .said.good { background: #e0f3ec } .said.bad { background: #fbe7dc }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .22rem .7rem .22rem 0; border-bottom: 1px solid #e6e6e6; text-align: left; vertical-align: top }
thead th { color: #666; font-weight: 500 } th.group { padding-top: 1rem; border-bottom-color: #999 } .number { text-align: right }
.unit, .aim { color: #666 } .whole { white-space: nowrap }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); gap: 1.5rem }
figure { margin: 0 } svg { display: block; width: 100%; height: auto } svg text { font-family: "Liberation Sans", Arial, Helvetica, sans-serif !important }
figcaption { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; justify-content: center; font-size: .85rem }
figcaption i { display: inline-block; width: 1.4rem; margin-right: .4rem; vertical-align: middle; border-top: 3px solid } i.dashed { border-top-style: dashed }
@media (max-width: 40rem) { body { padding: .7rem; font-size: 14px } dl { grid-template-columns: 1fr } dd { margin-bottom: .3rem } }
</style>
</head>
<body>
<h1>{{.Scenario}} · {{.Store}}{{with .Wire}} · {{.}}{{end}}</h1>
<dl>
<dt>Date</dt><dd>{{.Date}}</dd>
<dt>Machine</dt><dd>{{.Machine}}</dd>
<dt>Disk</dt><dd>{{.Sync}}{{with .MaxWALSize}}; max_wal_size {{.}}{{end}}</dd>
<dt>Command</dt><dd><code>{{.Command}}</code></dd>
</dl>
{{if .Missed}}<p class="said bad">Missed: {{range $i, $name := .Missed}}{{if $i}}, {{end}}{{$name}}{{end}}</p>
{{- else if .Short}}<p class="said">Short round ({{.Short}}): the floors are shown and not judged</p>
{{- else}}<p class="said good">All floors hold</p>{{end}}
<h2>Key figures</h2>
<div class="wide"><table>
<thead><tr><th>figure</th><th>measured</th><th>floor</th><th>outcome</th></tr></thead>
{{range .Groups}}<tbody><tr><th class="group" colspan="4">{{.Name}}</th></tr>
{{range .Figures}}<tr><td>{{.Name}}</td><td>{{.Value}} <span class="unit">{{.Unit}}</span></td>
{{- if .Verdict}}<td>{{.Of}} <span class="whole">{{.Verdict.FloorText}}</span>{{with .Verdict.AimText}} <span class="aim whole">(aim {{.}})</span>{{end}}</td>
<td class="{{if .Verdict.Missed}}bad{{else if .Verdict.Judged}}good{{end}}">{{.Verdict.Outcome}}</td>{{else}}<td></td><td></td>{{end}}</tr>
{{end}}</tbody>{{end}}
</table></div>
{{if .Probes}}<h2>Rates tried</h2>
<div class="wide"><table>
<thead><tr><th class="number">offered/s</th><th class="number">ended/s</th><th class="number">backlog at the end</th><th>held: at most a second of arrivals left</th></tr></thead>
{{range .Probes}}<tr><td class="number">{{readable .OfferedPerS}}</td><td class="number">{{readable .TasksPerS}}</td><td class="number">{{whole .FinalBacklog}}</td>
<td class="{{if .Held}}good{{else}}bad{{end}}">{{if .Held}}yes{{else}}no{{end}}</td></tr>
{{end}}</table></div>{{end}}
{{if .Growth}}<h2>Beside parked tasks</h2>
<div class="wide"><table>
<thead><tr><th class="number">parked</th><th class="number">submit p50 / p99 (ms)</th><th class="number">end to end p50 / p99 (ms)</th><th class="number">scan (ms)</th>
<th class="number">takeover (ms)</th><th class="number">engine PSS (MiB)</th><th class="number">expired at once</th><th class="number">none overdue after (ms)</th></tr></thead>
{{range .Growth}}<tr><td class="number">{{whole .Parked}}</td><td class="number">{{readable .Submit.P50}} / {{readable .Submit.P99}}</td>
<td class="number">{{readable .EndToEnd.P50}} / {{readable .EndToEnd.P99}}</td><td class="number">{{readable .ScanMS}}</td><td class="number">{{readable .TakeoverMS}}</td>
<td class="number">{{readable .EnginePSS}}</td><td class="number">{{if .Expired}}{{whole .Expired}}</td><td class="number">{{readable .ExpiredMS}}{{else}}–</td><td class="number">–{{end}}</td></tr>
{{end}}</table></div>{{end}}
{{if .Charts}}<h2>Plots</h2>
<div class="charts">
{{range .Charts}}<figure aria-label="{{.Title}}">{{.SVG}}<figcaption>{{range .Curves}}<span><i{{if .Dashed}} class="dashed"{{end}} style="border-top-color: {{.CSS}}"></i>{{.Name}}</span>{{end}}</figcaption></figure>
{{end}}</div>{{end}}
</body>
</html>
`))

// readable writes a number for a person: thousands apart, no more digits than
// mean something.
func readable(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	decimals := 0
	switch size := math.Abs(v); {
	case size < 1:
		decimals = 4
	case size < 10:
		decimals = 2
	case size < 1000:
		decimals = 1
	}
	whole, rest, _ := strings.Cut(strconv.FormatFloat(v, 'f', decimals, 64), ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest = strings.TrimRight(rest, "0"); rest != "" {
		return whole + "." + rest
	}
	return whole
}
