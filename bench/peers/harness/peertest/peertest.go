// Package peertest holds every peer to the same: the books of its own tables see
// each step of each task, and see what is missing or too much.
package peertest

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"duly.dev/duly/bench/peers/harness"
	"duly.dev/duly/internal/localpg"
)

// databases starts a throwaway cluster and returns what makes databases in it.
func databases(t *testing.T) func() string {
	t.Helper()
	c, err := localpg.Start(localpg.Options{Settings: harness.ServerSettings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return func() string {
		dsn, err := c.NewDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return dsn
	}
}

// EveryStepIsInTheBooks does a little of the work, once with each of these flags.
func EveryStepIsInTheBooks(t *testing.T, spec harness.Spec, with ...[]string) {
	t.Helper()
	database := databases(t)
	for _, of := range with {
		var out bytes.Buffer
		args := slices.Concat(of, []string{"-warmup", "0", "-seconds", "20", "-tasks", "30", "-workers", "10", "-dsn", database()})
		if err := harness.Main(t.Context(), spec, args, &out); err != nil {
			t.Fatalf("%v: %v: %s", of, err, &out)
		}
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		var r harness.Result
		if err := json.Unmarshal(lines[len(lines)-1], &r); err != nil {
			t.Fatalf("%v: the last line is no result: %v", of, err)
		}
		if r.Measured != 30 || r.Processed < 30 || r.Processed != r.Accepted || r.HandlerRuns != int64(r.Steps*r.Processed) {
			t.Errorf("%v: %+v", of, r)
		}
		if r.Version == "unknown" || r.CPUPerTask.Database == nil || r.WALPerTask == 0 {
			t.Errorf("%v: what it cost is not known: %+v", of, r)
		}
	}
}

// TheBooksFindWhatIsMissingOrTooMuch asks the books for one step more than was
// done, and for one less.
func TheBooksFindWhatIsMissingOrTooMuch(t *testing.T, spec harness.Spec) {
	t.Helper()
	database := databases(t)
	spec.Flags(flag.NewFlagSet("", flag.ContinueOnError)) // the defaults
	for _, steps := range []string{"($1 + 1)", "($1 - 1)"} {
		s := spec
		s.Books = func() string { return strings.ReplaceAll(spec.Books(), "$1", steps) }
		set := harness.Settings{Steps: 2, Workers: 5, Tasks: 10, Seconds: 20, DSN: database()}
		r, err := harness.Run(t.Context(), s, set, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if more := steps == "($1 + 1)"; more && r.Lost != r.Accepted || !more && r.Doubled != r.Accepted {
			t.Errorf("with %s steps: %d lost and %d doubled of %d", steps, r.Lost, r.Doubled, r.Accepted)
		}
	}
}
