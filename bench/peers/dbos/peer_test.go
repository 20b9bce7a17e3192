package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"strings"
	"testing"

	"duly.dev/duly/bench/peers/harness"
	"duly.dev/duly/internal/pgtest"
)

// databases starts a throwaway cluster and returns what makes databases in it.
func databases(t *testing.T) func() string {
	t.Helper()
	c, err := pgtest.Start(pgtest.Options{Settings: harness.ServerSettings})
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

// TestEveryStepIsInTheBooks does a little of the work on a throwaway cluster.
func TestEveryStepIsInTheBooks(t *testing.T) {
	database := databases(t)
	for _, steps := range []string{"1", "5"} {
		var out bytes.Buffer
		args := []string{"-steps", steps, "-warmup", "0", "-seconds", "20", "-tasks", "30", "-workers", "10", "-dsn", database()}
		if err := harness.Main(t.Context(), spec(), args, &out); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		var r harness.Result
		if err := json.Unmarshal(lines[len(lines)-1], &r); err != nil {
			t.Fatalf("the last line is no result: %v", err)
		}
		if r.Measured != 30 || r.Processed < 30 || r.Processed != r.Accepted || r.HandlerRuns != int64(r.Steps*r.Processed) {
			t.Errorf("%+v", r)
		}
		if r.Version == "unknown" || r.CPUPerTask.Database == nil || r.WALPerTask == 0 {
			t.Errorf("what it cost is not known: %+v", r)
		}
	}
}

// TestTheBooksFindWhatIsMissingOrTooMuch asks the books for one step more than
// was done, and for one less.
func TestTheBooksFindWhatIsMissingOrTooMuch(t *testing.T) {
	database := databases(t)
	for _, steps := range []string{"($1 + 1)", "($1 - 1)"} {
		s := spec()
		asked := s.Books
		s.Books = func() string { return strings.ReplaceAll(asked(), "$1", steps) }
		set := harness.Settings{Steps: 2, Workers: 5, Tasks: 10, Seconds: 20, DSN: database()}
		s.Flags(flag.NewFlagSet("", flag.ContinueOnError)) // the defaults
		r, err := harness.Run(t.Context(), s, set, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if more := steps == "($1 + 1)"; more && r.Lost != r.Accepted || !more && r.Doubled != r.Accepted {
			t.Errorf("with %s steps: %d lost and %d doubled of %d", steps, r.Lost, r.Doubled, r.Accepted)
		}
	}
}
