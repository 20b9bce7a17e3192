package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/agents/pgledger"
	"duly.dev/duly/internal/conformance"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/pgtestdb"
)

type (
	canaryOrder struct {
		Cents int
		Ship  bool // false: the step after the charge refuses, and the charge is undone
	}
	canaryPayment struct{ Version string }
)

var (
	canaryCharge = duly.NewStep[canaryOrder, canaryPayment]("charge", "payment.charge", duly.CompleteBy(2*time.Second), duly.Attempts(50),
		duly.Backoff(5*time.Millisecond, 50*time.Millisecond))
	canaryShip = duly.NewCheck[canaryOrder, bool]("ship", "parcel.ship")
	canaryPlan = duly.NewPlan("canary", 1, canaryCharge, canaryShip)
)

// canaryWorld is a node, a NATS whose mappings change while it runs, and a service in two versions over one database.
type canaryWorld struct {
	t      *testing.T
	url    string
	watch  string // its monitoring
	dir    string // of its configuration
	reload func() // reloads it; nil: the server has not started
	pool   *pgxpool.Pool
	client *duly.Client
	failed atomic.Int64 // dos that the canary failed
	sick   atomic.Bool  // the canary fails, every other time after its effect
	calls  sync.Map     // dos that had an effect, by version: *atomic.Int64
	number int          // of tasks
}

// mapped writes the server's configuration with the mappings that `duly nats-mappings` prints; no arguments: without any.
func (w *canaryWorld) mapped(args ...string) {
	w.t.Helper()
	mappings := ""
	if len(args) > 0 {
		code, out, errs := command(w.t, "", append([]string{"nats-mappings"}, args...)...)
		if code != 0 {
			w.t.Fatalf("nats-mappings %q: %d %s", args, code, errs)
		}
		mappings = out
	}
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nhttp: %q\nmax_payload: 8MB\njetstream { store_dir: %q }\ninclude \"duly-mappings.conf\"\n",
		strings.TrimPrefix(w.watch, "http://"), filepath.Join(w.dir, "store"))
	for name, data := range map[string]string{"nats.conf": text, "duly-mappings.conf": mappings} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(data), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.reload != nil {
		w.reload()
	}
}

// monitored asks the server's monitoring.
func (w *canaryWorld) monitored(path string, into any) {
	w.t.Helper()
	resp, err := http.Get(w.watch + path)
	if err != nil {
		w.t.Errorf("%s: %v", path, err)
		return
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		w.t.Errorf("%s: %v", path, err)
	}
}

