package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/pgtestdb"
)

// count is what a query counts in the node's database.
func (g *ground) count(t *testing.T, query string) (n int) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), g.db)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	if err := db.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAbsentAgentIsFewRows: tasks whose step no agent serves write a row when they begin to wait and one when that ends,
// however often they were tried meanwhile.
//
// covers: B11
func TestAbsentAgentIsFewRows(t *testing.T) {
	t.Parallel()
	const tasks = 20
	g := newGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	g.idle(t)
	for i := range tasks {
		if code := put(t, at, fmt.Sprint("t", i)); code != 202 {
			t.Fatalf("submit: %d", code)
		}
	}
	const rows = "SELECT count(*) FROM journal"
	until(t, "they wait", func() bool { return g.count(t, rows) >= 2*tasks })
	since := time.Now()
	until(t, "they have been tried again and again", func() bool { return time.Since(since) > 4*time.Second })
	if n := g.count(t, rows); n != 2*tasks {
		t.Errorf("%d rows of %d tasks that wait, want 2 each", n, tasks)
	}
	nc, _ := g.jetStream(t)
	if _, err := nc.QueueSubscribe("duly.do.absent", "q", func(m *nats.Msg) { _ = m.Respond([]byte("1")) }); err != nil {
		t.Fatal(err)
	}
	until(t, "they end", func() bool { return g.count(t, "SELECT count(*) FROM tasks WHERE state = 'processed'") == tasks })
	if n := g.count(t, rows); n > 4*tasks {
		t.Errorf("%d rows of %d tasks, want 4 each at most", n, tasks)
	}
}

// TestServeWantsItsTables: a node does not serve tables of another version than its own.
//
// covers: C7
func TestServeWantsItsTables(t *testing.T) {
	t.Parallel()
	code, out, errs := command(t, "", "serve", "--database-url", pgtestdb.URL(t), "--nats-url", "nats://127.0.0.1:1", "--http-addr", "127.0.0.1:0")
	if code == 0 || out != "" {
		t.Errorf("exit %d %s", code, out)
	}
	if want := "run `duly migrate`"; !strings.Contains(errs, want) {
		t.Errorf("%s, want %s", errs, want)
	}
}
