package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"duly.dev/duly"
	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/redact"
	"duly.dev/duly/schema"
)

// watchedNode is a node of all roles on a NATS server and SQLite, with a client and an agent.
type watchedNode struct {
	*Node
	at     string // of its HTTP
	nc     *nats.Conn
	client *duly.Client
	agent  *duly.Agent
	log    *logged
}

// watches starts one; before changes the node before it runs, serve gives the agent its steps.
func watches(t *testing.T, before func(*Node), serve func(*duly.Agent) error) *watchedNode {
	t.Helper()
	server := startNATS(t)
	database := "sqlite:" + filepath.Join(t.TempDir(), "duly.db")
	if err := Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	cfg := good()
	cfg.Partitions, cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval, cfg.HTTPAddr = 2, 100, 100, 6*time.Second, 100*time.Millisecond, "127.0.0.1:0"
	cfg.AlertsAllowLocal = true
	cfg.Links = config.Links{NATSURL: server.ClientURL(), DatabaseURL: database}
	w := &watchedNode{log: &logged{}}
	var err error
	if w.Node, err = Open(t.Context(), cfg, slog.New(slog.NewTextHandler(w.log, nil))); err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(w.Node)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- errors.Join(w.Run(ctx), w.Close()) }()
	if w.nc, err = nats.Connect(server.ClientURL()); err != nil {
		t.Fatal(err)
	}
	if w.agent, err = duly.NewAgent(w.nc); err == nil {
		err = serve(w.agent)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- w.agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		w.nc.Close()
	})
	if w.client, err = duly.NewClient(w.nc); err != nil {
		t.Fatal(err)
	}
	until(t, "http is up", func() bool {
		m := regexp.MustCompile(`msg="http is up" .*addr=(\S+)`).FindStringSubmatch(w.log.text())
		if m != nil {
			w.at = "http://" + m[1]
		}
		return m != nil
	})
	until(t, "the node is ready", func() bool { return len(w.ground.Ready()) == 0 })
	return w
}

// ends submits a task and waits for its end.
func (w *watchedNode) ends(t *testing.T, ctx context.Context, p *duly.Plan[order], id string, want duly.State) {
	t.Helper()
	if _, err := p.Submit(ctx, w.client, id, order{1}); err != nil {
		t.Fatal(err)
	}
	var last duly.Status
	for status, err := range w.client.Watch(ctx, p.Name(), id) {
		if err != nil {
			t.Fatal(err)
		}
		last = status
	}
	if last.State != want {
		t.Errorf("%s: %+v, want %s", id, last, want)
	}
}

type order struct{ Cents int }

func paid(context.Context, duly.Call[order]) (string, error) { return "paid", nil }
func unpaid(context.Context, duly.Undo[order, string]) error { return nil }
func refused(context.Context, duly.Call[order]) (string, error) {
	return "", duly.Refuse(errors.New("that cannot be sent to postgres://app:s3cret@db/duly"))
}