func newCanaryWorld(t *testing.T) *canaryWorld {
	t.Helper()
	w := &canaryWorld{t: t, dir: t.TempDir(), watch: "http://" + freeport.Addr(freeport.Of(t))}
	w.mapped()
	var addr string
	addr, w.reload = natsApart(t, filepath.Join(w.dir, "nats.conf"))
	w.url = "nats://" + addr
	var err error
	if w.pool, err = pgxpool.New(t.Context(), pgtestdb.URL(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	// No key is unique: a second effect of a task would be seen.
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE payments (task TEXT, done_by TEXT, undone_by TEXT)`); err != nil {
		t.Fatal(err)
	}
	db := migrated(t)
	start(t, "serve", "--roles", "ingest,scheduler,supervisor", "--nats-url", w.url, "--database-url", db,
		"--http-addr", "127.0.0.1:0", "--partitions", "4", "--drain", "2s").ready()
	nc := w.connect()
	if w.client, err = duly.NewClient(nc); err != nil {
		t.Fatal(err)
	}
	if err := canaryPlan.Apply(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	w.run(w.ship())
	return w
}

func (w *canaryWorld) connect() *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

func (w *canaryWorld) ship() *duly.Agent {
	w.t.Helper()
	agent, err := duly.NewAgent(w.connect())
	if err != nil {
		w.t.Fatal(err)
	}
	err = canaryShip.Serve(agent, func(_ context.Context, call duly.Call[canaryOrder]) (bool, error) {
		if !call.Input.Ship {
			return false, duly.Refuse(errors.New("no lorry"))
		}
		return true, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return agent
}

// charge is an instance of a version of the service.
func (w *canaryWorld) charge(version string, options ...duly.AgentOption) *duly.Agent {
	w.t.Helper()
	ledger, err := pgledger.New(w.pool, pgledger.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := ledger.Setup(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	agent, err := duly.NewAgent(w.connect(), append(options, duly.WithLedger(ledger), duly.Instance(version), duly.Retries(0), duly.Log(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		w.t.Fatal(err)
	}
	count, _ := w.calls.LoadOrStore(version, new(atomic.Int64))
	err = canaryCharge.Serve(agent,
		func(ctx context.Context, call duly.Call[canaryOrder]) (canaryPayment, error) {
			if version == "canary" && w.sick.Load() {
				w.failed.Add(1)
				return canaryPayment{}, errors.New("the new version is wrong")
			}
			_, err := ledger.Tx(ctx).Exec(ctx, `INSERT INTO payments (task, done_by) VALUES ($1, $2)`, call.Task, version)
			if err == nil {
				count.(*atomic.Int64).Add(1)
			}
			return canaryPayment{version}, err
		},
		func(ctx context.Context, undo duly.Undo[canaryOrder, canaryPayment]) error {
			_, err := ledger.Tx(ctx).Exec(ctx, `UPDATE payments SET undone_by = $2 WHERE task = $1`, undo.Task, version)
			return err
		})
	if err != nil {
		w.t.Fatal(err)
	}
	return agent
}

// run runs an agent until stop is called, or the test ends.
func (w *canaryWorld) run(agent *duly.Agent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// did is how many effects a version has had.
func (w *canaryWorld) did(version string) int64 {
	count, ok := w.calls.Load(version)
	if !ok {
		return 0
	}
	return count.(*atomic.Int64).Load()
}

// submit hands tasks in, every fourth of which is undone in the end; meanwhile is called when half of them are stored.
func (w *canaryWorld) submit(n int, meanwhile func()) (of []string) {
	w.t.Helper()
	room := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i := range n {
		w.number++
		id := fmt.Sprintf("order-%d", w.number)
		of = append(of, id)
		room <- struct{}{}
		if i == n/2 && meanwhile != nil {
			meanwhile()
		}
		wg.Go(func() {
			defer func() { <-room }()
			if _, err := canaryPlan.Submit(w.t.Context(), w.client, id, canaryOrder{1999, i%4 != 0}); err != nil {
				w.t.Error(err)
			}
		})
	}
	wg.Wait()
	return of
}

// ended waits for tasks to end, and wants each to have its effect once, or once and undone.
func (w *canaryWorld) ended(of []string) {
	w.t.Helper()
	for i, id := range of {
		want := duly.StateProcessed
		if i%4 == 0 {
			want = duly.StateUndone
		}
		var task duly.Task
		until(w.t, "task "+id+" ends", func() bool {
			var err error
			task, err = w.client.Get(w.t.Context(), "canary", id)
			return err == nil && task.State.Ended()
		})
		if task.State != want {
			w.t.Errorf("task %s is %s, want %s: %s", id, task.State, want, task.Reason)
		}
		var done, undone int
		err := w.pool.QueryRow(w.t.Context(), `SELECT count(*), count(undone_by) FROM payments WHERE task = $1`, id).Scan(&done, &undone)
		if err != nil || done != 1 || (undone == 1) != (want == duly.StateUndone) {
			w.t.Errorf("task %s, %s, has %d payments of which %d are undone, %v", id, want, done, undone, err)
		}
	}
}

// TestCanary: mappings of NATS give a canary its share of an agent's commands, in batches and one by one. Weights change while
// tasks run, the canary fails, vanishes and is taken out: no task is lost, none has its effect twice, and either version
// undoes what the other did.
func TestCanary(t *testing.T) {
	for name, options := range map[string][]duly.AgentOption{"batches": nil, "single": {duly.SingleCommands()}} {
		t.Run(name, func(t *testing.T) {
			w := newCanaryWorld(t)
			batches := w.heard("duly.batch.do.payment.charge-canary")
			for range 2 {
				w.run(w.charge("stable", options...))
			}
			stop := w.run(w.charge("canary", append(options, duly.Variant("canary"))...))

			w.ended(w.submit(100, nil))
			if n := w.did("canary"); n != 0 {
				t.Errorf("the canary had %d effects without a mapping", n)
			}
			w.mapped("payment.charge=canary:0")
			w.ended(w.submit(100, func() { w.mapped("payment.charge=canary:30") }))
			before := w.did("canary")
			const tasks = 400
			w.ended(w.submit(tasks, nil))
			// Of single commands 30 ± 9 %, four standard deviations; a batch goes as one.
			low, high := int64(21*tasks/100), int64(39*tasks/100)
			if name == "batches" {
				low, high = 1, 90*tasks/100
			}
			if n := w.did("canary") - before; n < low || n > high {
				t.Errorf("the canary had %d of %d effects at a weight of 30%%, want %d to %d", n, tasks, low, high)
			}
			if n := batches.Load(); (n > 0) != (name == "batches") {
				t.Errorf("%d batches came to the canary", n)
			}

			w.sick.Store(true)
			w.ended(w.submit(200, func() {
				until(t, "the canary fails", func() bool { return w.failed.Load() > 0 })
				w.mapped("payment.charge=canary:0")
			}))
			w.sick.Store(false)
			w.mapped("payment.charge=canary:50")
			w.ended(w.submit(200, func() { stop() })) // it vanishes with its mapping in place

			for _, pair := range [][2]string{{"stable", "canary"}, {"canary", "stable"}} {
				var n int
				err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM payments WHERE done_by = $1 AND undone_by = $2`, pair[0], pair[1]).Scan(&n)
				if err != nil || n == 0 {
					t.Errorf("%d payments of %s were undone by %s, %v", n, pair[0], pair[1], err)
				}
			}
		})
	}
}

