package telemetry

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md")

// source is a Source.
type source func(*Scrape)

func (s source) Metrics(to *Scrape) { s(to) }

// one puts a value of each metric of the list, or so many.
func one(to *Scrape, m Metric, labels ...string) {
	if m.Kind == Histogram {
		to.Times(m.Name, []time.Duration{time.Second}, []int64{1, 0}, time.Second, labels...)
		return
	}
	to.Put(m.Name, 1, labels...)
}

// all is a source of which everything is known but what it runs, which the handler says.
func all(to *Scrape) {
	for _, m := range metrics[1:] {
		one(to, m, slices.Repeat([]string{"x"}, len(m.Labels))...)
	}
}

var build = Build{Version: "1.2.3", Node: "n1", Roles: []string{"ingest", "scheduler"}}

// scrape asks a handler as Prometheus does.
func scrape(t *testing.T, s source) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(s, build).ServeHTTP(w, httptest.NewRequest(http.MethodGet, PathMetrics, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestMetrics: every metric of the list is served as its kind; what has the same labels is added up.
func TestMetrics(t *testing.T) {
	text := scrape(t, func(to *Scrape) {
		all(to)
		to.Count("duly_tasks_created_total", 6, "x")
		to.Times("duly_commit_cycle_seconds", []time.Duration{time.Second}, []int64{1, 3}, 9*time.Second)
		to.Count("duly_tasks_ended_total", 0, "order", "error")
		to.Flag("duly_condition_trouble", false, "nats")
	})
	for _, want := range []string{
		`duly_build_info{go="go`, `node="n1",roles="ingest,scheduler",version="1.2.3"} 1`, `duly_tasks_created_total{type="x"} 7`,
		`duly_commit_cycle_seconds_bucket{le="1"} 2`, `duly_commit_cycle_seconds_bucket{le="+Inf"} 5`, `duly_commit_cycle_seconds_sum 10`, `duly_commit_cycle_seconds_count 5`,
		`duly_tasks_ended_total{state="error",type="order"} 0`, `duly_condition_trouble{condition="nats"} 0`, `duly_ready 1`, "go_goroutines ", "process_cpu_seconds_total ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not served", want)
		}
	}
	for _, m := range metrics {
		if !strings.Contains(text, fmt.Sprintf("# TYPE %s %s\n", m.Name, m.Kind)) {
			t.Errorf("%s of kind %s is not served", m.Name, m.Kind)
		}
	}
	if without := scrape(t, func(*Scrape) {}); strings.Count(without, "# TYPE duly_") != 1 {
		t.Errorf("what is not told is served: %s", without)
	}
}

// held is a Source that says nothing before its gate is open, and counts who asks.
type held struct {
	gate  chan struct{}
	asked atomic.Int64
}

func (h *held) Metrics(to *Scrape) {
	h.asked.Add(1)
	<-h.gate
	to.Flag("duly_ready", true)
}

// stuck is a client that does not read.
type stuck struct {
	http.ResponseWriter
	gate chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	<-s.gate
	return s.ResponseWriter.Write(b)
}

// TestScrapesInTurn: scrapes beyond those that are made at a time wait, and slow readers keep none out.
func TestScrapesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{gate: make(chan struct{})}
		handler := Handler(h, build)
		var running sync.WaitGroup
		ask := func(slow chan struct{}) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			running.Go(func() {
				var to http.ResponseWriter = w
				if slow != nil {
					to = stuck{w, slow}
				}
				handler.ServeHTTP(to, httptest.NewRequest("GET", PathMetrics, nil))
			})
			return w
		}
		var all []*httptest.ResponseRecorder
		slow := make(chan struct{})
		for range scrapesMax {
			all = append(all, ask(slow))
		}
		synctest.Wait()
		for range 2 * scrapesMax {
			all = append(all, ask(nil))
		}
		synctest.Wait()
		if n := h.asked.Load(); n != scrapesMax {
			t.Errorf("%d are made at a time", n)
		}
		close(h.gate)
		synctest.Wait()
		for i, w := range all[scrapesMax:] {
			if w.Code != 200 || !strings.Contains(w.Body.String(), "duly_ready 1") {
				t.Errorf("scrape %d: %d %.100s", i, w.Code, w.Body)
			}
		}
		close(slow)
		running.Wait()
	})
}