// TestOneTrace: a submission, its task, the tries of two steps, the undo and what the handlers do themselves are one trace:
// each span stands below the one that caused it. A task whose trace is not sampled has no span.
func TestOneTrace(t *testing.T) {
	exporter, mine := tracetest.NewInMemoryExporter(), tracetest.NewInMemoryExporter()
	theirs := sdktrace.NewTracerProvider(sdktrace.WithSyncer(mine))
	t.Cleanup(func() {
		if err := theirs.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	tracer := theirs.Tracer("shop")
	pay, send := duly.NewStep[order, string]("pay", "till"), duly.NewStep[order, string]("send", "post", duly.Attempts(1))
	plan := duly.NewPlan("order", 1, pay, send)
	w := watches(t, func(n *Node) { n.trace(exporter, redact.Secrets{}) }, func(a *duly.Agent) error {
		return errors.Join(pay.Serve(a, func(ctx context.Context, call duly.Call[order]) (string, error) {
			_, span := tracer.Start(ctx, "charge the card")
			defer span.End()
			return paid(ctx, call)
		}, func(ctx context.Context, u duly.Undo[order, string]) error {
			_, span := tracer.Start(ctx, "pay back")
			defer span.End()
			return unpaid(ctx, u)
		}), send.Serve(a, refused, unpaid))
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := plan.Apply(ctx, w.client); err != nil {
		t.Fatal(err)
	}
	unsampled := trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{9}, SpanID: trace.SpanID{9}}))
	w.ends(t, unsampled, plan, "o-0", duly.StateUndone)
	request, span := tracer.Start(ctx, "a customer orders")
	w.ends(t, request, plan, "o-1", duly.StateUndone)
	span.End()

	var got tracetest.SpanStubs
	until(t, "the spans are made", func() bool {
		if err := w.tracer.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		got = append(exporter.GetSpans(), mine.GetSpans()...)
		got = got[:len(got):len(got)]
		n := 0
		for _, s := range got {
			if s.SpanContext.TraceID() == span.SpanContext().TraceID() {
				n++
			}
		}
		return n >= 7
	})
	byName := map[string]tracetest.SpanStub{}
	for _, s := range got {
		switch {
		case s.SpanContext.TraceID() == span.SpanContext().TraceID():
		case s.SpanContext.TraceID() == trace.TraceID{9}: // the shop's own, of the task that is not sampled
			t.Errorf("%s is of a trace that is not sampled", s.Name)
			continue
		default:
			t.Errorf("%s is of another trace", s.Name)
			continue
		}
		if _, twice := byName[s.Name]; twice {
			t.Errorf("%s is there twice", s.Name)
		}
		byName[s.Name] = s
	}
	for name, parent := range map[string]string{"task order": "a customer orders", "do pay": "task order", "charge the card": "do pay", "do send": "task order", "undo pay": "task order", "pay back": "undo pay"} {
		s, above := byName[name], byName[parent]
		if s.Name == "" || s.Parent.SpanID() != above.SpanContext.SpanID() {
			t.Errorf("%q is there: %v; its parent is %s, want %q, %s", name, s.Name != "", s.Parent.SpanID(), parent, above.SpanContext.SpanID())
		}
		if s.EndTime.Before(s.StartTime) || s.StartTime.IsZero() {
			t.Errorf("%s: from %v to %v", name, s.StartTime, s.EndTime)
		}
	}
	if s := byName["do send"]; !strings.Contains(s.Status.Description, "that cannot be sent") || strings.Contains(fmt.Sprint(s), "s3cret") {
		t.Errorf("%+v", s.Status)
	}
	attrs := map[string]string{}
	for _, a := range byName["undo pay"].Attributes {
		attrs[string(a.Key)] = a.Value.String()
	}
	if attrs["duly.task.id"] != "o-1" || attrs["duly.step.name"] != "pay" || attrs["duly.agent"] != "till" || attrs["duly.step.undo"] != "true" || attrs["duly.step.outcome"] != "undone" || attrs["duly.step.key"] != "o-1/pay/0" {
		t.Errorf("%v", attrs)
	}
}

// TestMetricsOfANode: a node serves what its roles have counted.
func TestMetricsOfANode(t *testing.T) {
	t.Parallel()
	pay, send := duly.NewStep[order, string]("pay", "till"), duly.NewStep[order, string]("send", "post", duly.Attempts(1))
	good, bad := duly.NewPlan("good", 1, pay), duly.NewPlan("bad", 1, pay, send)
	w := watches(t, nil, func(a *duly.Agent) error {
		return errors.Join(pay.Serve(a, paid, unpaid), send.Serve(a, refused, unpaid))
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(good.Apply(ctx, w.client), bad.Apply(ctx, w.client)); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		w.ends(t, ctx, good, fmt.Sprint("g-", n), duly.StateProcessed)
	}
	w.ends(t, ctx, bad, "b-0", duly.StateUndone)
	if _, err := w.client.SubmitRaw(ctx, "good", "g-x", []byte(`{}`), duly.Within(time.Second), duly.ReplyTo("elsewhere")); err == nil {
		t.Error("a status subject that is not allowed is taken")
	}
	var text string
	until(t, "the lag is known", func() bool {
		resp, err := http.Get(w.at + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
		_ = resp.Body.Close()
		text = string(data)
		return strings.Contains(text, `duly_partition_lag{partition="1"} 0`)
	})
	for _, want := range []string{
		`duly_tasks_created_total{type="good"} 3`, `duly_tasks_created_total{type="bad"} 1`, `duly_tasks_ended_total{state="processed",type="good"} 3`,
		`duly_tasks_ended_total{state="undone",type="bad"} 1`, `duly_submissions_total{outcome="accepted"} 4`, `duly_submissions_total{outcome="reply_to"} 1`,
		`duly_commands_total{kind="do"} 5`, `duly_commands_total{kind="undo"} 1`, `duly_partitions_owned 2`, `duly_ready 1`, `duly_supervisor_leads 1`,
		`duly_condition_trouble{condition="nats"} 0`, `duly_nats_connected 1`, `duly_tasks_in_flight 0`, `duly_database_connections_max{pool="commits"} 1`, `duly_overloaded 0`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s is not served", want)
		}
	}
	for _, pool := range []string{"commits", "reading", "asking"} {
		if m := regexp.MustCompile(`duly_database_queries_total{pool="` + pool + `"} (\d+)\n`).FindStringSubmatch(text); m == nil || m[1] == "0" {
			t.Errorf("queries of pool %s: %v", pool, m)
		}
	}
	if mark := markOf(w.store); mark == nil {
		t.Error("the store tells no mark, so that everything that is shown live is read each time")
	}
	if m := regexp.MustCompile(`duly_commit_cycle_seconds_count (\d+)\n`).FindStringSubmatch(text); m == nil || m[1] == "0" {
		t.Errorf("commit cycles: %v", m)
	}
}

// settingStore is a store that keeps settings as well.
type settingStore struct {
	schema.Store
	mu  *sync.Mutex
	all map[string][]byte
}

func withSettings(s schema.Store) settingStore {
	return settingStore{s, &sync.Mutex{}, map[string][]byte{}}
}

func (s settingStore) PutSetting(_ context.Context, name string, document []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[name] = document
	return nil
}

func (s settingStore) Setting(_ context.Context, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if document, ok := s.all[name]; ok {
		return document, nil
	}
	return nil, core.ErrNotFound
}

func (s settingStore) Settings(_ context.Context, prefix string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string][]byte{}
	for name, document := range s.all {
		if strings.HasPrefix(name, prefix) {
			found[name] = document
		}
	}
	return found, nil
}

func (s settingStore) DeleteSetting(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
	return nil
}

// TestAlertsLeaveTheNode: a task in error, an agent that is gone and a stream that is lost are durable alerts, which reach a
// webhook: what begins and what ends once each, without the secret in the task's error.
func TestAlertsLeaveTheNode(t *testing.T) {
	t.Parallel()
	got := make(chan map[string]any, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var event struct{ Data map[string]any }
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		if err != nil || strings.Contains(string(body), "s3cret") {
			t.Errorf("%v: %s", err, body)
		}
		got <- event.Data
	}))
	t.Cleanup(receiver.Close)
	send, gone := duly.NewStep[order, string]("send", "post", duly.Attempts(1), duly.OnExhausted(duly.PolicyError)), duly.NewStep[order, string]("gone", "absent")
	pay, refuses := duly.NewStep[order, string]("pay", "till"), duly.NewStep[order, string]("refuses", "till")
	failing, waiting, stuck := duly.NewPlan("failing", 1, send), duly.NewPlan("waiting", 1, gone, send), duly.NewPlan("stuck", 1, pay, refuses)
	w := watches(t, func(n *Node) {
		store := withSettings(n.store)
		store.all[alerts.ChannelPrefix+"ops"] = fmt.Appendf(nil, `{"kind":"webhook","url":%q,"alerts":["task-error","undo-exhausted","agents","streams"]}`, receiver.URL)
		n.store = store
	}, func(a *duly.Agent) error {
		return errors.Join(send.Serve(a, func(context.Context, duly.Call[order]) (string, error) {
			return "", errors.New("no way to postgres://app:s3cret@db/duly")
		}, unpaid), pay.Serve(a, paid, func(context.Context, duly.Undo[order, string]) error {
			return duly.Refuse(errors.New("the money is gone"))
		}),
			refuses.Serve(a, refused, unpaid))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := errors.Join(failing.Apply(ctx, w.client), waiting.Apply(ctx, w.client), stuck.Apply(ctx, w.client)); err != nil {
		t.Fatal(err)
	}
	next := func(name, phase string) map[string]any {
		t.Helper()
		select {
		case data := <-got:
			if data["name"] != name || data["phase"] != phase {
				t.Fatalf("%v, want %s of %s", data, phase, name)
			}
			return data
		case <-time.After(time.Minute):
			t.Fatalf("no %s of %s", phase, name)
			return nil
		}
	}
	w.ends(t, ctx, failing, "f-1", duly.StateError)
	if more, _ := next("task-error", "once")["more"].(map[string]any); more["task"] != "f-1" || more["type"] != "failing" {
		t.Errorf("%v", more)
	}
	w.ends(t, ctx, stuck, "s-1", duly.StateError)
	if data := next("undo-exhausted", "once"); !strings.Contains(fmt.Sprint(data["error"]), "the undo of step pay gave up") {
		t.Errorf("%v", data)
	}
	if err := w.Alerts().Test(ctx, "ops"); err != nil {
		t.Error(err)
	}
	next("test", "once")
	if _, err := waiting.Submit(ctx, w.client, "w-1", order{}); err != nil {
		t.Fatal(err)
	}
	if data := next("agents", "begin"); data["key"] != "absent" {
		t.Errorf("%v", data)
	}
	// The stream that is lost is made again at once: its trouble begins and ends.
	js, err := w.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo("DULY_ALERTS")
	if err != nil || info.State.Msgs < 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := js.DeleteStream("DULY_EVENTS"); err != nil {
		t.Fatal(err)
	}
	if data := next("streams", "begin"); data["key"] != "DULY_EVENTS" {
		t.Errorf("%v", data)
	}
	next("streams", "end")
	// So is that of the alerts, and what is told meanwhile waits for it; delivery goes on.
	lost := time.Now()
	if err := js.DeleteStream("DULY_ALERTS"); err != nil {
		t.Fatal(err)
	}
	w.ends(t, ctx, failing, "f-2", duly.StateError)
	for told := map[string]bool{}; !told["task-error"]; {
		select {
		case data := <-got:
			told[fmt.Sprint(data["name"])] = true // the trouble of the stream itself may come before or after
		case <-time.After(time.Minute):
			t.Fatalf("told: %v", told)
		}
	}
	if raised, dropped := w.raiser.raised.Load(), w.raiser.dropped.Load(); raised < 5 || dropped > 5+int64(time.Since(lost)/time.Second) { // each try of task-error that found no stream
		t.Errorf("%d alerts raised, %d dropped", raised, dropped)
	}
}

// TestDeadlinesNear: a task is at risk when a tenth of its time is left, and not because its time is short.
func TestDeadlinesNear(t *testing.T) {
	const now = core.Instant(1_700_000_000_000_000)
	task := func(id string, whole, left time.Duration) core.View {
		return core.View{ID: id, Type: "order", CompleteBy: now.Add(left), CreatedAt: now.Add(left - whole)}
	}
	startsAt := func(v core.View, at core.Instant) core.View { v.StartAt = at; return v }
	queued := func(v core.View) core.View { v.PlanVersion = 2; return v }
	planOf := func(_ string, version int64) *core.Plan {
		return map[int64]*core.Plan{1: {CompleteBy: time.Minute}, 2: {CompleteBy: time.Minute, QueueFor: 10 * time.Minute}}[version]
	}
	for _, x := range []struct {
		tasks []core.View
		more  bool
		want  string
	}{
		{nil, false, ""},
		{[]core.View{task("a", 10*time.Second, 2*time.Second), task("b", time.Hour, 7*time.Minute), {ID: "none"}}, true, ""},
		{[]core.View{task("a", 10*time.Second, 2*time.Second), task("b", time.Hour, 6*time.Minute), task("c", time.Hour, time.Minute)}, false, "2 unfinished tasks have used nine tenths of their time; the first is b of type order"},
		{[]core.View{task("late", time.Minute, -time.Second)}, true, "≥ 1 unfinished tasks"},
		{[]core.View{startsAt(task("later", 10*time.Hour, 10*time.Minute), now.Add(-time.Minute))}, false, ""},
		{[]core.View{queued(task("waited", 10*time.Minute, 30*time.Second))}, false, ""},
		{[]core.View{queued(task("waited", 10*time.Minute, 5*time.Second))}, false, "1 unfinished task has"},
	} {
		err := deadlinesNear(now, x.tasks, x.more, planOf)
		if (err == nil) != (x.want == "") || err != nil && !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%v: %v, want %q", x.tasks, err, x.want)
		}
	}
}

