package telemetry

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
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

// fixed is a Source that always says the same.
type fixed Snapshot

func (f fixed) Snapshot() Snapshot { return Snapshot(f) }

// full is a node with every role, of which everything is known.
func full() Snapshot {
	s := Snapshot{
		Ready: true, Conditions: map[string]bool{"nats": false, "streams": true}, Raised: 3, Unraised: 1,
		Ingest: &Ingest{Outcomes: map[string]int64{"accepted": 10, "door_full": 2}, Packs: 4, Open: 1, Bytes: 100,
			Outboxes: []Outbox{{Name: "shop", Relayed: 21, PutOff: 3, Standing: &OutboxStanding{Waiting: 4, Oldest: 1500 * time.Millisecond, Refused: 2}}, {Name: "away", Relayed: 5}}},
		Scheduler: &Scheduler{Types: []Type{{"order", 5, map[string]int64{"processed": 3, "undone": 1, "error": 0}}, {"order", 2, map[string]int64{"processed": 1}}, {"other", 0, nil}},
			InFlight: 7, Window: 100, Overloaded: true, Memory: 1000, Owned: 2, Lag: map[int]int64{0: 5, 3: 0}, Away: 1, Waiting: 9, Breakers: map[string]BreakerState{"pay": BreakerOpen, "ship": BreakerTrial}, Openings: 3,
			Commits: 3, Writes: 30, Records: 40, Do: 11, Undo: 2, Stale: 1, Forged: 6, Duplicates: 1, Refused: 1, Republished: 2, Trouble: 1,
			Kinds:  Kinds{Waits: 1, Signals: 2, SignalsRefused: 3, Born: 4, Ended: map[string]int64{"undone": 5}, Skipped: 6, Expressions: 7, LateDos: 8, LateUndos: 9, Starts: 10, Probes: map[string]int64{"done": 11}},
			Cycles: Times{Bounds: []time.Duration{time.Millisecond, 10 * time.Millisecond}, Counts: []int64{1, 2, 3}, Sum: 500 * time.Millisecond}},
		Supervisor: &Supervisor{Leads: true, Asked: 8, Channels: []Channel{{"webhook", 4, 1}, {"email", 0, 0}}, Forecasts: []Forecast{{Type: "order", Version: 1, Chance: 0.25}}, Operations: map[string]int64{"running": 1, "paused": 0, "braked": 0}, Members: map[string]int64{"done": 3},
			Schedules: &Schedules{Submitted: 7, Skipped: 1, Missed: 2, Failed: 3, Failing: 1, Lag: 1500 * time.Millisecond},
			Books:     &Books{At: time.Unix(1700000000, 0), Effects: 12, Accepted: 1, Silent: 1, Ghosts: map[string]int64{"effect_missing": 2}}},
		Pools: []Pool{{"commits", 8, 2, 1, 70, 4, 1500 * time.Millisecond}},
		Held:  &Held{WAL: 4096, Snapshot: 1500 * time.Millisecond},
		NATS:  NATS{Connected: true, Reconnects: 2, In: 100, Out: 200, InBytes: 1000, OutBytes: 2000, Dropped: 1},
		Spans: &Spans{5, 1},
	}
	return s
}

var build = Build{Version: "1.2.3", Node: "n1", Roles: []string{"ingest", "scheduler"}}

