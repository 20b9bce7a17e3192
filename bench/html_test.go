package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// sampleRun is a run with something in every part of its report.
func sampleRun(scenario, store string) *Result {
	r := atFloors(scenario, store, "single")
	r.Date, r.Machine, r.Sync, r.Command = "2026-01-02T03:04:05Z", "2 cores <of> something", "fsync on", "bench -scenario "+scenario
	r.Probes = []Probe{{OfferedPerS: 12_000, TasksPerS: 11_998, FinalBacklog: 900, Held: true}, {OfferedPerS: 16_000, TasksPerS: 13_100, FinalBacklog: 170_000}}
	if scenario == "idle" {
		r.Probes = nil
		return r
	}
	for s := range 125 {
		wave := 1 + 0.1*math.Sin(float64(s)/3)
		p := Point{
			Second: s, Offered: 10_000, Accepted: int(10_000 * wave), Ended: int(9_900 * wave), InTime: int(9_900 * wave), Backlog: int(1_500 * wave),
			SubmitP50: 2 * wave, SubmitP99: 15 * wave, EndToEndP50: 106 * wave, EndToEndP99: 190 * wave,
			Cores: CPU{Total: 1.5 * wave, Generator: 0.2 * wave, Engine: 0.7 * wave, Agents: 0.2 * wave, Database: 0.4 * wave},
		}
		if s >= 120 { // the drain: nothing is offered, so nothing is answered
			p.Offered, p.Accepted, p.SubmitP50, p.SubmitP99 = 0, 0, 0, 0
		}
		r.Timeline = append(r.Timeline, p)
	}
	for _, name := range []string{"submit", "end_to_end", "overhead"} {
		h := Histogram{Name: name}
		for i, limit := 0, 0.5; i < 25; i, limit = i+1, limit*1.25 {
			h.Buckets = append(h.Buckets, Bucket{UpToMS: limit, Count: int64(1e6 * math.Exp(-math.Pow(float64(i-9)/3, 2)))})
		}
		r.Histogram = append(r.Histogram, h)
	}
	r.Submit, r.EndToEnd, r.Overhead = Quantiles{2.1, 14.9, 44, 120}, Quantiles{104, 188, 260, 410}, Quantiles{3.9, 47, 95, 301}
	return r
}

func page(t *testing.T, r *Result) string {
	t.Helper()
	var out bytes.Buffer
	if err := writeHTML(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestReportHasItsParts(t *testing.T) {
	always := []string{"<h1>", "2026-01-02T03:04:05Z", "2 cores &lt;of&gt; something", "fsync on", "Key figures", "All floors hold"}
	loads := []string{">Throughput<", ">Backlog", ">Latency<", ">CPU by process, stacked<", ">Distribution of submit latency<",
		">Distribution of end to end latency<", ">Distribution of overhead latency<", ">tasks per second<", ">latency (ms)<", ">cores<"}
	for scenario, parts := range map[string][]string{
		"peak":      append([]string{"Rates tried", "170,000", "12,000", "(aim ≥ 15,000)"}, loads...),
		"sustained": append([]string{"p99 <span class=\"whole\">&lt; 150</span>", "1.75"}, loads...),
		"spike":     append([]string{"≤ 1,536", "refused <span class=\"whole\">= 0</span>"}, loads...),
		"growth":    {"Beside parked tasks", "1,000,000", ">Cost beside parked tasks<", "takeover"},
		"idle":      {"engine without work", "≤ 1"},
	} {
		got := page(t, sampleRun(scenario, "postgres"))
		for _, part := range append(parts, always...) {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %q", scenario, part)
			}
		}
		for _, never := range []string{"NaN", "<?xml", "<script", "src=", "href=", "@import", "ZgotmplZ"} {
			if strings.Contains(got, never) {
				t.Errorf("%s: has %q", scenario, never)
			}
		}
	}
}

func TestReportSaysWhatIsMissed(t *testing.T) {
	r := sampleRun("peak", "postgres")
	r.TasksPerS, r.Lost = 11_000, 1
	if got := page(t, r); !strings.Contains(got, "Missed: lost, tasks_per_s") || strings.Count(got, ">MISSED<") != 2 {
		t.Error("not what is missed")
	}
	r.Lost, r.Seconds = 0, 10
	if got := page(t, r); !strings.Contains(got, "Short round") || strings.Contains(got, "MISSED") {
		t.Error("a short round is judged")
	}
}

// A floor without a row would be judged and not be seen.
func TestEveryFloorHasARow(t *testing.T) {
	each(func(r *Result) {
		verdicts := verify(r)
		rows := map[string]bool{}
		for _, g := range keyFigures(r, verdicts) {
			for _, f := range g.Figures {
				rows[f.floor] = true
				if f.Verdict != nil && f.Verdict.name != f.floor {
					t.Errorf("%s stands beside the floor %s", f.Name, f.Verdict.name)
				}
			}
		}
		for _, v := range verdicts {
			if !rows[v.name] {
				t.Errorf("%s: no row for %s", r.Scenario, v.name)
			}
		}
	})
}

func TestPlotsAreWellFormed(t *testing.T) {
	for _, c := range charts(sampleRun("growth", "sqlite")) {
		if err := c.draw(); err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(c.SVG)))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", c.Title, err)
			}
		}
	}
}

// What was not measured is no reason to fail: the report may be of a run that
// broke off.
func TestReportOfLittle(t *testing.T) {
	for name, r := range map[string]*Result{
		"nothing":          {},
		"one empty second": {Scenario: "peak", Store: "sqlite", Wire: "single", Timeline: []Point{{}}},
		"one bucket":       {Scenario: "sustained", Store: "sqlite", Histogram: []Histogram{{Name: "submit", Buckets: []Bucket{{UpToMS: 10, Count: 0}}}, {Name: "overhead"}}},
		"none parked":      {Scenario: "growth", Store: "sqlite", Growth: []Growth{{}}},
	} {
		if got := page(t, r); !strings.Contains(got, "</html>") || strings.Contains(got, "NaN") {
			t.Errorf("%s: no whole page", name)
		}
	}
}

type fullDisk struct{}

var errFull = errors.New("full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestReportSaysThatItIsNotWritten(t *testing.T) {
	if err := writeHTML(fullDisk{}, sampleRun("peak", "sqlite")); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
}

func TestReadable(t *testing.T) {
	for _, tt := range []struct {
		value float64
		want  string
	}{
		{0, "0"}, {0.3, "0.3"}, {0.99912, "0.9991"}, {1.75, "1.75"}, {9.999, "10"}, {14.96, "15"}, {149.94, "149.9"}, {150, "150"}, {999.96, "1,000"},
		{1536, "1,536"}, {12_000.4, "12,000"}, {1_234_567, "1,234,567"}, {-1_234, "-1,234"}, {-123_456, "-123,456"}, {100_000, "100,000"},
		{math.NaN(), "–"}, {math.Inf(1), "–"},
	} {
		if got := readable(tt.value); got != tt.want {
			t.Errorf("readable(%v) = %q, want %q", tt.value, got, tt.want)
		}
	}
}
