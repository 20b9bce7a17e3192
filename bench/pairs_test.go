package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
)

// Each second pair begins with the side that the one before ended with.
func TestAlternate(t *testing.T) {
	var order []string
	pairs, err := alternate(3, func(pair int, with bool) (Side, error) {
		order = append(order, fmt.Sprintf("%d %v", pair, with))
		side := Side{TasksPerS: float64(pair)}
		if with {
			side.TasksPerS += 0.5
		}
		return side, nil
	})
	if got, want := strings.Join(order, ", "), "0 false, 0 true, 1 true, 1 false, 2 false, 2 true"; err != nil || got != want {
		t.Errorf("order %s, error %v, want %s", got, err, want)
	}
	for i, p := range pairs {
		if p.Without.TasksPerS != float64(i) || p.With.TasksPerS != float64(i)+0.5 {
			t.Errorf("pair %d: %+v", i, p)
		}
	}
}

// Medians are of each figure by itself, and changes are between medians.
func TestCompared(t *testing.T) {
	side := func(tasks, p99, engine, database float64) Side {
		return Side{TasksPerS: tasks, EndToEnd: Quantiles{P50: p99 / 2, P99: p99}, CPU: CPU{Engine: engine, Database: database}}
	}
	c := &Compared{Rate: 8000, What: "operator", Pairs: []Pair{
		{side(8000, 100, 50, 50), side(7900, 150, 60, 50)},
		{side(9000, 90, 55, 50), side(9000, 100, 51, 50)},
		{side(1000, 900, 45, 50), side(7800, 110, 52, 50)},
	}}
	c.settle()
	if c.Without.TasksPerS != 8000 || c.Without.EndToEnd.P99 != 100 || c.Without.CPU.Engine != 50 || c.With.TasksPerS != 7900 || c.With.EndToEnd.P99 != 110 || c.With.CPU.Engine != 52 {
		t.Errorf("medians %+v and %+v", c.Without, c.With)
	}
	for name, got := range map[string][2]float64{"throughput": {c.Change.TasksPerS, -1.25}, "p99": {c.Change.P99, 10}, "p50": {c.Change.P50, 10}, "CPU": {c.Change.CPU, 2}} {
		if math.Abs(got[0]-got[1]) > 1e-9 {
			t.Errorf("%s changes by %v %%, want %v", name, got[0], got[1])
		}
	}
	var out bytes.Buffer
	p := &Pairs{Store: "postgres", Seconds: 8, Beside: "words", Compared: []*Compared{c}}
	if err := p.table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PostgreSQL, 8 s each; beside: words", "nothing, 3", "operator, median", "-1.25", "+2.0 engine and database"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median %v, want 2.5", got)
	}
}

// A visitor that did less than it should makes no result.
func TestVisitedIsChecked(t *testing.T) {
	good := visited{Seconds: 10, Asked: []OperatorRead{{Question: "a", Rows: 150}, {Question: "b", Rows: 45}}}
	if err := good.check(20); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*visited){
		"failed, the first: gone": func(v *visited) { v.Failed, v.Failure = 1, "gone" },
		"asked 95 questions":      func(v *visited) { v.Asked = []OperatorRead{{Rows: 50}, {Rows: 45}} },
	} {
		v := good
		spoil(&v)
		if err := v.check(20); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}
