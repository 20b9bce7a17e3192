package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// verdict is one floor beside what a run measured.
type verdict struct {
	floor
	Value      float64
	Holds      bool
	AimReached bool
	Judged     bool // false: shown only, because the round was short
}

// Missed reports whether the run fails because of this floor.
func (v verdict) Missed() bool { return v.Judged && !v.Holds }

// Measured is the value for a reader: rounded, unless that would hide on which
// side of the floor it is.
func (v verdict) Measured() string {
	if readable(v.Value) == readable(v.limit) {
		return strconv.FormatFloat(v.Value, 'f', -1, 64)
	}
	return readable(v.Value)
}

// FloorText is the floor with its bound.
func (v verdict) FloorText() string {
	if v.limit == 0 { // what is counted is not below
		return "= 0"
	}
	return string(v.bound) + " " + readable(v.limit)
}

// AimText is the aim with its bound, empty where the floor is all there is.
func (v verdict) AimText() string {
	if v.aim == v.limit {
		return ""
	}
	return string(v.bound) + " " + readable(v.aim)
}

// Outcome is the verdict in words.
func (v verdict) Outcome() string {
	switch {
	case !v.Judged:
		return "not judged"
	case !v.Holds:
		return "MISSED"
	case v.AimText() == "":
		return "holds"
	case v.AimReached:
		return "holds, aim reached"
	default:
		return "holds, aim missed"
	}
}

// verify measures a run by each floor that applies to it.
func verify(r *Result) []verdict {
	short := shortRound(r) != ""
	var out []verdict
	for _, f := range floors {
		if !f.applies(r) {
			continue
		}
		value := f.value(r)
		known := f.kind != measured || value != 0
		out = append(out, verdict{
			floor: f, Value: value, Judged: f.kind == bookkept || !short,
			Holds: known && f.bound.holds(value, f.limit), AimReached: known && f.bound.holds(value, f.aim),
		})
	}
	return out
}

// shortRound is why a run is too small for the floors; empty: it is not.
func shortRound(r *Result) string {
	switch {
	case r.Running:
		return "a system that ran already, whose processes were not measured"
	case r.Scenario == "peak" && r.Seconds < 60:
		return "less than 60 s"
	case r.Scenario == "sustained" && r.Seconds < 120:
		return "less than 120 s"
	case r.Scenario == "sustained" && r.OfferedPerS < 10_000:
		return "less than 10,000/s"
	case r.Scenario == "spike" && r.OfferedPerS < 50_000:
		return "less than 50,000/s"
	case r.Scenario == "growth" && !grown(r):
		return "less than 1,000,000 parked"
	}
	return ""
}

// verifyFiles prints how the runs in the files stand to the floors. Its error
// names every floor that is missed and every file that cannot be judged.
func verifyFiles(w io.Writer, paths []string) error {
	if len(paths) == 0 {
		return errors.New("verify: no files")
	}
	var failed []error
	for _, path := range paths {
		if err := verifyFile(w, path); err != nil {
			failed = append(failed, fmt.Errorf("verify %s: %w", path, err))
		}
	}
	return errors.Join(failed...)
}

func verifyFile(w io.Writer, path string) error {
	r, err := readResult(path)
	if err != nil {
		return err
	}
	verdicts := verify(r)
	if err := printVerdicts(w, filepath.Base(path), r, verdicts); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	var missed []string
	for _, v := range verdicts {
		if v.Missed() {
			missed = append(missed, fmt.Sprintf("%s %s, not %s", v.name, v.Measured(), v.FloorText()))
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

func printVerdicts(w io.Writer, name string, r *Result, verdicts []verdict) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s: %s\n", name, strings.TrimSpace(strings.Join([]string{r.Scenario, r.Store, r.Wire}, " ")))
	if why := shortRound(r); why != "" {
		fmt.Fprintf(table, "short round: not judged (%s)\n", why)
	}
	fmt.Fprintln(table, "  figure\tmeasured\tfloor\taim\toutcome")
	for _, v := range verdicts {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", v.name, v.Measured(), v.FloorText(), v.AimText(), v.Outcome())
	}
	fmt.Fprintln(table)
	return table.Flush()
}

// readResult reads a run that can be judged: parsed, of a known kind, complete.
func readResult(path string) (*Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	r, fields := new(Result), map[string]json.RawMessage{}
	for _, into := range []any{r, &fields} {
		if err := json.Unmarshal(data, into); err != nil {
			return nil, fmt.Errorf("parse: %w", err)
		}
	}
	for _, kind := range []struct {
		field, value string
		known        []string
	}{
		{"scenario", r.Scenario, []string{"peak", "sustained", "spike", "idle", "growth"}},
		{"store", r.Store, []string{"sqlite", "postgres"}},
		{"wire", r.Wire, []string{"single", "batched"}},
	} {
		// No load, no wire.
		if free := kind.field == "wire" && !loaded(r); !free && !slices.Contains(kind.known, kind.value) {
			return nil, fmt.Errorf("unknown %s %q", kind.field, kind.value)
		}
	}
	if missing := missingFields(r, fields); len(missing) > 0 {
		return nil, fmt.Errorf("missing fields: %s", strings.Join(missing, ", "))
	}
	return r, nil
}

// missingFields names what a run must have and has not: a counter that is left
// out must not pass as 0 lost, nor a latency never measured as a short one.
func missingFields(r *Result, fields map[string]json.RawMessage) []string {
	var missing []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Result]()) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, ok := fields[name]; !ok && options != "omitempty" {
			missing = append(missing, name)
		}
	}
	need := func(name string, ok bool) {
		if !ok && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	need("accepted", r.Accepted > 0 || r.Scenario == "idle")
	need("idle", r.Idle != nil && r.Idle.Seconds > 0 || r.Scenario != "idle")
	need("growth", len(r.Growth) > 0 || r.Scenario != "growth")
	if loaded(r) {
		need("seconds", r.Seconds > 0)
		need("offered_per_s", r.OfferedPerS > 0)
		need("tasks_per_s", r.TasksPerS > 0)
	}
	for _, v := range verify(r) {
		need(v.name, v.Value != 0 || v.kind != measured)
	}
	return missing
}
