package main

import (
	"math"
	"slices"
)

// parkedFull is how many parked tasks the floors of growth are about.
const parkedFull = 1_000_000

// bound is the side of a limit on which a value must be.
type bound string

const (
	atLeast bound = "≥"
	atMost  bound = "≤"
	below   bound = "<"
)

// holds is false for what is not a number, whatever the bound.
func (b bound) holds(value, limit float64) bool {
	switch b {
	case atLeast:
		return value >= limit
	case below:
		return value < limit
	default:
		return value <= limit
	}
}

// floorKind is the sort of value that a floor has.
type floorKind int

const (
	measured floorKind = iota // 0 is no measurement but a missing one
	counted                   // 0 is a value too
	bookkept                  // counted, and judged in a short round too: no load is too small for closed books
)

// floor is what a run must reach.
type floor struct {
	name    string // of the figure, as in the JSON
	applies func(*Result) bool
	value   func(*Result) float64
	bound   bound
	limit   float64
	aim     float64 // the limit itself where there is nothing better to reach
	kind    floorKind
}

// floors are all there are, in the order of the report.
var floors = []floor{
	{"lost", busy, func(r *Result) float64 { return float64(r.Lost) }, atMost, 0, 0, bookkept},
	{"doubled", busy, func(r *Result) float64 { return float64(r.Doubled) }, atMost, 0, 0, bookkept},
	{"half_done", busy, func(r *Result) float64 { return float64(r.HalfDone) }, atMost, 0, 0, bookkept},
	{"error", busy, func(r *Result) float64 { return float64(r.Error) }, atMost, 0, 0, bookkept},
	{"accepted - ended", busy, func(r *Result) float64 { return math.Abs(float64(r.Accepted - ended(r))) }, atMost, 0, 0, bookkept},
	{"timed_out", loaded, func(r *Result) float64 { return float64(r.TimedOut) }, atMost, 0, 0, bookkept},

	{"tasks_per_s", runOf("peak", "postgres", "single"), func(r *Result) float64 { return r.TasksPerS }, atLeast, 12_000, 15_000, measured},
	{"tasks_per_s", runOf("peak", "postgres", "batched"), func(r *Result) float64 { return r.TasksPerS }, atLeast, 14_000, 20_000, measured},
	{"tasks_per_s", runOf("peak", "sqlite", ""), func(r *Result) float64 { return r.TasksPerS }, atLeast, 14_000, 20_000, measured},
	{"cpu_us_per_task.total", runOf("peak", "postgres", ""), func(r *Result) float64 { return r.CPUPerTask.Total }, atMost, 150, 100, measured},

	{"undone + expired + late", steady, func(r *Result) float64 { return float64(r.Undone + r.Expired + r.Late) }, atMost, 0, 0, counted},
	{"accepted / offered", runOf("sustained", "", ""), func(r *Result) float64 { return float64(r.Accepted) / r.Seconds / r.OfferedPerS }, atLeast, 0.999, 0.999, measured},
	{"overhead_ms.p99", runOf("sustained", "", ""), func(r *Result) float64 { return r.Overhead.P99 }, below, 150, 60, measured},
	{"end_to_end_ms.p99", runOf("sustained", "", ""), func(r *Result) float64 { return r.EndToEnd.P99 }, below, 500, 500, measured},
	{"cores", runOf("sustained", "postgres", ""), func(r *Result) float64 { return r.Cores }, atMost, 1.75, 1.4, measured},
	{"checkpoints", runOf("sustained", "postgres", ""), func(r *Result) float64 { return float64(r.Checkpoints) }, atLeast, 2, 2, counted},

	{"refused", runOf("spike", "", ""), func(r *Result) float64 { return float64(r.Refused) }, atMost, 0, 0, counted},
	{"submit_ms.p99", runOf("spike", "", ""), func(r *Result) float64 { return r.Submit.P99 }, below, 250, 80, measured},
	{"drain_tasks_per_s", runOf("spike", "", ""), func(r *Result) float64 { return r.DrainTasksPerS }, atLeast, 10_000, 14_000, measured},
	{"pss_mb_max.engine", runOf("spike", "", ""), func(r *Result) float64 { return r.PSSMax.Engine }, atMost, 1536, 700, measured},

	{"idle.engine_cpu_percent", func(r *Result) bool { return r.Idle != nil }, func(r *Result) float64 { return r.Idle.EngineCPUPercent }, atMost, 1, 0.3, counted},
	{"growth.takeover_ms", grown, worst(func(g Growth) float64 { return g.TakeoverMS }), atMost, 2000, 500, measured},
	{"growth.scan_ms", grown, worst(func(g Growth) float64 { return g.ScanMS }), atMost, 50, 10, measured},
}

// busy is every run that accepts tasks, so that it has books.
func busy(r *Result) bool { return r.Scenario != "idle" }

// loaded is a run under a schedule of arrivals.
func loaded(r *Result) bool {
	return r.Scenario == "peak" || r.Scenario == "sustained" || r.Scenario == "spike"
}

// steady is a run whose rate is to be kept.
func steady(r *Result) bool { return r.Scenario == "peak" || r.Scenario == "sustained" }

// runOf is a run of the scenario; an empty store or wire is any.
func runOf(scenario, store, wire string) func(*Result) bool {
	return func(r *Result) bool {
		return r.Scenario == scenario && (store == "" || r.Store == store) && (wire == "" || r.Wire == wire)
	}
}

func ended(r *Result) int { return r.Processed + r.Undone + r.Expired + r.Error }

// grown is a run that came to as many parked tasks as the floors are about.
func grown(r *Result) bool {
	return slices.ContainsFunc(r.Growth, func(g Growth) bool { return g.Parked >= parkedFull })
}

// worst is the highest value beside so many parked tasks, 0 if one is missing.
func worst(value func(Growth) float64) func(*Result) float64 {
	return func(r *Result) float64 {
		highest := 0.0
		for _, g := range r.Growth {
			if v := value(g); g.Parked >= parkedFull && v == 0 {
				return 0
			} else if g.Parked >= parkedFull {
				highest = max(highest, v)
			}
		}
		return highest
	}
}
