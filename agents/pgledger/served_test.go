package pgledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/agents/pgledger"
	"duly.dev/duly/dev"
)

// TestServed: tasks of a whole system charge once, or not at all where a later step refuses, though the connections of their
// agent to its database end again and again.
//
// covers: S40, inv7
func TestServed(t *testing.T) {
	t.Parallel()
	url, pool := database(t)
	looking, err := pgxpool.New(t.Context(), url) // the agent's may hold one that was cut off unnoticed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(looking.Close)
	count := payments(t, looking)
	ledger := withPgx(t, pool, pgledger.Options{})
	sys, err := dev.Start(t.Context(), dev.Options{Dir: t.TempDir(), Config: dev.Config("one", 4), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(sys.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(nc, duly.WithLedger(ledger), duly.Running(3), duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	ship := duly.NewCheck[Order, Payment]("ship", "parcel.ship")
	buy := duly.NewPlan("order", 1, Charge, ship)
	refused := errors.New("no such address")
	err = errors.Join(
		Charge.Serve(agent, func(ctx context.Context, call duly.Call[Order]) (p Payment, err error) {
			err = ledger.Tx(ctx).QueryRow(ctx, `INSERT INTO payments (key, cents) VALUES ($1, $2) RETURNING number`, call.Key, call.Input.Cents).Scan(&p.Number)
			return p, err
		}, func(ctx context.Context, undo duly.Undo[Order, Payment]) error {
			_, err := ledger.Tx(ctx).Exec(ctx, `DELETE FROM payments WHERE number = $1`, undo.Result.Number)
			return err
		}),
		ship.Serve(agent, func(_ context.Context, call duly.Call[Order]) (Payment, error) {
			if call.Input.Cents%2 == 1 {
				return Payment{}, duly.Refuse(refused)
			}
			return Payment{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := sys.Run(ctx); err != nil {
			t.Errorf("system: %v", err)
		}
	})
	all.Go(func() {
		if err := agent.Run(ctx); err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
		nc.Close()
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := duly.NewClient(nc)
	if err == nil {
		err = buy.Apply(t.Context(), client)
	}
	if err != nil {
		t.Fatal(err)
	}
	const tasks = 100
	for i := range tasks {
		if _, err := buy.Submit(t.Context(), client, fmt.Sprint("o-", i), Order{Cents: i}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			cutOff(t, looking)
		}
	}
	for i := range tasks {
		want, standing := duly.StateProcessed, 1
		if i%2 == 1 {
			want, standing = duly.StateUndone, 0
		}
		id := fmt.Sprint("o-", i)
		ended(t, client, id, want)
		if n := count(id + "/charge/0"); n != standing {
			t.Errorf("task %s: %d payments, want %d", id, n, standing)
		}
	}
}

// cutOff ends the connections of its pool's database, its own apart, that are in a transaction. A connection that is cut off as
// its transaction ends stays in its own pool until it is used, so by is another pool.
func cutOff(t *testing.T, by *pgxpool.Pool) {
	t.Helper()
	if _, err := by.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`); err != nil {
		t.Fatal(err)
	}
}

// ended waits for the end of a task.
func ended(t *testing.T, client *duly.Client, id string, want duly.State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		task, err := client.Get(ctx, "order", id)
		if err == nil && task.State == want {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("task %s: %s %v, want %s", id, task.State, err, want)
		}
	}
}
