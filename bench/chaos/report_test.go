package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/examples/drone"
)

func TestReport(t *testing.T) {
	r := &report{Store: "sqlite", Seed: 5, ByFault: map[string]*faultReport{}}
	for i := range 4 {
		r.add("a", 10*time.Millisecond, time.Duration(i+1)*time.Millisecond, true)
	}
	r.add("b", 30*time.Millisecond, 9*time.Millisecond, true)
	r.close(&drone.Report{Accepted: 5, Processed: 3, Undone: 1, Error: 1}, 0)
	r.Over = []*overReport{{Stage: "dev", C: 1000, After: 1100, Offered: 1500, InTime: 0.85, Quiet: 30, TurnedAway: 0.4, NoTime: 0.001}}
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-3]; last != "stage dev: C 1000 a second (1100 afterwards), offered 1500 a second, in time 85.0 % of C over 30 s without a fault, turned away 40.0 % of the offered, undone for want of time 0.1 % of the accepted" {
		t.Errorf("the table ends with %q", last)
	}
	var got struct {
		Faults, Tasks, Lost int
		Recovery            struct{ P50, Max int64 } `json:"recovery_ms"`
		ByFault             map[string]struct {
			Times    int
			HeldMS   int64                    `json:"held_ms"`
			Recovery struct{ P50, Max int64 } `json:"recovery_ms"`
		} `json:"by_fault"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatal(err)
	}
	if got.Faults != 5 || got.Tasks != 5 || got.Recovery.P50 != 3 || got.Recovery.Max != 9 {
		t.Errorf("%+v", got)
	}
	if a := got.ByFault["a"]; a.Times != 4 || a.HeldMS != 10 || a.Recovery.P50 != 2 || a.Recovery.Max != 4 {
		t.Errorf("%+v", a)
	}
	if !r.clean() {
		t.Error("not clean")
	}
	r.hear("a", &tellings{due: true, wasUnready: true, unready: 3 * time.Second, again: 7 * time.Second, alerts: []string{"streams", "nats"}})
	r.hear("a", &tellings{due: true, alerts: []string{"nats"}})
	r.hear("b", &tellings{})
	if a := r.ByFault["a"]; a.told() != "2 of 2" || a.Unready.span() != "3000, 3000" || a.Again.span() != "7000, 7000" || strings.Join(a.Alerts, " ") != "nats streams" {
		t.Errorf("%+v", a)
	}
	if b := r.ByFault["b"]; b.told() != "–" || b.Unready.span() != "–" || !r.clean() {
		t.Errorf("%+v", b)
	}
	r.hear("a", &tellings{due: true, missed: []string{"no alert"}})
	if r.ByFault["a"].told() != "2 of 3" || r.NotTold != 1 {
		t.Errorf("%+v", r.ByFault["a"])
	}
}

// TestReportUnclean: each broken promise shows.
//
// covers: T10
func TestReportUnclean(t *testing.T) {
	for name, spoil := range map[string]func(*report){
		"lost":      func(r *report) { r.close(&drone.Report{Lost: 1}, 0) },
		"doubled":   func(r *report) { r.close(&drone.Report{Doubled: 1}, 0) },
		"half done": func(r *report) { r.close(&drone.Report{HalfDone: 1}, 0) },
		"untold":    func(r *report) { r.close(&drone.Report{}, 1) },
		"not ended": func(r *report) { r.close(&drone.Report{Accepted: 1}, 0) },
		"stuck":     func(r *report) { r.add("a", 0, 0, false) },
		"refused":   func(r *report) { r.Refused = 1 },
		"alarm":     func(r *report) { r.Alarms = 1 },
		"not told":  func(r *report) { r.add("a", 0, 0, true); r.hear("a", &tellings{missed: []string{"no end"}}) },
		"noise":     func(r *report) { r.Noisy = 1 },
		"in time":   func(r *report) { r.Over = []*overReport{{InTime: 0.9}, {InTime: 0.84}} },
	} {
		r := &report{ByFault: map[string]*faultReport{}}
		spoil(r)
		if r.clean() {
			t.Errorf("%s: clean", name)
		}
	}
}
