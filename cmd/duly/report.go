package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/examples/drone"
)

// quantiles are milliseconds of a latency.
type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// demoReport is what the demo found; its JSON is the demo's last line.
type demoReport struct {
	Store      string    `json:"store"`
	Faults     string    `json:"faults"`
	Seed       uint64    `json:"seed"`
	Submitted  int       `json:"submitted"`
	Accepted   int       `json:"accepted"`
	Refused    int       `json:"refused"`
	Unknown    int       `json:"unknown"` // submitted, but no answer came: may or may not be a task
	Processed  int       `json:"processed"`
	Undone     int       `json:"undone"`
	Error      int       `json:"error"`
	Lost       int       `json:"lost"`
	Doubled    int       `json:"doubled"`
	HalfDone   int       `json:"half_done"`
	SubmitMS   quantiles `json:"submit_ms"`
	EndToEndMS quantiles `json:"end_to_end_ms"`
	StepsPerS  float64   `json:"steps_per_s"`
	TasksPerS  float64   `json:"tasks_per_s"`
	Seconds    float64   `json:"seconds"`
	Restarts   int       `json:"restarts"`

	Examples []drone.Example `json:"examples,omitempty"`
}

// clean reports whether every promise was kept.
func (r *demoReport) clean() bool {
	return r.Lost == 0 && r.Doubled == 0 && r.HalfDone == 0 && r.Processed+r.Undone+r.Error == r.Accepted
}

func (r *demoReport) writeJSON(w io.Writer) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

// writeTable prints what a person looks at.
func (r *demoReport) writeTable(w io.Writer) {
	row := func(name, value, note string) {
		fmt.Fprintf(w, "  %-22s %14s   %s\n", name, value, note)
	}
	count := func(n int) string { return thousands(n) }
	fmt.Fprintf(w, "\n  %d deliveries of 5 steps, store %s, faults %s, seed %d\n  %s\n", r.Submitted, r.Store, r.Faults, r.Seed, strings.Repeat("─", 62))
	row("accepted", count(r.Accepted), "answered after it was on disk")
	row("processed", count(r.Processed), "all five steps done")
	row("undone", count(r.Undone), "refused or out of time, and nothing left behind")
	row("error", count(r.Error), "operator action required")
	row("lost", count(r.Lost), "accepted and never ended")
	row("doubled", count(r.Doubled), "an effect made twice")
	row("half-done", count(r.HalfDone), "processed without all, or undone with some")
	row("submit p50 / p99", fmt.Sprintf("%.1f / %.1f ms", r.SubmitMS.P50, r.SubmitMS.P99), "")
	row("end to end p50 / p99", fmt.Sprintf("%.0f / %.0f ms", r.EndToEndMS.P50, r.EndToEndMS.P99), "")
	row("durable steps/s", fmt.Sprintf("%.0f", r.StepsPerS), fmt.Sprintf("%.1f s in all", r.Seconds))
	if r.Restarts > 0 {
		row("roles restarted", count(r.Restarts), "")
	}
	if r.Unknown > 0 {
		row("unanswered", count(r.Unknown), "submissions whose answer never came; not promised anything")
	}
	fmt.Fprintln(w)
	for _, e := range r.Examples {
		fmt.Fprintf(w, "  %s: %s: %s\n", e.Finding, e.Task, e.Why)
	}
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// latencies are all that were measured: a demo has a million at most.
type latencies struct{ all []time.Duration }

func newLatencies() *latencies { return &latencies{} }

func (l *latencies) add(d time.Duration) { l.all = append(l.all, d) }

func (l *latencies) quantiles() quantiles {
	slices.Sort(l.all)
	return quantiles{P50: l.quantile(0.50), P99: l.quantile(0.99)}
}

// quantile is by nearest rank, in milliseconds; the latencies are sorted.
func (l *latencies) quantile(q float64) float64 {
	if len(l.all) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(l.all))))
	return float64(l.all[max(rank, 1)-1].Microseconds()) / 1000
}
