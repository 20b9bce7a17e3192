package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// atFloors is a run that is exactly what its floors ask for.
func atFloors(scenario, store, wire string) *Result {
	r := &Result{
		Scenario: scenario, Store: store, Wire: wire, Seconds: 120, OfferedPerS: 10_000,
		Offered: 1_200_000, Accepted: 1_198_800, Processed: 1_198_800,
		Overhead: Quantiles{P99: 149.9}, EndToEnd: Quantiles{P99: 499.9}, Submit: Quantiles{P99: 249.9},
		TasksPerS: 12_000, DrainTasksPerS: 10_000, Cores: 1.75, Checkpoints: 2,
		CPUPerTask: CPU{Total: 150}, PSSMax: Memory{Engine: 1536},
	}
	switch scenario {
	case "peak":
		r.Seconds = 60
		if store == "sqlite" || wire == "batched" {
			r.TasksPerS = 14_000
		}
	case "spike": // what it leaves in the queue may run out of time
		r.OfferedPerS, r.Processed, r.Undone = 50_000, 1_198_700, 100
	case "idle":
		*r = Result{Scenario: scenario, Store: store, Wire: wire, Idle: &Idle{Seconds: 60, EngineCPUPercent: 1}}
	case "growth":
		r.Growth = []Growth{{Parked: 1_000, TakeoverMS: 9_000, ScanMS: 900}, {Parked: parkedFull, TakeoverMS: 2000, ScanMS: 50}}
	}
	return r
}

// each calls visit for every kind of run.
func each(visit func(r *Result)) {
	for _, scenario := range []string{"peak", "sustained", "spike", "idle", "growth"} {
		for _, store := range []string{"sqlite", "postgres"} {
			for _, wire := range []string{"single", "batched"} {
				visit(atFloors(scenario, store, wire))
			}
		}
	}
}

// covers: I3
func TestFloorsHoldAtTheLimit(t *testing.T) {
	seen := map[string]bool{}
	each(func(r *Result) {
		for _, v := range verify(r) {
			seen[v.name] = true
			if !v.Holds || !v.Judged || v.Missed() {
				t.Errorf("%s %s %s: %s %v does not hold: %s", r.Scenario, r.Store, r.Wire, v.name, v.Value, v.Outcome())
			}
		}
	})
	for _, f := range floors {
		if !seen[f.name] {
			t.Errorf("no run is measured by %s", f.name)
		}
	}
}

