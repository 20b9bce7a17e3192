package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTold: what is due of a fault is missed unless an alert has begun and ended, a line
// was logged, and a process was not ready for that reason within ten seconds.
func TestTold(t *testing.T) {
	at := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	stamp := func(ms int) string { return at.Add(time.Duration(ms) * time.Millisecond).Format(time.RFC3339Nano) }
	begin := "time=" + stamp(100) + " msg=x alert=begin name=streams key=DULY_TASKS\n"
	end := "time=" + stamp(5000) + " msg=y alert=end name=streams key=DULY_TASKS\n"
	failing := func(after time.Duration, name string) []standing {
		return []standing{{at: at.Add(-time.Second), answers: true}, {at: at.Add(after), answers: true, failing: []string{name}}, {at: at.Add(after + time.Second), answers: true}}
	}
	streams := told("streams")
	for name, test := range map[string]struct {
		due  *due
		log  string
		seen []standing
		held time.Duration
		want string // empty: all was told
	}{
		"all":                     {streams, begin + end, failing(time.Second, "streams"), 0, ""},
		"no alert":                {streams, "", failing(time.Second, "streams"), 0, "no alert streams"},
		"no end":                  {streams, begin, failing(time.Second, "streams"), 0, "ingest: no end of streams DULY_TASKS"},
		"ended by the end of it":  {streams, begin + "--- t starts /newer\ntime=" + stamp(200) + " msg=z\n", failing(time.Second, "streams"), 0, ""},
		"another condition":       {streams, begin + end, failing(time.Second, "nats"), 0, "ready all the time"},
		"too late":                {streams, begin + end, failing(11*time.Second, "streams"), 0, "not ready only after 11s"},
		"before it began":         {&due{alerts: []string{"x"}}, "time=" + stamp(-100) + " msg=x alert=once name=x\n", nil, 0, "no alert x"},
		"an event":                {&due{alerts: []string{"database-went-back"}}, "time=" + stamp(1) + " msg=x alert=once name=database-went-back\n", nil, 0, ""},
		"a line":                  {&due{lines: []string{"nodes are gone"}}, "time=" + stamp(1) + ` msg="nodes are gone" gone=a` + "\n", nil, 0, ""},
		"no line":                 {&due{lines: []string{"nodes are gone"}}, "time=" + stamp(1) + " msg=other\n", nil, 0, `no line "nodes are gone"`},
		"too short to be told":    {&due{after: time.Second, lines: []string{"nodes are gone"}}, "", nil, 500 * time.Millisecond, ""},
		"nothing due":             {nil, "", nil, 0, ""},
		"nothing due and no end":  {nil, begin, nil, 0, "ingest: no end of streams DULY_TASKS"},
		"not ready when all else": {nil, "", failing(time.Second, "nats")[:2], 0, "ingest does not say that it is ready"},
	} {
		p, say := speaker(t, "ingest")
		say("--- t starts /newer\n" + test.log)
		w := &world{watch: &watch{seen: map[string][]standing{"ingest": test.seen}}, logs: newLogs("/older")}
		lines, err := w.logs.read([]*process{p})
		if err != nil {
			t.Fatal(err)
		}
		in := &injection{at: at, due: test.due}
		got := w.judge(in, &heard{at: at, lines: lines}, at.Add(test.held))
		switch {
		case test.want == "" && len(got.missed) > 0:
			t.Errorf("%s: missed %q", name, got.missed)
		case test.want != "" && !slices.Contains(got.missed, test.want):
			t.Errorf("%s: missed %q, want %q", name, got.missed, test.want)
		}
		if text := got.String(); strings.Contains(text, "NOT TOLD") != (test.want != "") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestUnready: the first process that is not ready counts, and the last that is again.
func TestUnready(t *testing.T) {
	at := time.Now()
	s := func(ms int, failing ...string) standing {
		return standing{at: at.Add(time.Duration(ms) * time.Millisecond), answers: true, failing: failing}
	}
	w := &watch{seen: map[string][]standing{
		"a": {s(-50, "nats"), s(10), s(400, "nats"), s(900)},
		"b": {s(-50), s(300, "streams"), s(1200, "nats"), {at: at.Add(1300 * time.Millisecond)}, s(2000)},
	}}
	after, again, ok := w.unready(at, nil)
	if !ok || after != 300*time.Millisecond || again != 2*time.Second {
		t.Errorf("%v %v %v, want 300ms and 2s", after, again, ok)
	}
	if after, _, ok = w.unready(at, []string{"nats"}); !ok || after != 400*time.Millisecond {
		t.Errorf("because of nats: %v %v, want 400ms", after, ok)
	}
	if _, _, ok = w.unready(at, []string{"clock"}); ok {
		t.Error("because of its clock, which it never said")
	}
	w.forget(at.Add(time.Second))
	if got := w.seen["b"]; len(got) != 4 || len(got[0].failing) != 1 {
		t.Errorf("after forgetting: %+v", got)
	}
}

// TestStanding: what a process answers is taken as it is said.
func TestStanding(t *testing.T) {
	code, body := http.StatusOK, `{"status":"ready"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	p := &process{name: "p", ready: server.URL}
	if s := p.standing(t.Context()); !s.ready() {
		t.Errorf("%+v, want ready", s)
	}
	code, body = http.StatusServiceUnavailable, `{"status":"not ready","failing":[{"name":"streams","key":"b"},{"name":"nats"},{"name":"streams","key":"a"}]}`
	if s := p.standing(t.Context()); s.ready() || !slices.Equal(s.failing, []string{"nats", "streams"}) {
		t.Errorf("%+v, want nats and streams", s)
	}
	body = "gone"
	if s := p.standing(t.Context()); s.ready() || !s.answers || len(s.failing) != 1 {
		t.Errorf("%+v, want not ready without a name", s)
	}
	server.Close()
	if s := p.standing(t.Context()); s.answers || s.ready() {
		t.Errorf("%+v, want no answer", s)
	}
}
