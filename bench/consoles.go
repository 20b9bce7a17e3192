package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	consoleTabs    = 50
	consolePairs   = 2
	consoleSeconds = 30
)

// Consoles is what open tabs of the console cost a node that has nothing to do.
type Consoles struct {
	Scenario string         `json:"scenario"`
	Store    string         `json:"store"`
	Date     string         `json:"date"`
	Machine  string         `json:"machine"`
	Command  string         `json:"command"`
	Tabs     int            `json:"tabs"`
	Windows  []*ConsoleTime `json:"windows"` // in their order
	Without  ConsoleTime    `json:"without"` // medians
	With     ConsoleTime    `json:"with"`
	Visited  []*visited     `json:"visited"`
}

// ConsoleTime is one stretch of time.
type ConsoleTime struct {
	Tabs       int     `json:"tabs"`
	Seconds    float64 `json:"seconds"`
	EngineCPU  float64 `json:"engine_cpu_percent"` // of one core
	DatabasePC float64 `json:"database_cpu_percent"`
	Queries    float64 `json:"queries_per_s"`      // as the node counts them, of all its pools
	Asking     float64 `json:"asking_per_s"`       // of these, those of people who ask
	Database   float64 `json:"transactions_per_s"` // as PostgreSQL counts them, of all its clients; 0: SQLite
	Events     float64 `json:"events_per_s"`
}

// idleConsole measures a node without work, without and with open tabs of the console.
func idleConsole(ctx context.Context, s *settings, command string, out io.Writer) error {
	where, err := whereOf(s)
	if err != nil {
		return err
	}
	res := &Consoles{Scenario: s.scenario, Store: s.store, Date: time.Now().UTC().Format(time.RFC3339), Machine: where, Command: command, Tabs: orElse(s.tabs, consoleTabs)}
	r, err := newRig(ctx, s.system(rigOptions{HTTP: true}))
	if err != nil {
		return err
	}
	err = r.consoles(ctx, s, res)
	if closed := r.close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return publishTable(s, res, out)
}

func (r *rig) consoles(ctx context.Context, s *settings, res *Consoles) error {
	// A system that has done something: plans of statements, tables with rows, tasks that ended.
	load, err := r.load(ctx, []segment{{Rate: 500, For: 4 * time.Second}})
	if err != nil {
		return err
	}
	if load.Lost > 0 || !pause(ctx, idleSettle) {
		return fmt.Errorf("lost %d tasks: %w", load.Lost, ctx.Err())
	}
	span := time.Duration(orElse(s.seconds, consoleSeconds)) * time.Second
	for i := range orElse(s.pairs, consolePairs) {
		for _, with := range []bool{i%2 == 1, i%2 == 0} {
			w := &ConsoleTime{}
			if with {
				w.Tabs = res.Tabs
				seen, err := r.visited(ctx, visit{Tabs: res.Tabs}, func() error {
					if !pause(ctx, idleSettle) { // the pages were loaded
						return ctx.Err()
					}
					return r.quiet(ctx, w, span)
				})
				if err != nil {
					return err
				}
				if seen.Failed > 0 || seen.Events == 0 {
					return fmt.Errorf("%d of the tabs failed and %d events came: %s", seen.Failed, seen.Events, seen.Failure)
				}
				w.Events = float64(seen.Events) / seen.Seconds
				res.Visited = append(res.Visited, seen)
			} else if err := r.quiet(ctx, w, span); err != nil {
				return err
			}
			res.Windows = append(res.Windows, w)
		}
	}
	res.Without, res.With = middleOf(res.Windows, 0), middleOf(res.Windows, res.Tabs)
	return r.closeBooks(load)
}

