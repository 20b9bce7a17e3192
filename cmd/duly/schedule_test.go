package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
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
//
// covers: U9
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
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "schedules.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, snippet, _ := strings.Cut(string(guide), "```yaml\n")
	snippet, _, _ = strings.Cut(snippet, "```")
	guided := scheduleFile(t, snippet)
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
plan_version: 1
from: 2026-02-01T00:00:00Z
`)
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"schedule apply " + file, 0, []string{"weekdays is stored; next run 2026-02-02T08:00:00Z (Mon 2026-02-02 09:00:00 Europe/Berlin)", "often is stored; next run 2026-02-01T00:00:00Z\n"}},
		{"schedule apply " + guided, 0, []string{"nightly-payout is stored; next run 2026-02-02T01:"}},
		{"schedule delete nightly-payout --reason shown", 0, []string{"deleted nightly-payout"}},
		{"schedule list", 0, []string{"nightly", "weekdays", "often", "0 9 * * mon-fri", "15m"}},
		{"schedule list --limit 1 -o csv", 0, []string{"name,type", "nightly,order"}},
		{"schedule show nightly", 0, []string{"30 2 * * *, Europe/Berlin", "next       2026-02-01T01:30:00Z (Sun 2026-02-01 02:30:00 Europe/Berlin)", "2026-02-05T01:30:00Z (Thu 2026-02-05 02:30:00 Europe/Berlin)", "nightly-20260131T013000Z at 2026-01-31T02:00:00Z (Sat 2026-01-31 03:00:00 Europe/Berlin): processed", "3 submitted, 1 skipped, 0 missed, 0 waiting"}},
		{"schedule show nightly -o json", 0, []string{`"next":`}},
		{"schedule show none", 4, []string{"none"}},
		{"schedule pause often --reason month's-end", 0, []string{"often: paused"}},
		{"schedule show often", 0, []string{"paused     by the-operator"}},
		{"schedule resume often --reason over", 0, []string{"often: resumed"}},
		{"schedule run-now often", 0, []string{"often-20260131T120000Z-now was submitted"}},
		{"plan deprecate order 1 --reason old", 0, []string{"plan order version 1 is deprecated", "warning: schedule often names this version: its runs are refused from now on"}},
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
		{"name: a\ntype: t\ninput: 1\ncron: 0 0 30 2 *\n", `:4:7: cron "0 0 30 2 *" would never run: it names no day of the next 40 years, as 30 February is none`},
		{"name: a\ntype: t\ninput: 1\ncron: 0 0 * * *\nzone: Europe/Belrin\n", `:5:7: zone "Europe/Belrin" is no time zone: is Europe/Berlin meant?`},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\nqueue: many\n", ":5:8: queue is a string, want a whole number"},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\nuntil: soon\n", `:5:8: until is "soon"`},
		{"name: a\ntype: t\ninput: 1\nevery: 1h\nuntil: 2001-01-01T00:00:00Z\n", ":5:8: until 2001-01-01T00:00:00Z has passed"},
		{"name: a\ntype: t\nevery: 1h\n", ":1:1: input is not said"},
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

// TestScheduleNumbers: the input in a file is the input of the tasks, number by number.
//
// covers: W3
func TestScheduleNumbers(t *testing.T) {
	all, err := readSchedules(scheduleFile(t, "name: a\ntype: t\nevery: 1h\ninput: {i: 9223372036854775809, n: 100000000000000000001, f: 0.1000000000000000055511151231257827, e: 1e5, hex: 0x10, text: '1e5'}\n"))
	if want := `{"e":100000,"f":0.1000000000000000055511151231257827,"hex":16,"i":9223372036854775809,"n":100000000000000000001,"text":"1e5"}`; err != nil || string(all[0].spec.Input) != want {
		t.Errorf("%s, %v; want %s", all[0].spec.Input, err, want)
	}
	if _, err := readSchedules(scheduleFile(t, "name: a\ntype: t\nevery: 1h\ninput: {n: 1e999}\n")); err == nil || !strings.Contains(err.Error(), ":4:12: number 1e999 is out of range") {
		t.Error(err)
	}
}

// TestScheduleRefusals: the same schedule is refused by the same sentence over HTTP and in a file, there with its place.
func TestScheduleRefusals(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("DULY_TOKEN", "")
	w := apitest.New()
	w.Plan.InputSchema, w.Plan.InputMax = `{"type":"object","required":["cents"]}`, 20
	later := w.Plan
	later.Version, later.InputSchema = 2, "" // not what a schedule that names none is about
	w.Later, w.Marked = []core.Plan{later}, core.Deprecations{{Name: "order", Version: 2, At: 1}}
	handler, err := w.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(apitest.As(operate.RoleOperator, handler))
	defer server.Close()
	put := func(body string) (code int, detail string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/v1/schedules/s", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		var problem struct{ Detail string }
		if err != nil || json.Unmarshal(data, &problem) != nil {
			t.Fatalf("%s: %v", data, err)
		}
		return answer.StatusCode, problem.Detail
	}
	for _, c := range []struct {
		fields string // beside type and input
		code   int
		want   string // one that ends in a space goes on
	}{
		{`"cron":"0 0 30 2 *"`, 400, `cron "0 0 30 2 *" would never run: it names no day of the next 40 years, as 30 February is none`},
		{`"cron":"0 0 * * *","zone":"Mars/Base"`, 400, `zone "Mars/Base" is no time zone, want a name of the IANA database, such as Europe/Berlin`},
		{`"cron":"0 0 * * *","zone":"Europe/Belrin"`, 400, `zone "Europe/Belrin" is no time zone: is Europe/Berlin meant?`},
		{`"every":"1h","type":"ordre"`, 400, `type "ordre" has no plan: is order meant?`},
		{`"every":"1h","plan_version":7`, 400, `plan_version is 7, and no such version of plan order is stored`},
		{`"every":"1h","plan_version":2`, 409, `plan_version is 2, and that version of plan order is deprecated: name another or none`},
		{`"every":"1h","input":{}`, 422, `input does not fit the input schema of plan order version 1: missing property 'cents'`},
		{`"every":"1h","input":"a text that is long."`, 413, `input has 22 bytes, the limit of plan order version 1 is 20`},
		{`"every":"1h","until":"2001-01-01T00:00:00Z"`, 400, `until 2001-01-01T00:00:00Z has passed: now is `},
		{`"every":"1h","from":"2001-01-01T00:00:00Z"`, 200, ""}, // its runs begin now
	} {
		body := map[string]any{}
		if err := json.Unmarshal([]byte(`{"type":"order","input":{"cents":1},`+c.fields+`}`), &body); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		code, detail := put(string(data))
		if whole := strings.HasSuffix(c.want, " "); code != c.code || whole && !strings.HasPrefix(detail, c.want) || !whole && detail != c.want {
			t.Errorf("%s: over HTTP %d %s\nwant %d %s", c.fields, code, detail, c.code, c.want)
		}
		body["name"] = "s"
		if data, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
		file := scheduleFile(t, string(data))
		exit, out, errs := command(t, "", "schedule", "apply", file, "-s", server.URL)
		place, _, _ := strings.Cut(c.want, " ")
		at := strings.Index(string(data), `"`+place+`":`) + len(place) + 4
		if (exit == 0) != (c.want == "") || !strings.Contains(errs, c.want) || c.want != "" && !strings.Contains(errs, fmt.Sprintf("%s:1:%d: ", file, at)) {
			t.Errorf("%s: in the file, exit status %d: %s%s\nwant %s at column %d", c.fields, exit, out, errs, c.want, at)
		}
	}
}
