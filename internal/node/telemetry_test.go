package node

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedules"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/schema"
)

// measured is what a scrape shows.
func measured(t *testing.T, source telemetry.Source) string {
	t.Helper()
	w := httptest.NewRecorder()
	telemetry.Handler(source, telemetry.Build{Node: "n1"}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, telemetry.PathMetrics, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// sourceFunc is a telemetry.Source.
type sourceFunc func(*telemetry.Scrape)

func (f sourceFunc) Metrics(to *telemetry.Scrape) { f(to) }

// counted is a scheduler that has counted something of each kind, in two shards.
func counted() *scheduler.Snapshot {
	took := scheduler.Latency{Sum: 4 * time.Second}
	took.Counts[0], took.Counts[len(took.Counts)-1] = 2, 1
	s := &scheduler.Snapshot{
		Types: []scheduler.TypeCount{{Type: "order", Created: 5, Asked: 6, Ended: map[core.State]int64{core.StateProcessed: 3, core.StateUndone: 1, core.StateError: 0}, Took: took, Missed: 2},
			{Type: "order", Created: 2, Ended: map[core.State]int64{core.StateProcessed: 1}, Took: took, Missed: 1}, {Type: "other"}},
		Steps:    []scheduler.StepCount{{Type: "order", Agent: "pay", Took: took}, {Type: "order", Agent: "pay", Took: took}},
		Agents:   []scheduler.AgentCount{{Agent: "pay", Failed: 4}, {Agent: "pay", Failed: 1, Overdue: 2}},
		InFlight: 7, Window: 100, Overloaded: true, Memory: 1000, Owned: []int{0, 3}, Away: []scheduler.Away{{Agent: "ship", Tasks: 4}, {Agent: "pay", Tasks: 5}}, Openings: 3,
		Stats: scheduler.Stats{Commits: 3, Writes: 30, Records: 40, Do: 11, Undo: 2, Stale: 1, Forged: 4, Duplicates: 5, Poisoned: 6, Republished: 7, UndoTrouble: 8,
			Kinds: scheduler.Kinds{Waits: 1, Signals: 2, SignalsRefused: 3, Born: 4, Skipped: 6, Expressions: 7, LateDos: 8, LateUndos: 9, Starts: 10, ChildEnds: [3]int64{10, 11, 12}, Probes: [3]int64{13, 14, 15}}},
		Cycles: scheduler.Cycles{Sum: 500 * time.Millisecond},
	}
	s.Cycles.Counts[0] = 6
	return s
}

// TestMetrics: every metric of the list is told, with the count of its name.
//
// covers: O8
func TestMetrics(t *testing.T) {
	conn, err := natsbus.Dial(t.Context(), natsbus.Options{URL: startNATS(t).ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	shop := outbox{name: "shop", relay: &ingest.Relay{}, standing: ingest.Standing{Waiting: 4, Oldest: 1500 * time.Millisecond, Refused: 2}, known: true}
	away := outbox{name: "away", relay: &ingest.Relay{}}
	chance := 0.25
	var looked survey
	looked.counts.Store(&[]core.Count{{Type: "order", State: core.StateError, Tasks: 3}, {Type: "order", State: core.StateUndone, Tasks: 7}})
	looked.forecast.Store(&operate.Forecast{Plans: []operate.PlanForecast{{Type: "order", Version: 1, Chance: &chance}, {Type: "odd", Version: 1}}})
	looked.operations.Store(&[]operate.Operation{{State: operate.OperationRunning, Tally: operate.Tally{Done: 1, Waiting: 5}}, {State: operate.OperationRunning, Tally: operate.Tally{Done: 2}}})
	var served telemetry.HTTP
	served.Around(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	now := core.InstantOf(time.Now())
	text := measured(t, sourceFunc(func(to *telemetry.Scrape) {
		to.Flag("duly_ready", true)
		to.Flag("duly_condition_trouble", true, "streams")
		to.Count("duly_alerts_raised_total", 3)
		to.Count("duly_alerts_dropped_total", 1)
		doorMetrics(to, ingest.Stats{Accepted: 10, Refused: map[int]int64{ingest.CauseFull: 2}, Warned: 9, Packs: 4, Items: 1, Bytes: 100})
		shop.Metrics(to)
		away.Metrics(to)
		schedulerMetrics(to, counted(), 2)
		breakerMetrics(to, []core.Breaker{{Agent: "pay", State: core.BreakerOpen, Until: now.Add(time.Hour)}, {Agent: "ship", State: core.BreakerTrial, Until: now.Add(time.Hour)}, {Agent: "well"}}, now)
		lagMetrics(to, []int{0, 3, 4}, map[int]int64{0: 5, 3: 0, 9: 1})
		to.Flag("duly_supervisor_leads", true)
		to.Count("duly_overdue_asked_total", 8)
		channelMetrics(to, []alerts.Count{{Kind: "webhook", Sent: 4, Failed: 1}, {Kind: "email"}})
		booksMetrics(to, &operate.BooksResult{At: time.Unix(1700000000, 0), Effects: 12, Accepted: 1, Kinds: map[operate.GhostKind]int64{operate.GhostMissing: 2}})
		scheduleMetrics(to, schedules.Stats{Submitted: 7, Skipped: 1, Missed: 2, Failed: 3, Failing: map[string]string{"a": "b"}, Lag: 1500 * time.Millisecond})
		looked.Metrics(to)
		poolMetrics(to, []schema.PoolStat{{Name: "commits", Max: 8, Used: 2, Idle: 1, Queries: 70, Waits: 4, Waited: 1500 * time.Millisecond}})
		heldMetrics(to, &schema.Held{WAL: 4096, Snapshot: 1500 * time.Millisecond})
		natsMetrics(to, conn)
		served.Metrics(to)
		spanMetrics(to, telemetry.Spans{Made: 5, Dropped: 1})
	}))
	for _, want := range []string{
		`duly_submissions_total{outcome="accepted"} 10`, `duly_submissions_total{outcome="door_full"} 2`, `duly_submissions_warned_total 9`, `duly_submission_packs_total 4`,
		`duly_submissions_unanswered 1`, `duly_submissions_unanswered_bytes 100`, `duly_tasks_created_total{type="order"} 7`, `duly_tasks_created_total{type="other"} 0`,
		`duly_tasks_ended_total{state="processed",type="order"} 4`, `duly_tasks_ended_total{state="error",type="order"} 0`, `duly_tasks_ended_total{state="asked",type="order"} 6`,
		`duly_task_seconds_count{type="order"} 6`, `duly_task_seconds_sum{type="order"} 8`, `duly_task_deadlines_missed_total{type="order"} 3`,
		`duly_step_seconds_count{agent="pay",type="order"} 6`, `duly_agent_errors_total{agent="pay",outcome="failed"} 5`, `duly_agent_errors_total{agent="pay",outcome="overdue"} 2`,
		`duly_tasks_in_error{type="order"} 3`, `duly_http_request_seconds_count{code="404",route="none"} 1`, `duly_commit_cycle_seconds_count 6`, `duly_commit_cycle_seconds_sum 0.5`,
		`duly_commits_total 3`, `duly_commit_writes_total 30`, `duly_commit_records_total 40`, `duly_tasks_in_flight 7`, `duly_window 100`, `duly_overloaded 1`, `duly_task_memory_bytes 1000`,
		`duly_partition_lag{partition="0"} 5`, `duly_partition_lag{partition="3"} 0`, `duly_partitions_owned 2`, `duly_commands_total{kind="do"} 11`, `duly_commands_total{kind="undo"} 2`,
		`duly_agents_away 2`, `duly_tasks_waiting_for_agents 9`, `duly_replies_refused_total{reason="stale"} 1`, `duly_replies_refused_total{reason="forged"} 6`, `duly_duplicates_total 5`,
		`duly_rows_refused_total 6`, `duly_endings_republished_total 7`, `duly_undo_trouble_total 8`, `duly_alerts_sent_total{channel="webhook"} 4`, `duly_alerts_failed_total{channel="webhook"} 1`,
		`duly_operations{state="running"} 2`, `duly_operations{state="braked"} 0`, `duly_operation_tasks{outcome="done"} 3`, `duly_operation_tasks{outcome="waiting"} 5`,
		`duly_forecast_chance{type="order",version="1"} 0.25`, `duly_breaker_state{agent="pay"} 2`, `duly_breaker_state{agent="ship"} 1`, `duly_breaker_openings_total 3`,
		`duly_database_connections_max{pool="commits"} 8`, `duly_database_connections_used{pool="commits"} 2`, `duly_database_connections_idle{pool="commits"} 1`,
		`duly_database_wait_seconds_total{pool="commits"} 1.5`, `duly_database_waits_total{pool="commits"} 4`, `duly_database_queries_total{pool="commits"} 70`,
		`duly_database_wal_bytes 4096`, `duly_database_snapshot_seconds 1.5`, `duly_nats_connected 1`, `duly_spans_total 5`, `duly_spans_dropped_total 1`,
		`duly_outbox_relayed_total{outbox="shop"} 0`, `duly_outbox_put_off_total{outbox="away"} 0`, `duly_outbox_waiting{outbox="shop"} 4`, `duly_outbox_oldest_seconds{outbox="shop"} 1.5`,
		`duly_outbox_refused{outbox="shop"} 2`, `duly_books_closed 0`, `duly_books_effects 12`, `duly_books_ghosts_accepted 1`, `duly_books_ghosts{kind="effect_missing"} 2`,
		`duly_books_compared_timestamp_seconds 1.7e+09`, `duly_schedules_submitted_total 7`, `duly_schedules_skipped_total 1`, `duly_schedules_missed_total 2`, `duly_schedules_failed_total 3`,
		`duly_schedules_failing 1`, `duly_schedules_lag_seconds 1.5`, `duly_waits_ended_total 1`, `duly_signals_total{outcome="taken"} 2`, `duly_signals_total{outcome="refused"} 3`,
		`duly_children_born_total 4`, `duly_children_ended_total{state="processed"} 10`, `duly_children_ended_total{state="undone"} 11`, `duly_children_ended_total{state="error"} 12`,
		`duly_steps_skipped_total 6`, `duly_expressions_failed_total 7`, `duly_late_answers_total{kind="do"} 8`, `duly_late_answers_total{kind="undo"} 9`, `duly_tasks_begun_later_total 10`,
		`duly_probes_total{outcome="done"} 13`, `duly_probes_total{outcome="absent"} 14`, `duly_probes_total{outcome="unknown"} 15`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s is not served", want)
		}
	}
	for _, m := range telemetry.Metrics() {
		if !strings.Contains(text, "# TYPE "+m.Name+" ") {
			t.Errorf("%s is not served", m.Name)
		}
	}
	for _, absent := range []string{`duly_outbox_waiting{outbox="away"}`, `duly_breaker_state{agent="well"}`, `partition="4"`, `partition="9"`, `type="odd"`, `state="undone",type="other"`} {
		if strings.Contains(text, absent) {
			t.Errorf("%s is served", absent)
		}
	}
}