// Each row goes just beyond one floor; that floor and no other is missed.
//
// covers: I3
func TestFloorsMissedBeyondTheLimit(t *testing.T) {
	for _, tt := range []struct {
		scenario, store, wire string
		missed                string
		beyond                func(*Result)
	}{
		{"peak", "postgres", "single", "lost", func(r *Result) { r.Lost = 1 }},
		{"sustained", "sqlite", "single", "doubled", func(r *Result) { r.Doubled = 1 }},
		{"growth", "postgres", "single", "half_done", func(r *Result) { r.HalfDone = 1 }},
		{"spike", "sqlite", "batched", "error", func(r *Result) { r.Error, r.Processed = 1, r.Processed-1 }},
		{"peak", "sqlite", "single", "accepted - ended", func(r *Result) { r.Processed-- }},
		{"growth", "sqlite", "single", "accepted - ended", func(r *Result) { r.Undone++ }},
		{"peak", "sqlite", "single", "timed_out", func(r *Result) { r.TimedOut = 1 }},
		{"sustained", "sqlite", "single", "timed_out", func(r *Result) { r.TimedOut = 1 }},
		{"spike", "sqlite", "single", "timed_out", func(r *Result) { r.TimedOut = 1 }},
		{"peak", "postgres", "single", "tasks_per_s", func(r *Result) { r.TasksPerS = 11_999.9 }},
		{"peak", "postgres", "batched", "tasks_per_s", func(r *Result) { r.TasksPerS = 13_999.9 }},
		{"peak", "sqlite", "single", "tasks_per_s", func(r *Result) { r.TasksPerS = 13_999.9 }},
		{"peak", "sqlite", "batched", "tasks_per_s", func(r *Result) { r.TasksPerS = 13_999.9 }},
		{"peak", "postgres", "single", "cpu_us_per_task.total", func(r *Result) { r.CPUPerTask.Total = 150.1 }},
		{"peak", "postgres", "batched", "cpu_us_per_task.total", func(r *Result) { r.CPUPerTask.Total = 150.1 }},
		{"sustained", "sqlite", "single", "overhead_ms.p99", func(r *Result) { r.Overhead.P99 = 150 }},
		{"sustained", "postgres", "single", "end_to_end_ms.p99", func(r *Result) { r.EndToEnd.P99 = 500 }},
		{"sustained", "postgres", "batched", "cores", func(r *Result) { r.Cores = 1.751 }},
		{"sustained", "postgres", "single", "checkpoints", func(r *Result) { r.Checkpoints = 1 }},
		{"peak", "sqlite", "single", "undone + expired + late", func(r *Result) { r.Processed, r.Undone = r.Processed-1, 1 }},
		{"sustained", "postgres", "single", "undone + expired + late", func(r *Result) { r.Late = 1 }},
		{"sustained", "sqlite", "single", "accepted / offered", func(r *Result) { r.Accepted--; r.Processed-- }},
		{"spike", "postgres", "single", "refused", func(r *Result) { r.Refused = 1 }},
		{"spike", "postgres", "single", "submit_ms.p99", func(r *Result) { r.Submit.P99 = 250 }},
		{"spike", "postgres", "single", "drain_tasks_per_s", func(r *Result) { r.DrainTasksPerS = 9_999.9 }},
		{"spike", "postgres", "single", "pss_mb_max.engine", func(r *Result) { r.PSSMax.Engine = 1536.1 }},
		{"idle", "postgres", "single", "idle.engine_cpu_percent", func(r *Result) { r.Idle.EngineCPUPercent = 1.01 }},
		{"growth", "sqlite", "single", "growth.takeover_ms", func(r *Result) { r.Growth[1].TakeoverMS = 2000.1 }},
		{"growth", "postgres", "single", "growth.scan_ms", func(r *Result) { r.Growth[1].ScanMS = 50.1 }},
	} {
		t.Run(strings.Join([]string{tt.scenario, tt.store, tt.wire, tt.missed}, " "), func(t *testing.T) {
			r := atFloors(tt.scenario, tt.store, tt.wire)
			tt.beyond(r)
			var missed []string
			for _, v := range verify(r) {
				if v.Missed() {
					missed = append(missed, v.name)
				}
			}
			if len(missed) != 1 || missed[0] != tt.missed {
				t.Errorf("missed %q, want %q", missed, tt.missed)
			}
			out, err := verifyOne(t, encode(t, r))
			if err == nil || !strings.Contains(err.Error(), tt.missed+" ") || !strings.Contains(out, "MISSED") {
				t.Errorf("verifyFiles: %v\n%s", err, out)
			}
		})
	}
}

func TestAims(t *testing.T) {
	r := atFloors("peak", "postgres", "single")
	for _, tt := range []struct {
		tasks float64
		want  string
	}{{11_999, "MISSED"}, {14_999, "holds, aim missed"}, {15_000, "holds, aim reached"}} {
		r.TasksPerS = tt.tasks
		for _, v := range verify(r) {
			if v.name == "tasks_per_s" && v.Outcome() != tt.want {
				t.Errorf("%v tasks/s: %q, want %q", tt.tasks, v.Outcome(), tt.want)
			}
		}
	}
}

func TestVerifyFilesHolding(t *testing.T) {
	each(func(r *Result) {
		out, err := verifyOne(t, encode(t, r))
		if err != nil || strings.Contains(out, "short round") || !strings.Contains(out, "holds") {
			t.Errorf("%s %s %s: %v\n%s", r.Scenario, r.Store, r.Wire, err, out)
		}
	})
}

