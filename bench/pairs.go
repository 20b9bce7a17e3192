package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Pairs is what a scenario measured that runs the same load without something beside it and with it, in turn.
type Pairs struct {
	Scenario string      `json:"scenario"`
	Store    string      `json:"store"`
	Date     string      `json:"date"`
	Machine  string      `json:"machine"`
	Command  string      `json:"command"`
	Seconds  int         `json:"seconds"` // of each load
	Beside   string      `json:"beside"`  // what was beside it
	Compared []*Compared `json:"compared"`
}

// Compared are the pairs of one rate.
type Compared struct {
	Rate      int              `json:"rate"` // offered, a second
	What      string           `json:"what"`
	Pairs     []Pair           `json:"pairs"`
	Without   Side             `json:"without"` // medians, of each figure by itself
	With      Side             `json:"with"`
	Change    Change           `json:"change_percent"`
	Visited   []*visited       `json:"visited,omitempty"`
	Operation []*OperationTime `json:"operation,omitempty"`
	Repaired  int64            `json:"repaired,omitempty"`    // tasks of the operations
	CPUOfEach float64          `json:"cpu_of_each,omitempty"` // µs of engine and database for each task that ended, the repaired ones too
}

// Pair is one load without and one with.
type Pair struct {
	Without Side `json:"without"`
	With    Side `json:"with"`
}

// Side is what of a load is compared.
type Side struct {
	TasksPerS float64   `json:"tasks_per_s"`
	Submit    Quantiles `json:"submit_ms"`
	EndToEnd  Quantiles `json:"end_to_end_ms"`
	CPU       CPU       `json:"cpu_us_per_task"`
	Cores     float64   `json:"cores"`
	Stolen    float64   `json:"stolen_cores"`
	Backlog   float64   `json:"final_backlog"`
	InTime    float64   `json:"in_time"` // tasks of the load, until the last
}

// Change is by how many percent the medians with differ from those without. Less throughput is a loss; CPU is that of
// engine and database for a task of the load.
type Change struct {
	TasksPerS float64 `json:"tasks_per_s"`
	CPU       float64 `json:"cpu"`
	P50       float64 `json:"end_to_end_p50"`
	P99       float64 `json:"end_to_end_p99"`
}

func sideOf(r *Result) Side {
	return Side{TasksPerS: r.TasksPerS, Submit: r.Submit, EndToEnd: r.EndToEnd, CPU: r.CPUPerTask, Cores: r.Cores, Stolen: r.StolenCores, Backlog: float64(r.FinalBacklog), InTime: float64(r.Processed - r.Late)}
}

// middle is the median of each figure.
func middle(sides []Side) Side {
	of := func(f func(*Side) float64) float64 {
		all := make([]float64, len(sides))
		for i := range sides {
			all[i] = f(&sides[i])
		}
		return median(all)
	}
	latency := func(f func(*Side) *Quantiles) Quantiles {
		return Quantiles{
			P50: of(func(s *Side) float64 { return f(s).P50 }), P99: of(func(s *Side) float64 { return f(s).P99 }),
			P999: of(func(s *Side) float64 { return f(s).P999 }), Max: of(func(s *Side) float64 { return f(s).Max }),
		}
	}
	return Side{
		TasksPerS: of(func(s *Side) float64 { return s.TasksPerS }), Cores: of(func(s *Side) float64 { return s.Cores }),
		Stolen: of(func(s *Side) float64 { return s.Stolen }), Backlog: of(func(s *Side) float64 { return s.Backlog }),
		Submit: latency(func(s *Side) *Quantiles { return &s.Submit }), EndToEnd: latency(func(s *Side) *Quantiles { return &s.EndToEnd }),
		CPU: CPU{
			Total: of(func(s *Side) float64 { return s.CPU.Total }), Generator: of(func(s *Side) float64 { return s.CPU.Generator }), Engine: of(func(s *Side) float64 { return s.CPU.Engine }),
			Agents: of(func(s *Side) float64 { return s.CPU.Agents }), Database: of(func(s *Side) float64 { return s.CPU.Database }),
		},
	}
}