// TestOperationsAreCounted: by state and by outcome, and a state that no operation is in is 0.
func TestOperationsAreCounted(t *testing.T) {
	var looked survey
	looked.operations.Store(&[]operate.Operation{{State: operate.OperationRunning, Tally: operate.Tally{Waiting: 5, Done: 2}}, {State: operate.OperationBraked, Tally: operate.Tally{Waiting: 1, FailedAgain: 3}}})
	text := measured(t, &looked)
	for series, want := range map[string]int{`duly_operations{state="braked"}`: 1, `duly_operations{state="paused"}`: 0, `duly_operations{state="running"}`: 1,
		`duly_operation_tasks{outcome="asked"}`: 0, `duly_operation_tasks{outcome="done"}`: 2, `duly_operation_tasks{outcome="failed_again"}`: 3, `duly_operation_tasks{outcome="skipped"}`: 0, `duly_operation_tasks{outcome="waiting"}`: 6} {
		if line := fmt.Sprintf("\n%s %d\n", series, want); !strings.Contains(text, line) {
			t.Errorf("no %s in %s", line, text)
		}
	}
}

// TestSurveyIsYoung: what was looked at while someone scraped is not shown to who scrapes long after.
func TestSurveyIsYoung(t *testing.T) {
	for ago, want := range map[time.Duration]bool{0: true, time.Minute: true, surveyKept + time.Second: false, time.Since(time.Unix(0, 0)): false} {
		var s survey
		if s.looked.Store(time.Now().Add(-ago).Unix()); s.young() != want {
			t.Errorf("%v after a look it is young: %v", ago, !want)
		}
	}
}

