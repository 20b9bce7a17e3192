package dulytx_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"duly.dev/duly"
	"duly.dev/duly/dev"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/schema/postgres"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(userEnv); what != "" {
		if err := user(context.Background(), what, os.Getenv("DATABASE_URL")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(pgtestdb.Stopping{M: m})
}

// patience is how long a test waits for what must come.
const patience = time.Minute

// world is a user's database with an outbox, and a system that relays it once it has begun: by two relays, as on two
// nodes.
type world struct {
	t      *testing.T
	url    string // of the user's database
	pool   *pgxpool.Pool
	sql    *sql.DB
	outbox *postgres.Outbox
	sys    *dev.System
	client *duly.Client
	log    bytes.Buffer
	logMu  sync.Mutex

	mu   sync.Mutex
	done map[string]int // times that a task's step took effect
}

func (w *world) Write(line []byte) (int, error) {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	return w.log.Write(line)
}

// newWorld is a world whose system has not begun.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: pgtestdb.URL(t), done: map[string]int{}}
	var err error
	if w.pool, err = pgxpool.New(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	w.sql = stdlib.OpenDBFromPool(w.pool)
	t.Cleanup(func() {
		if err := w.sql.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.outbox, err = postgres.OpenOutbox(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.outbox.Close)
	if err := w.outbox.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.exec(`CREATE TABLE orders (id TEXT PRIMARY KEY, cents INT8 NOT NULL)`)
	return w
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), query, args...); err != nil {
		w.t.Fatal(err)
	}
}

// begin starts the system with the plan applied and its agent at work.
func (w *world) begin() {
	w.t.Helper()
	w.beginWithout()
	if err := Buy.Apply(w.t.Context(), w.client); err != nil {
		w.t.Fatal(err)
	}
}

// beginWithout is begin without the plan.
func (w *world) beginWithout() {
	w.t.Helper()
	cfg := dev.Config("one", 4)
	cfg.Outbox, cfg.OutboxInterval = []string{"shop=" + w.url, "again=" + w.url}, 20*time.Millisecond
	cfg.ScanInterval, cfg.Lease = 100*time.Millisecond, 2*time.Second
	var err error
	w.sys, err = dev.Start(w.t.Context(), dev.Options{Dir: w.t.TempDir(), Config: cfg, Log: slog.New(slog.NewTextHandler(w, nil))})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.sys.Run(ctx); err != nil {
			w.t.Errorf("system: %v", err)
		}
	})
	nc, err := nats.Connect(w.sys.NATSURL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cancel()
		wg.Wait()
		nc.Close()
		if err := w.sys.Close(); err != nil {
			w.t.Error(err)
		}
		if w.t.Failed() {
			w.logMu.Lock()
			defer w.logMu.Unlock()
			w.t.Logf("log:\n%s", w.log.String())
		}
	})
	if w.client, err = duly.NewClient(nc); err != nil {
		w.t.Fatal(err)
	}
	agent, err := duly.NewAgent(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := Charge.Serve(agent, w.charge, w.refund); err != nil {
		w.t.Fatal(err)
	}
	wg.Go(func() {
		if err := agent.Run(ctx); err != nil {
			w.t.Errorf("agent: %v", err)
		}
	})
}

func (w *world) charge(_ context.Context, call duly.Call[Order]) (Payment, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[call.Task]++
	return Payment{call.Key}, nil
}

func (w *world) refund(context.Context, duly.Undo[Order, Payment]) error { return nil }

// effects is how often the step of a task took effect.
func (w *world) effects(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done[id]
}

// await waits until something holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// processed waits for the end of a task.
func (w *world) processed(id string) {
	w.t.Helper()
	w.await("task "+id+" is processed", func() bool {
		task, err := w.client.Get(w.t.Context(), "order", id)
		return err == nil && task.State == duly.StateProcessed
	})
}

// empty waits until no row waits.
func (w *world) empty() {
	w.t.Helper()
	w.await("the outbox is empty", func() bool {
		s, err := w.outbox.Standing(w.t.Context())
		return err == nil && s.Waiting == 0
	})
}

// never is sure that there is no such task, once what was written before has been relayed.
func (w *world) never(id string) {
	w.t.Helper()
	if _, err := w.client.Get(w.t.Context(), "order", id); !errors.Is(err, duly.ErrNotFound) {
		w.t.Errorf("task %s: %v, want none", id, err)
	}
	if n := w.effects(id); n != 0 {
		w.t.Errorf("task %s took effect %d times", id, n)
	}
}

// outboxInTrouble reports whether the node's metrics say that an outbox is in trouble.
func (w *world) outboxInTrouble() bool {
	page := httptest.NewRecorder()
	telemetry.Handler(w.sys.Node, telemetry.Build{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, telemetry.PathMetrics, nil))
	return strings.Contains(page.Body.String(), `duly_condition_trouble{condition="outbox"} 1`)
}
