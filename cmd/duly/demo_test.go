package main

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// cockroachEnv names a CockroachDB server, as postgres://….
const cockroachEnv = "DULY_TEST_COCKROACH_URL"

// cockroachURL is a fresh database on the server, dropped when the test ends.
func cockroachURL(t *testing.T, server string) string {
	t.Helper()
	name := "duly_demo_" + strconv.FormatInt(time.Now().UnixMicro(), 10)
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), "DROP DATABASE "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/" + name
	return at.String()
}

// TestDemoOnBothStores is the README's command, smaller; on a CockroachDB as well
// where the environment names one.
//
// covers: S1, S42, I2
func TestDemoOnBothStores(t *testing.T) {
	t.Parallel()
	stores := []string{"sqlite", "postgres"}
	if os.Getenv(cockroachEnv) != "" {
		stores = append(stores, "cockroach")
	}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			if store == "cockroach" {
				store = cockroachURL(t, os.Getenv(cockroachEnv))
			}
			code, out, errs := command(t, "", "demo", "--tasks", "200", "--faults", "some", "--store", store, "--json")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			var r map[string]any
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
				t.Fatalf("last line: %v: %s%s", err, out, errs)
			}
			if code != 0 {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			for name, want := range map[string]float64{"accepted": 200, "lost": 0, "doubled": 0, "half_done": 0, "error": 0} {
				if r[name] != want {
					t.Errorf("%s is %v, want %v", name, r[name], want)
				}
			}
			if r["processed"].(float64)+r["undone"].(float64) != 200 || r["undone"] == 0.0 {
				t.Errorf("processed %v, undone %v", r["processed"], r["undone"])
			}
			for _, name := range []string{"submit_ms", "end_to_end_ms"} {
				q := r[name].(map[string]any)
				if p50, p99 := q["p50"].(float64), q["p99"].(float64); p50 <= 0 || p99 < p50 {
					t.Errorf("%s: p50 %v, p99 %v", name, p50, p99)
				}
			}
			if r["steps_per_s"].(float64) <= 0 {
				t.Error("no steps")
			}
		})
	}
}

// TestDemoOfAUsedDatabase: tasks of an earlier run are not taken for those of this one.
func TestDemoOfAUsedDatabase(t *testing.T) {
	t.Parallel()
	args := []string{"demo", "--tasks", "20", "--faults", "none", "--store", "sqlite:" + filepath.Join(t.TempDir(), "duly.db")}
	if code, out, errs := command(t, "", args...); code != exitDone {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if code, out, errs := command(t, "", args...); code != exitUse || !strings.Contains(errs, "has tasks already") {
		t.Errorf("again: exit %d: %s%s", code, out, errs)
	}
}

// TestReportIsCleanOnlyWhenAllIs: each counter alone makes the demo fail.
func TestReportIsCleanOnlyWhenAllIs(t *testing.T) {
	good := demoReport{Submitted: 10, Accepted: 10, Processed: 8, Undone: 1, Error: 1}
	if !good.clean() {
		t.Error("a good report is not clean")
	}
	for name, spoil := range map[string]func(*demoReport){
		"lost":       func(r *demoReport) { r.Lost = 1 },
		"doubled":    func(r *demoReport) { r.Doubled = 1 },
		"half done":  func(r *demoReport) { r.HalfDone = 1 },
		"not ended":  func(r *demoReport) { r.Processed-- },
		"ended more": func(r *demoReport) { r.Undone++ },
	} {
		bad := good
		if spoil(&bad); bad.clean() {
			t.Errorf("%s: the report is clean all the same", name)
		}
	}
}

// TestReportTable: the table has the same numbers.
func TestReportTable(t *testing.T) {
	r := demoReport{Store: "sqlite", Faults: "some", Seed: 1, Submitted: 12345, Accepted: 12345, Processed: 12000, Undone: 345, Unknown: 2, Restarts: 3}
	var b strings.Builder
	r.writeTable(&b)
	for _, want := range []string{"12,345", "12,000", "345", "half-done", "roles restarted", "unanswered", "store sqlite, faults some, seed 1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, b.String())
		}
	}
}
