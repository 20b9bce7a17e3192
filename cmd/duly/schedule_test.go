package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/operate"
)

// scheduleFile writes a file of schedules.
func scheduleFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestScheduleCommands makes schedules of a file, looks at them, holds them, runs one and deletes it.
func TestScheduleCommands(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("DULY_TOKEN", "")
	w := apitest.New()
	handler, err := w.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(apitest.As(operate.RoleOperator, handler))
	defer server.Close()
	file := scheduleFile(t, `# two schedules
name: weekdays
type: order
input:
  cents: 1
  items: [lamp, "ü"]
cron: "0 9 * * mon-fri"
zone: Europe/Berlin
labels: {tenant: x}
---
name: often
type: order
input: 7
every: 15m
from: 2026-02-01T00:00:00Z
`)
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"schedule apply " + file, 0, []string{"weekdays is stored; next run 2026-02-02T08:00:00Z", "often is stored; next run 2026-02-01T00:00:00Z"}},
		{"schedule list", 0, []string{"nightly", "weekdays", "often", "0 9 * * mon-fri", "15m"}},
		{"schedule list --limit 1 -o csv", 0, []string{"name,type", "nightly,order"}},
		{"schedule show nightly", 0, []string{"30 2 * * *, Europe/Berlin", "next       2026-02-01T01:30:00Z", "2026-02-05T01:30:00Z", "nightly-20260131T013000Z at 2026-01-31T02:00:00Z: processed", "3 submitted, 1 skipped, 0 missed, 0 waiting"}},
		{"schedule show nightly -o json", 0, []string{`"next":`}},
		{"schedule show none", 4, []string{"none"}},
		{"schedule pause often --reason month's-end", 0, []string{"often: paused"}},
		{"schedule show often", 0, []string{"paused     by the-operator"}},
		{"schedule resume often --reason over", 0, []string{"often: resumed"}},
		{"schedule run-now often", 0, []string{"often-20260131T120000Z-now was submitted"}},
		{"schedule delete often --reason unused", 0, []string{"deleted often"}},
		{"schedule delete often --reason unused", 4, []string{"there is no schedule"}},
	} {
		code, out, errs := command(t, "", append(strings.Fields(c.args), "-s", server.URL)...)
		for _, want := range c.says {
			if !strings.Contains(out+errs, want) {
				t.Errorf("duly %s: no %q in\n%s%s", c.args, want, out, errs)
			}
		}
		if (code == 0) != (c.code == 0) {
			t.Errorf("duly %s: exit status %d, want %d\n%s", c.args, code, c.code, errs)
		}
	}
	if got := string(w.Timed[len(w.Timed)-1].Input); got != `{"cents":1,"items":["lamp","ü"]}` {
		t.Errorf("input %s", got)
	}
}

// TestScheduleFiles refuses what is wrong in a file by line and column, before anything is sent.
func TestScheduleFiles(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "has no schedule"},
		{"[1, 2]", ":1:1: want the fields of a schedule"},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\nburn: 1\n", ":5:1: field burn is not known"},
		{"name: a\ntype: t\ninput: 1\ncron: 0 0 30 2 *\n", ":4:7: cron names no day"},
		{"name: a\ntype: t\ninput: 1\ncron: 0 0 * * *\nzone: Europe/Belrin\n", `:5:7: zone "Europe/Belrin" is no time zone: is Europe/Berlin meant?`},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\nqueue: many\n", ":5:8: queue is a string, want a whole number"},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\nuntil: soon\n", `:5:8: until is "soon"`},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\nuntil: 2001-01-01T00:00:00Z\n", ":5:8: until 2001-01-01T00:00:00Z has passed"},
		{"name: a\ntype: t\nevery: 1h\n", ":1:1: input has 0 bytes"},
		{"name: a b\ntype: t\ninput: 1\nevery: 1h\n", `:1:7: `},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\n---\nname: a\ntype: t\ninput: 1\nevery: 1h\n", ":6:7: schedule a is in the file twice"},
		{"name: a\n  type: t\n", "[1:7]"},
		{`{"name":"a","type":"t","input":1,"every":"x"}`, `:1:42: every "x" is no duration`},
	} {
		code, out, errs := command(t, "", "schedule", "apply", scheduleFile(t, c.text), "-s", "http://127.0.0.1:1")
		if code == 0 || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%q: exit status %d, want %q in\n%s%s", c.text, code, c.says, out, errs)
		}
	}
}