// watchingStore is a store with operations and tasks at risk.
type watchingStore struct {
	schema.Store
	ops  []operate.Operation
	risk []core.View
	err  error
}

// Operations implements operate.OperationStore.
func (s watchingStore) Operations(_ context.Context, states []operate.OperationState, _ int, _ string) ([]operate.Operation, string, error) {
	var found []operate.Operation
	for i := range s.ops {
		for _, state := range states {
			if s.ops[i].State == state {
				found = append(found, s.ops[i])
			}
		}
	}
	return found, "", s.err
}

// AtRisk implements operate.Reader.
func (s watchingStore) AtRisk(context.Context, core.Instant, int) ([]core.View, bool, error) {
	return s.risk, false, s.err
}

// TestOnlyTheLeaderLooks: deadlines and operations are looked at by the leader alone. Where none leads, or the store does not
// answer, no trouble begins or ends by that.
func TestOnlyTheLeaderLooks(t *testing.T) {
	w := watches(t, nil, func(a *duly.Agent) error { return duly.NewCheck[order, string]("c", "till").Serve(a, paid) })
	until(t, "it leads", w.leads)
	store := watchingStore{Store: w.store, ops: []operate.Operation{{ID: "op-1", State: operate.OperationBraked, Why: "too many of wave 3 failed alike"}, {ID: "op-2", State: operate.OperationRunning}},
		risk: []core.View{{ID: "late", Type: "order", CreatedAt: 1, CompleteBy: 2}}}
	leader := &Node{store: store, clock: w.clock, plans: w.plans}
	leader.sup.Store(w.sup.Load())
	if found := leader.probeOperations(t.Context()); len(found) != 1 || found[0].Key != "op-1" || found[0].Err.Error() != "too many of wave 3 failed alike" {
		t.Errorf("%+v", found)
	}
	if found := leader.probeDeadlines(t.Context()); len(found) != 1 || found[0].Err == nil || !strings.Contains(found[0].Err.Error(), "late") {
		t.Errorf("%+v", found)
	}
	other := &Node{store: store, clock: w.clock, conn: w.conn}
	if found := append(other.probeOperations(t.Context()), other.probeDeadlines(t.Context())...); len(found) != 0 {
		t.Errorf("one that does not lead: %+v", found)
	}
	unknown := func(at *Node) bool {
		found := append(at.probeOperations(t.Context()), at.probeDeadlines(t.Context())...)
		return len(found) == 2 && found[0].Err == ground.ErrUnknown && found[1].Err == ground.ErrUnknown
	}
	other.cfg.NodeName = w.cfg.NodeName // as one whose own lease is about to run out
	if !unknown(other) {
		t.Error("where no other node leads, the troubles are said to be over")
	}
	store.err = errors.New("away")
	leader.store = store
	if !unknown(leader) {
		t.Error("where the database is away, the troubles are said to be over")
	}
}