// quiet measures a stretch of time in which nothing is submitted.
func (r *rig) quiet(ctx context.Context, w *ConsoleTime, span time.Duration) error {
	type reading struct {
		counters
		engine  float64 // CPU seconds
		queries map[string]float64
		used    usage
		at      time.Time
	}
	watch := &sampler{database: r.pid}
	read := func() (is reading, err error) {
		var a engineAnswer
		if is.queries, err = r.queries(ctx); err != nil {
			return is, err
		}
		if is.counters, err = r.counters(ctx); err != nil {
			return is, err
		}
		if err := r.engine.ask(engineRequest{}, &a); err != nil {
			return is, err
		}
		watch.take(false)
		is.engine, is.at, is.used = a.CPU, time.Now(), watch.samples[len(watch.samples)-1].used
		return is, nil
	}
	a, err := read()
	if err != nil {
		return err
	}
	if !pause(ctx, span) {
		return ctx.Err()
	}
	b, err := read()
	if err != nil {
		return err
	}
	w.Seconds = b.at.Sub(a.at).Seconds()
	w.EngineCPU, w.DatabasePC = 100*(b.engine-a.engine)/w.Seconds, 100*(b.used.database-a.used.database)/w.Seconds
	for pool, n := range b.queries {
		more := (n - a.queries[pool]) / w.Seconds
		w.Queries += more
		if pool == "asking" {
			w.Asking = more
		}
	}
	w.Database = float64(b.statements-a.statements) / w.Seconds
	return nil
}

// queriesMetric is the node's own count of what it asks its database.
const queriesMetric = "duly_database_queries_total"

// queries reads it, by pool.
func (r *rig) queries(ctx context.Context) (map[string]float64, error) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, r.httpURL+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	body, err := bodyOf(http.DefaultClient, ask)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		pool, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), queriesMetric+`{pool="`), `"} `)
		if !ok || !strings.HasPrefix(lines.Text(), queriesMetric) {
			continue
		}
		if all[pool], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("metric %s: %w", queriesMetric, err)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("metrics: no %s", queriesMetric)
	}
	return all, nil
}

// middleOf is the median of each figure, of the stretches with so many tabs.
func middleOf(all []*ConsoleTime, tabs int) ConsoleTime {
	of := func(f func(*ConsoleTime) float64) float64 {
		var some []float64
		for _, w := range all {
			if w.Tabs == tabs {
				some = append(some, f(w))
			}
		}
		return median(some)
	}
	return ConsoleTime{
		Tabs: tabs, Seconds: of(func(w *ConsoleTime) float64 { return w.Seconds }), EngineCPU: of(func(w *ConsoleTime) float64 { return w.EngineCPU }),
		DatabasePC: of(func(w *ConsoleTime) float64 { return w.DatabasePC }), Queries: of(func(w *ConsoleTime) float64 { return w.Queries }),
		Asking: of(func(w *ConsoleTime) float64 { return w.Asking }), Database: of(func(w *ConsoleTime) float64 { return w.Database }),
		Events: of(func(w *ConsoleTime) float64 { return w.Events }),
	}
}

func (c *Consoles) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, no work, open tabs of the console\n", storeWord(c.Store))
	fmt.Fprintln(w, "tabs\tengine % of a core\tdatabase % of a core\tqueries/s, all\tof people\ttransactions/s by the database\tevents/s")
	line := func(name string, t *ConsoleTime) {
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.2f\t%.2f\t%.2f\t%.1f\n", name, t.EngineCPU, t.DatabasePC, t.Queries, t.Asking, t.Database, t.Events)
	}
	for _, t := range c.Windows {
		line(strconv.Itoa(t.Tabs), t)
	}
	line("0, median", &c.Without)
	line(fmt.Sprintf("%d, median", c.Tabs), &c.With)
	fmt.Fprintf(w, "more\t%+.3f\t%+.3f\t%+.2f\t%+.2f\t%+.2f\n", c.With.EngineCPU-c.Without.EngineCPU, c.With.DatabasePC-c.Without.DatabasePC,
		c.With.Queries-c.Without.Queries, c.With.Asking-c.Without.Asking, c.With.Database-c.Without.Database)
	return w.Flush()
}