// scrape asks a handler as Prometheus does.
func scrape(t *testing.T, s Snapshot) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(fixed(s), build).ServeHTTP(w, httptest.NewRequest(http.MethodGet, PathMetrics, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestMetrics: every metric of the list is served with the values of the node, and none that is not in the list.
func TestMetrics(t *testing.T) {
	text := scrape(t, full())
	for _, want := range []string{
		`duly_build_info{go="go`, `node="n1",roles="ingest,scheduler",version="1.2.3"} 1`,
		`duly_submissions_total{outcome="accepted"} 10`, `duly_submissions_total{outcome="door_full"} 2`, `duly_tasks_created_total{type="order"} 7`,
		`duly_tasks_ended_total{state="processed",type="order"} 4`, `duly_tasks_ended_total{state="error",type="order"} 0`, `duly_tasks_created_total{type="other"} 0`,
		`duly_commit_cycle_seconds_bucket{le="0.001"} 1`, `duly_commit_cycle_seconds_bucket{le="0.01"} 3`, `duly_commit_cycle_seconds_bucket{le="+Inf"} 6`,
		`duly_commit_cycle_seconds_sum 0.5`, `duly_commits_total 3`, `duly_commit_writes_total 30`, `duly_tasks_in_flight 7`, `duly_window 100`, `duly_overloaded 1`,
		`duly_partition_lag{partition="0"} 5`, `duly_partition_lag{partition="3"} 0`, `duly_partitions_owned 2`, `duly_commands_total{kind="do"} 11`,
		`duly_replies_refused_total{reason="forged"} 6`, `duly_undo_trouble_total 1`, `duly_alerts_sent_total{channel="webhook"} 4`, `duly_alerts_failed_total{channel="webhook"} 1`,
		`duly_operations{state="running"} 1`, `duly_operation_tasks{outcome="done"} 3`, `duly_condition_trouble{condition="streams"} 1`, `duly_condition_trouble{condition="nats"} 0`,
		`duly_breaker_state{agent="pay"} 2`, `duly_breaker_state{agent="ship"} 1`, `duly_breaker_openings_total 3`, `duly_ready 1`, `duly_database_connections_used{pool="commits"} 2`, `duly_database_wait_seconds_total{pool="commits"} 1.5`, `duly_database_queries_total{pool="commits"} 70`, `duly_nats_reconnects_total 2`, `duly_spans_dropped_total 1`,
		`duly_outbox_relayed_total{outbox="shop"} 21`, `duly_outbox_relayed_total{outbox="away"} 5`, `duly_outbox_put_off_total{outbox="shop"} 3`,
		`duly_outbox_waiting{outbox="shop"} 4`, `duly_outbox_oldest_seconds{outbox="shop"} 1.5`, `duly_outbox_refused{outbox="shop"} 2`,
		`duly_waits_ended_total 1`, `duly_signals_total{outcome="taken"} 2`, `duly_signals_total{outcome="refused"} 3`, `duly_children_born_total 4`,
		`duly_children_ended_total{state="undone"} 5`, `duly_steps_skipped_total 6`, `duly_expressions_failed_total 7`,
		`duly_late_answers_total{kind="do"} 8`, `duly_late_answers_total{kind="undo"} 9`, `duly_tasks_begun_later_total 10`,
		"go_goroutines ", "process_cpu_seconds_total ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not served", want)
		}
	}
	served := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		served[m[1]] = true
		i := slices.IndexFunc(metrics, func(x Metric) bool { return x.Name == m[1] })
		if i < 0 && strings.HasPrefix(m[1], "duly_") || i >= 0 && string(metrics[i].Kind) != m[2] {
			t.Errorf("%s of kind %s is not in the list, or of another kind", m[1], m[2])
		}
	}
	for _, m := range metrics {
		if !served[m.Name] {
			t.Errorf("%s is not served", m.Name)
		}
	}
	if strings.Contains(text, `duly_outbox_waiting{outbox="away"}`) {
		t.Error("what is not known of an outbox is served")
	}
	without := scrape(t, Snapshot{})
	for _, absent := range []string{"duly_submissions", "duly_outbox", "duly_tasks", "duly_commit", "duly_supervisor", "duly_spans"} {
		if strings.Contains(without, absent) {
			t.Errorf("a node without that role serves %s", absent)
		}
	}
}

// held is a Source that says nothing before its gate is open, and counts who asks.
type held struct {
	gate  chan struct{}
	asked atomic.Int64
}

func (h *held) Snapshot() Snapshot {
	h.asked.Add(1)
	<-h.gate
	return full()
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

// TestCardinalityIsBounded: ten thousand types of tasks are 64 series and one for all others, whose sums hold.
func TestCardinalityIsBounded(t *testing.T) {
	s := full()
	s.Scheduler.Types = nil
	for n := range 10_000 {
		s.Scheduler.Types = append(s.Scheduler.Types, Type{fmt.Sprintf("t%05d", n), 1, map[string]int64{"processed": 1}})
	}
	text := scrape(t, s)
	if n := strings.Count(text, "duly_tasks_created_total{"); n != TypesMax+1 {
		t.Errorf("%d series", n)
	}
	if want := fmt.Sprintf(`duly_tasks_ended_total{state="processed",type="other"} %d`, 10_000-TypesMax); !strings.Contains(text, want) {
		t.Errorf("%s is not served", want)
	}
	if n := strings.Count(text, "\nduly_"); n > 400 {
		t.Errorf("%d series in all", n)
	}
}

// TestNamesAreGood holds the names to Prometheus's own linter.
func TestNamesAreGood(t *testing.T) {
	problems, err := testutil.CollectAndLint(newCollector(fixed(full()), build))
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

// TestPage: docs/reference/metrics.md has what the list says.
func TestPage(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "reference", "metrics.md")
	if *update {
		if err := os.WriteFile(file, []byte(Page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != Page() {
		t.Errorf("%s is not fresh (%v): make docs", file, err)
	}
}

// BenchmarkScrape is what a scrape costs a node that serves 64 types.
func BenchmarkScrape(b *testing.B) {
	s := full()
	for n := range TypesMax {
		s.Scheduler.Types = append(s.Scheduler.Types, Type{fmt.Sprint("type-", n), 1, map[string]int64{"processed": 1, "undone": 1, "error": 1}})
	}
	h := Handler(fixed(s), build)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, PathMetrics, nil))
	}
}