// TestCardinalityIsBounded: of ten thousand types, steps, agents and routes 64 each are told apart, and one stands for all
// others, whose sums hold.
//
// covers: O8
func TestCardinalityIsBounded(t *testing.T) {
	var served HTTP
	for n := range 10_000 {
		served.count(fmt.Sprintf("t%05d", n), 200, time.Millisecond)
	}
	text := scrape(t, func(to *Scrape) {
		for n := range 10_000 {
			for _, m := range metrics {
				if m.apart > 0 {
					labels := slices.Repeat([]string{"processed"}, len(m.Labels))
					labels[m.apart-1] = fmt.Sprintf("t%05d", n)
					one(to, m, labels...)
				}
			}
		}
		served.Metrics(to)
	})
	for series, other := range map[string]string{
		"duly_tasks_created_total": `{type="other"}`, "duly_tasks_ended_total": `{state="processed",type="other"}`, "duly_task_seconds_count": `{type="other"}`,
		"duly_task_deadlines_missed_total": `{type="other"}`, "duly_step_seconds_count": `{agent="other",type="other"}`, "duly_agent_errors_total": `{agent="other",outcome="processed"}`,
		"duly_tasks_in_error": `{type="other"}`, "duly_http_request_seconds_count": `{code="other",route="other"}`,
	} {
		if n := strings.Count(text, "\n"+series+"{"); n != typesMax+1 {
			t.Errorf("%s has %d series", series, n)
		}
		if want := fmt.Sprintf("%s%s %d\n", series, other, 10_000-typesMax); !strings.Contains(text, want) {
			t.Errorf("%s is not served", want)
		}
	}
	if n := strings.Count(text, "\nduly_"); n > 2500 {
		t.Errorf("%d series in all", n)
	}
}

// TestRequests: requests are told apart by the route that the mux found and the code of the answer; what found none, and
// what streams, is no route's.
//
// covers: O8
func TestRequests(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks/{type}/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "none" {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte("{}"))
	})
	mux.HandleFunc("GET /v1/stream", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	var served HTTP
	h := served.Around(mux)
	for _, path := range []string{"/v1/tasks/order/1", "/v1/tasks/order/2", "/v1/tasks/order/none", "/v1/stream", "/elsewhere"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	got, to := map[string]int64{}, newScrape()
	served.Metrics(to)
	for _, is := range to.told["duly_http_request_seconds"].series {
		for _, n := range is.Counts {
			got[strings.Join(is.labels, " ")] += n
		}
	}
	if want := map[string]int64{"GET /v1/tasks/{type}/{id} 200": 2, "GET /v1/tasks/{type}/{id} 404": 1, "none 404": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestRequestsBelow: a request that a mux below another serves is counted by the pattern of the former, though what stands between
// them passes on a copy of it.
func TestRequestsBelow(t *testing.T) {
	below := http.NewServeMux()
	below.HandleFunc("/v1/tasks/{type}", func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { Below(below).ServeHTTP(w, r.Clone(r.Context())) })
	var served HTTP
	served.Around(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/tasks/order", nil))
	if got := slices.Collect(maps.Keys(served.all)); !slices.Equal(got, [][2]string{{"/v1/tasks/{type}", "200"}}) {
		t.Errorf("counted by %v", got)
	}
}

// TestNamesAreGood holds the names to Prometheus's own linter.
func TestNamesAreGood(t *testing.T) {
	problems, err := testutil.CollectAndLint(newCollector(source(all), build))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%+v", p)
	}
	for _, m := range metrics {
		if m.Help == "" || m.Bound == "" || !strings.HasPrefix(m.Name, "duly_") {
			t.Errorf("%+v", m)
		}
	}
}

// metricsPage is docs/reference/metrics.md.
func metricsPage() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Written by ` + "`go test ./internal/telemetry -run Page -update`" + ` from ` + "`internal/telemetry/metrics.go`" + `.

Every node serves them at ` + "`/metrics`" + `, whatever its roles; those of a role that it does not have are left out. No metric
counts by task, submitter or text. The last column says how many series a node has of one, if more than one; a histogram
has a handful for each. †: told by the leader. Beside these come those of Go (` + "`go_…`" + `) and the process
(` + "`process_…`" + `).

| metric | kind, labels | what | series |
|---|---|---|---|
`)
	for _, m := range metrics {
		kind, bound := string(m.Kind), m.Bound
		for _, l := range m.Labels {
			kind += " `" + l + "`"
		}
		if bound == "1" {
			bound = ""
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, kind, m.Help, bound)
	}
	return b.String()
}

// TestPage: docs/reference/metrics.md has what the list says.
func TestPage(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "reference", "metrics.md")
	if *update {
		if err := os.WriteFile(file, []byte(metricsPage()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != metricsPage() {
		t.Errorf("%s is not fresh (%v): make docs", file, err)
	}
}

// BenchmarkScrape is what a scrape costs a node that serves 64 types.
func BenchmarkScrape(b *testing.B) {
	h := Handler(source(func(to *Scrape) {
		all(to)
		for n := range typesMax {
			name := fmt.Sprint("type-", n)
			to.Count("duly_tasks_created_total", 1, name)
			for _, state := range []string{"processed", "undone", "error"} {
				to.Count("duly_tasks_ended_total", 1, name, state)
			}
		}
	}), build)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, PathMetrics, nil))
	}
}