// TestAlertsSurviveAKill: a supervisor is killed while a channel does not take an alert. The stream gives the alert to the
// next one, which delivers it by the same id, and once.
func TestAlertsSurviveAKill(t *testing.T) {
	t.Parallel()
	server := startNATS(t)
	var up atomic.Bool
	got := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		got <- r.Header.Get("webhook-id")
	}))
	t.Cleanup(receiver.Close)
	store := withSettings(nil)
	store.all[alerts.ChannelPrefix+"ops"] = fmt.Appendf(nil, `{"kind":"webhook","url":%q}`, receiver.URL)
	// life is a supervisor; kill ends it as kill -9 does: nothing is acknowledged, nothing said.
	life := func() (c *natsbus.Conn, kill func()) {
		c, err := natsbus.Dial(t.Context(), natsbus.Options{URL: server.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			_, err = c.Setup(t.Context(), natsbus.StreamConfig{Partitions: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		sender, err := alerts.New(alerts.Config{Store: store, Source: alertSource{c}, Leads: func() bool { return true }, Namespace: "duly", AllowLocal: true, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- sender.Run(ctx) }()
		return c, sync.OnceFunc(func() {
			c.NATS().Close()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			c.Close()
		})
	}
	next := func() string {
		t.Helper()
		select {
		case id := <-got:
			return id
		case <-time.After(patience):
			t.Fatal("nothing is delivered")
			return ""
		}
	}
	first, kill := life()
	defer kill()
	if err := first.PublishAlert(t.Context(), core.Alert{ID: "a-1", Name: "task-error", Node: "n1", Phase: core.AlertOnce, Severity: core.SeverityCritical, Text: "text", At: 1}); err != nil {
		t.Fatal(err)
	}
	if id := next(); id != "a-1" {
		t.Fatalf("id %q", id)
	}
	kill()
	for len(got) > 0 { // its last tries
		<-got
	}
	up.Store(true)
	second, end := life()
	defer end()
	if id := next(); id != "a-1" {
		t.Errorf("id %q", id)
	}
	if err := second.PublishAlert(t.Context(), core.Alert{ID: "a-2", Name: "task-error", Node: "n1", Phase: core.AlertOnce, Severity: core.SeverityCritical, Text: "text", At: 1}); err != nil {
		t.Fatal(err)
	}
	if id := next(); id != "a-2" {
		t.Errorf("id %q, want the next alert: the first was delivered", id)
	}
}
