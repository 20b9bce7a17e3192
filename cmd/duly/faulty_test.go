package main

import (
	"encoding/json"
	"strings"
	"testing"

	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
)

// TestDemoThroughFaults: the demo's books close where the database fails as
// CockroachDB may, from the first takeover until the books are read, as PostgreSQL
// and as what looks like a CockroachDB.
//
// covers: E18
func TestDemoThroughFaults(t *testing.T) {
	for name, cockroach := range map[string]bool{"postgres": false, "cockroach": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			p, err := pgfault.Start(pgtestdb.Installation(t), pgfault.Faults{
				Seed: 1, Rate: 0.1, Cockroach: cockroach, From: "UPDATE partitions SET epoch", Until: "SELECT id, state FROM tasks",
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}()
			code, out, errs := command(t, "", "demo", "--tasks", "400", "--rate", "200", "--faults", "some", "--store", p.URL(), "--json")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			var r map[string]any
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
				t.Fatalf("last line: %v: %s%s", err, out, errs)
			}
			if code != 0 {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			for name, want := range map[string]float64{"accepted": 400, "lost": 0, "doubled": 0, "half_done": 0, "error": 0} {
				if r[name] != want {
					t.Errorf("%s is %v, want %v", name, r[name], want)
				}
			}
			counts := p.Counts()
			t.Logf("%d requests: %v\n%s", p.Requests(), counts, lines[len(lines)-1])
			for _, k := range pgfault.Kinds {
				if counts[k] == 0 {
					t.Errorf("no %s happened", k)
				}
			}
		})
	}
}