func TestShortRoundsAreNotJudged(t *testing.T) {
	for scenario, shorten := range map[string]func(*Result){
		"peak":      func(r *Result) { r.Seconds, r.TasksPerS = 59, 1 },
		"sustained": func(r *Result) { r.Seconds, r.Cores = 119, 2 },
		"spike":     func(r *Result) { r.OfferedPerS, r.Refused = 49_999, 1 },
		"growth":    func(r *Result) { r.Growth = r.Growth[:1] },
	} {
		r := atFloors(scenario, "postgres", "single")
		shorten(r)
		out, err := verifyOne(t, encode(t, r))
		if err != nil || !strings.Contains(out, "short round: not judged") {
			t.Errorf("%s: %v\n%s", scenario, err, out)
		}
		r.Lost = 1
		if _, err := verifyOne(t, encode(t, r)); err == nil {
			t.Errorf("%s: a short round lost a task and passed", scenario)
		}
	}
	r := atFloors("sustained", "postgres", "single")
	r.OfferedPerS, r.Cores = 9_999, 2
	if out, err := verifyOne(t, encode(t, r)); err != nil || !strings.Contains(out, "less than 10,000/s") {
		t.Errorf("sustained below its rate: %v\n%s", err, out)
	}
}

func TestUnusableFiles(t *testing.T) {
	with := func(scenario string, change func(*Result)) string {
		r := atFloors(scenario, "postgres", "single")
		change(r)
		return encode(t, r)
	}
	for name, tt := range map[string]struct{ data, want string }{
		"empty":            {"", "parse"},
		"not JSON":         {"tasks: 1", "parse"},
		"two objects":      {encode(t, atFloors("peak", "sqlite", "single")) + "{}", "parse"},
		"no object":        {"null", "unknown scenario"},
		"unknown scenario": {with("peak", func(r *Result) { r.Scenario = "speak" }), `unknown scenario "speak"`},
		"unknown store":    {with("idle", func(r *Result) { r.Store = "mysql" }), `unknown store "mysql"`},
		"unknown wire":     {with("peak", func(r *Result) { r.Wire = "" }), `unknown wire ""`},
		"field left out":   {strings.Replace(with("peak", func(*Result) {}), `"lost":0,`, "", 1), "missing fields: lost"},
		"nothing accepted": {with("growth", func(r *Result) { r.Accepted, r.Processed, r.Undone = 0, 0, 0 }), "missing fields: accepted"},
		"no rate":          {with("sustained", func(r *Result) { r.TasksPerS = 0 }), "missing fields: tasks_per_s"},
		"no latency":       {with("sustained", func(r *Result) { r.Overhead.P99 = 0 }), "missing fields: overhead_ms.p99"},
		"no memory":        {with("spike", func(r *Result) { r.PSSMax.Engine = 0 }), "missing fields: pss_mb_max.engine"},
		"no idle":          {with("idle", func(r *Result) { r.Idle = nil }), "missing fields: idle"},
		"no growth":        {with("growth", func(r *Result) { r.Growth = nil }), "missing fields: growth"},
		"no scan":          {with("growth", func(r *Result) { r.Growth[1].ScanMS = 0 }), "missing fields: growth.scan_ms"},
	} {
		if out, err := verifyOne(t, tt.data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q\n%s", name, err, tt.want, out)
		}
	}
	if err := verifyFiles(new(bytes.Buffer), nil); err == nil {
		t.Error("no files: no error")
	}
}

// One bad file hides nothing of the others.
func TestVerifyFilesGoesOn(t *testing.T) {
	folder := t.TempDir()
	good, missing := filepath.Join(folder, "good.json"), filepath.Join(folder, "missing.json")
	if err := os.WriteFile(good, []byte(encode(t, atFloors("idle", "sqlite", "single"))), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := verifyFiles(&out, []string{missing, good})
	if err == nil || !strings.Contains(err.Error(), "missing.json: read") || !strings.Contains(out.String(), "good.json: idle sqlite") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func encode(t *testing.T, r *Result) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func verifyOne(t *testing.T, data string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := verifyFiles(&out, []string{path})
	return out.String(), err
}
