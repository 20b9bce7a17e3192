package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly"
)

// counter is a shop's services, which remember what was done and undone by key, and its plan.
type counter struct {
	plan   *duly.Plan[string]
	client *duly.Client

	mu           sync.Mutex
	done, undone map[string]int
	accepted     []string
}

// newCounter serves two steps, each of which takes some time and answers with its task.
func newCounter(t *testing.T, g *ground, took time.Duration) *counter {
	t.Helper()
	c := &counter{done: map[string]int{}, undone: map[string]int{}}
	reserve, pay := duly.NewStep[string, string]("reserve", "counter.reserve"), duly.NewStep[string, string]("pay", "counter.pay")
	c.plan = duly.NewPlan("counter", 1, reserve, pay).With(duly.Grace(50 * time.Millisecond))
	nc, _ := g.jetStream(t)
	agent, err := duly.NewAgent(nc, duly.WithLedger(duly.NewMemoryLedger(time.Hour, 0)), duly.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []*duly.Step[string, string]{reserve, pay} {
		if err := step.Serve(agent, func(ctx context.Context, call duly.Call[string]) (string, error) {
			work := time.NewTimer(time.Duration(float64(took) * rand.Float64()))
			select {
			case <-work.C:
			case <-ctx.Done():
				return "", ctx.Err()
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.done[call.Key]++
			return call.Input, nil
		}, func(_ context.Context, undo duly.Undo[string, string]) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.undone[undo.Key]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	background(t, agent.Run)
	if c.client, err = duly.NewClient(nc); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.plan.Apply(ctx, c.client); err != nil {
		t.Fatal(err)
	}
	return c
}

// submit hands n tasks in, all at once.
func (c *counter) submit(t *testing.T, name string, n int, options ...duly.SubmitOption) (ids []string) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		id := fmt.Sprint(name, "-", i)
		ids = append(ids, id)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := c.plan.Submit(ctx, c.client, id, id, options...); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	wg.Wait()
	c.accepted = append(c.accepted, ids...)
	return ids
}

// ended waits until all of them have ended, and returns them.
func (c *counter) ended(t *testing.T, ids []string) map[string]duly.Task {
	t.Helper()
	all := map[string]duly.Task{}
	for _, id := range ids {
		until(t, id+" ends", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			task, err := c.client.Get(ctx, "counter", id)
			all[id] = task
			return err == nil && task.State.Ended()
		})
	}
	return all
}

// books checks that what stands is what the tasks' ends say, and that no task has another's results.
func (c *counter) books(t *testing.T) map[duly.State]int {
	t.Helper()
	states := map[duly.State]int{}
	tasks := c.ended(t, c.accepted)
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, task := range tasks {
		states[task.State]++
		for _, step := range task.Steps {
			key := id + "/" + step.Name + "/0"
			stands := c.done[key] > 0 && c.undone[key] == 0
			switch {
			case c.done[key] > 1 || c.undone[key] > 1:
				t.Errorf("%s: done %d times, undone %d times", key, c.done[key], c.undone[key])
			case task.State == duly.StateProcessed && !stands:
				t.Errorf("%s: the task is processed, and the step was done %d times and undone %d times", key, c.done[key], c.undone[key])
			case task.State == duly.StateUndone && stands:
				t.Errorf("%s: the task is undone, and its effect stands", key)
			case task.State != duly.StateProcessed && task.State != duly.StateUndone:
				t.Errorf("%s is %s: %s", id, task.State, task.Reason)
			}
			var of string
			if len(step.Result) > 0 && (json.Unmarshal(step.Result, &of) != nil || of != id) {
				t.Errorf("%s has the result %s of another", key, step.Result)
			}
		}
	}
	return states
}

// sql runs statements on a database of the ground's server.
func (g *ground) sql(t *testing.T, database string, statements ...string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), g.pg.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	for _, statement := range statements {
		if _, err := db.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// alone keeps everybody out of the node's database while statements run on the server: a copy needs that.
func (g *ground) alone(t *testing.T, statements ...string) {
	t.Helper()
	all := append([]string{"ALTER DATABASE d1 ALLOW_CONNECTIONS false", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'd1'"}, statements...)
	until(t, "the sessions end", func() bool { return g.trySQL(t, all) })
}

// trySQL reports whether all statements were run; a session that has not ended yet stands in the way of the last ones.
func (g *ground) trySQL(t *testing.T, statements []string) bool {
	t.Helper()
	db, err := pgx.Connect(t.Context(), g.pg.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	for i, statement := range statements {
		if _, err := db.Exec(t.Context(), statement); err != nil {
			if i == 2 && strings.Contains(err.Error(), "being accessed by other users") {
				return false
			}
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return true
}

// keep copies the database as it is now, as a standby or a backup has it.
func (g *ground) keep(t *testing.T) {
	t.Helper()
	g.alone(t, "CREATE DATABASE kept TEMPLATE d1", "ALTER DATABASE d1 ALLOW_CONNECTIONS true")
}

// goBack puts the copy in the database's place: what was committed since is lost, and nodes stay up.
func (g *ground) goBack(t *testing.T) {
	t.Helper()
	g.alone(t, "ALTER DATABASE d1 RENAME TO gone", "ALTER DATABASE kept RENAME TO d1")
}

// TestDatabaseThatWentBack: the database is one of some seconds ago, while a node runs and answers are under way, as after
// a failover to a standby that was behind, or a restore. What was accepted since runs again by the same keys, or, past its
// deadline, is undone by key; no reply to a command of the lost life counts for another task; and an operator is told.
//
// covers: A1, A3
func TestDatabaseThatWentBack(t *testing.T) {
	t.Parallel()
	g := newOwnGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	c := newCounter(t, g, 400*time.Millisecond)
	c.ended(t, c.submit(t, "before", 40))
	g.keep(t)
	late := c.submit(t, "late", 40, duly.Within(10*time.Second))
	for id, task := range c.ended(t, append(c.submit(t, "lost", 40), late...)) {
		if task.State != duly.StateProcessed {
			t.Errorf("%s is %s: %s", id, task.State, task.Reason)
		}
	}
	until(t, "their deadline is over", func() bool {
		last, err := c.client.Get(t.Context(), "counter", late[len(late)-1])
		return err == nil && time.Now().After(last.CompleteBy.Add(100*time.Millisecond))
	})
	c.submit(t, "under-way", 40)
	g.goBack(t)
	c.submit(t, "after", 40)
	states := c.books(t)
	t.Log(states)
	if states[duly.StateUndone] != len(late) {
		t.Errorf("%v: want %d undone, those past their deadline", states, len(late))
	}
	c.mu.Lock()
	for _, id := range late {
		if c.undone[id+"/pay/0"] != 1 || c.undone[id+"/reserve/0"] != 1 {
			t.Errorf("%s ended as undone and its steps were undone %d and %d times", id, c.undone[id+"/reserve/0"], c.undone[id+"/pay/0"])
		}
	}
	c.mu.Unlock()
	if !strings.Contains(n.log(), "name=database-went-back") {
		t.Error("it was not told")
	}
	until(t, "ready", func() bool { code, _ := readiness(t, at); return code == 200 })
	n.calm()
}

// TestEpochsBelowTheConsumers: a restored database knows only old epochs, and the streams have consumers of higher ones:
// the next owner goes above all that it finds, at once.
//
// covers: A4
func TestEpochsBelowTheConsumers(t *testing.T) {
	t.Parallel()
	g := newOwnGround(t)
	n := g.serve(t, "n")
	n.ready()
	c := newCounter(t, g, 10*time.Millisecond)
	c.ended(t, c.submit(t, "before", 20))
	n.term()
	g.keep(t)
	g.sql(t, "d1", "UPDATE partitions SET epoch = epoch + 150")
	n = mortal(t, g.args("n")...)
	n.ready()
	c.ended(t, c.submit(t, "lost", 20))
	n.kill()
	g.goBack(t)
	n = g.serve(t, "n")
	n.ready()
	after := c.submit(t, "after", 20)
	soon(t, 15*time.Second, "the partitions are served", func() bool { c.ended(t, after); return true })
	if states := c.books(t); states[duly.StateProcessed] != 60 {
		t.Errorf("%v, want 60 processed", states)
	}
	g.sql(t, "d1", "DO $$ BEGIN IF EXISTS (SELECT 1 FROM partitions WHERE epoch <= 150) THEN RAISE 'an epoch is not above those of the consumers'; END IF; END $$")
}