// median is that of some numbers, of two in the middle their mean; 0 of none.
func median(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// percent is by how many percent b is more than a.
func percent(a, b float64) float64 { return ratio(100*(b-a), a) }

// settle works out medians and changes.
func (c *Compared) settle() {
	var without, with []Side
	for i := range c.Pairs {
		without, with = append(without, c.Pairs[i].Without), append(with, c.Pairs[i].With)
	}
	c.Without, c.With = middle(without), middle(with)
	a, b := &c.Without, &c.With
	c.Change = Change{
		TasksPerS: percent(a.TasksPerS, b.TasksPerS), CPU: percent(a.CPU.Engine+a.CPU.Database, b.CPU.Engine+b.CPU.Database),
		P50: percent(a.EndToEnd.P50, b.EndToEnd.P50), P99: percent(a.EndToEnd.P99, b.EndToEnd.P99),
	}
	tasks := 0.0
	c.Repaired = 0
	for _, o := range c.Operation {
		c.Repaired += o.Tally.Done
	}
	for i := range with {
		tasks += with[i].InTime
	}
	c.CPUOfEach = ratio((b.CPU.Engine+b.CPU.Database)*tasks, tasks+float64(c.Repaired))
}

// alternate measures n pairs: each second pair begins with the load that the one before ended with, so that what grows or
// cools down during the run counts for both.
func alternate(n int, load func(pair int, with bool) (Side, error)) ([]Pair, error) {
	pairs := make([]Pair, n)
	for i := range pairs {
		for _, with := range []bool{i%2 == 1, i%2 == 0} {
			side, err := load(i, with)
			if err != nil {
				return nil, err
			}
			if with {
				pairs[i].With = side
			} else {
				pairs[i].Without = side
			}
		}
	}
	return pairs, nil
}

// newPairs is a result that knows where it is from.
func newPairs(s *settings, command, beside string, seconds int) (*Pairs, error) {
	where, err := whereOf(s)
	if err != nil {
		return nil, err
	}
	return &Pairs{Scenario: s.scenario, Store: s.store, Date: time.Now().UTC().Format(time.RFC3339), Machine: where, Command: command, Seconds: seconds, Beside: beside}, nil
}

// whereOf describes the machine and the database.
func whereOf(s *settings) (string, error) {
	database, err := databaseText(s.store)
	if err != nil {
		return "", err
	}
	return machine(runtime.Version(), database)
}

// table writes what was compared.
func (p *Pairs) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %d s each; beside: %s\n", storeWord(p.Store), p.Seconds, p.Beside)
	fmt.Fprintln(w, "offered/s\tbeside\ttasks/s\tsubmit p99 ms\te2e p50 ms\te2e p99 ms\tCPU µs a task: engine\tdatabase\tagents\tgenerator\tcores")
	line := func(rate int, name string, s *Side) {
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\n", rate, name, s.TasksPerS, s.Submit.P99, s.EndToEnd.P50, s.EndToEnd.P99,
			s.CPU.Engine, s.CPU.Database, s.CPU.Agents, s.CPU.Generator, s.Cores)
	}
	for _, c := range p.Compared {
		for i := range c.Pairs {
			line(c.Rate, fmt.Sprintf("nothing, %d", i+1), &c.Pairs[i].Without)
			line(c.Rate, fmt.Sprintf("%s, %d", c.What, i+1), &c.Pairs[i].With)
		}
		line(c.Rate, "nothing, median", &c.Without)
		line(c.Rate, c.What+", median", &c.With)
		fmt.Fprintf(w, "%d\tchange in %%\t%+.2f\t\t%+.1f\t%+.1f\t%+.1f engine and database\n", c.Rate, c.Change.TasksPerS, c.Change.P50, c.Change.P99, c.Change.CPU)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range p.Compared {
		for _, o := range c.Operation {
			fmt.Fprintln(out, o)
		}
		if c.Repaired > 0 {
			fmt.Fprintf(out, "%s: engine and database take %.1f µs for each task, repaired ones too; without an operation %.1f µs\n", c.What, c.CPUOfEach, c.Without.CPU.Engine+c.Without.CPU.Database)
		}
	}
	return nil
}

func storeWord(store string) string {
	if store == "postgres" {
		return "PostgreSQL"
	}
	return "SQLite"
}

// publishTable writes a result to the file of -json, and to out as a table and as JSON in the last line.
func publishTable(s *settings, res interface{ table(io.Writer) error }, out io.Writer) error {
	line, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if s.json != "" {
		if err := os.WriteFile(s.json, append(line, '\n'), 0o644); err != nil {
			return fmt.Errorf("result: %w", err)
		}
	}
	if err := res.table(out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}

// tables are the scenarios that end in a table of their own.
var tables = map[string]func(ctx context.Context, s *settings, command string, out io.Writer) error{
	"operator": operator, "beside": beside, "idle-console": idleConsole, "repairs": repairs, "why": why, "full-agents": fullAgents, "overload": overload,
	"attacked": attacked, "waits": waits, "diamond": diamond, "each": fanOut,
}

// scenarioNames are all that there are, in words.
func scenarioNames() string {
	var names []string
	for name := range scenarios {
		names = append(names, name)
	}
	for name := range tables {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