// heard counts the messages of a subject.
func (w *canaryWorld) heard(subject string) *atomic.Int64 {
	w.t.Helper()
	var n atomic.Int64
	nc := w.connect()
	if _, err := nc.Subscribe(subject, func(*nats.Msg) { n.Add(1) }); err != nil {
		w.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		w.t.Fatal(err)
	}
	return &n
}

// TestCanaryConformance: with half of the commands mapped to a canary the two versions together hold the rules of the
// protocol, as each command may go to either.
func TestCanaryConformance(t *testing.T) {
	w := newCanaryWorld(t)
	w.run(w.charge("stable"))
	w.run(w.charge("canary", duly.Variant("canary")))
	w.mapped("payment.charge=canary:50")
	nc := w.connect()
	until(t, "both listen", func() bool {
		return w.listeners("duly.do.payment.charge") > 0 && w.listeners("duly.do.payment.charge-canary") > 0
	})
	report, err := conformance.Run(t.Context(), nc, conformance.Options{
		Agent: "payment.charge", Step: "charge", Type: "canary", Input: []byte(`{"Cents":1999,"Ship":true}`), Probes: true, Calls: 200, Silence: 300 * time.Millisecond, Slack: time.Second,
		Effects: func(ctx context.Context, key string) (n int, err error) {
			task, _, _ := strings.Cut(key, "/")
			err = w.pool.QueryRow(ctx, `SELECT count(*) FROM payments WHERE task = $1 AND undone_by IS NULL`, task).Scan(&n)
			return n, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.State == conformance.Broken {
			t.Errorf("%s, %s: %s: %s\n%+v", f.Rule, f.Check, f.State, f.Why, f.Evidence)
		}
	}
	if report.Left > 0 || w.did("stable") == 0 || w.did("canary") == 0 {
		t.Errorf("%d effects are left; the stable version had %d, the canary %d", report.Left, w.did("stable"), w.did("canary"))
	}
}

func (w *canaryWorld) listeners(subject string) int {
	w.t.Helper()
	var is struct {
		Total int `json:"total"`
	}
	w.monitored("/subsz?subs=1&test="+url.QueryEscape(subject), &is)
	return is.Total
}
