package dulytx_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly"
	"duly.dev/duly/dulytx"
	"duly.dev/duly/internal/pgtestdb"
)

// userEnv says to the test binary that it is a user's process, and where it is killed.
const userEnv = "DULYTX_USER"

// Where a user's process is killed.
const (
	beforeCommit = "before-commit"
	afterCommit  = "after-commit"
)

// user is a user's process: it stores an order and submits its task in one transaction, and is killed on the way.
func user(ctx context.Context, dies, database string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	order := Order{dies, 5}
	if _, err := tx.Exec(ctx, `INSERT INTO orders (id, cents) VALUES ($1, $2)`, order.ID, order.Cents); err != nil {
		return err
	}
	if err := dulytx.Submit(ctx, tx, Buy, order.ID, order); err != nil {
		return err
	}
	if dies == afterCommit {
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		return err
	}
	<-ctx.Done() // the signal may take its time
	return nil
}

// TestUserIsKilled: a process that is killed before its commit leaves neither order nor task, one that is killed after it
// both.
//
// covers: S18, G6
func TestUserIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin()
	for _, dies := range []string{beforeCommit, afterCommit} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), userEnv+"="+dies, "DATABASE_URL="+w.url)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: %v, want that it is killed: %s", dies, err, out)
		}
	}
	w.processed(afterCommit)
	w.empty()
	w.never(beforeCommit)
	rows, err := w.pool.Query(t.Context(), `SELECT id FROM orders`)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || strings.Join(orders, " ") != afterCommit {
		t.Errorf("orders %v %v, want %s", orders, err, afterCommit)
	}
	if n := w.effects(afterCommit); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

// TestRelayIsKilled: relays whose connections end again and again between the submission and the removal of the rows lose
// no task and make none twice, although two of them relay the same outbox.
func TestRelayIsKilled(t *testing.T) {
	t.Parallel()
	const tasks, least = 300, 5
	w := newWorld(t)
	w.begin()
	var want []string
	kills := 0
	for i := range tasks {
		id := fmt.Sprintf("o-%03d", i)
		want = append(want, id)
		if err := placeOrder(t.Context(), w.pool, Order{id, i}); err != nil {
			t.Fatal(err)
		}
		kills += w.killRelays()
	}
	// Until enough of them were hit: a relay whose rows are locked is between submission and removal.
	for extra := 0; kills < least; extra++ {
		id := fmt.Sprintf("e-%05d", extra)
		want = append(want, id)
		if err := placeOrder(t.Context(), w.pool, Order{id, extra}); err != nil {
			t.Fatal(err)
		}
		w.await("a relay has its row, or it is gone", func() bool {
			n := w.killRelays()
			kills += n
			s, err := w.outbox.Standing(t.Context())
			return n > 0 || err == nil && s.Waiting == 0
		})
	}
	for _, id := range want {
		w.processed(id)
	}
	w.empty()
	for _, id := range want {
		if n := w.effects(id); n != 1 {
			t.Errorf("%s took effect %d times", id, n)
		}
	}
	if s, err := w.outbox.Standing(t.Context()); err != nil || s.Refused != 0 {
		t.Errorf("%+v %v, want nothing refused", s, err)
	}
}

// killRelays ends the connections of relays that hold rows, and returns how many there were.
func (w *world) killRelays() (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE '%SKIP LOCKED%' AND pid <> pg_backend_pid()`).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestDatabaseIsAway: what was committed before the user's database went away is relayed when it is back.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin()
	if err := placeOrder(t.Context(), w.pool, Order{"o-1", 1}); err != nil {
		t.Fatal(err)
	}
	w.processed("o-1")
	at, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(at.Path, "/")
	other, err := pgx.Connect(t.Context(), pgtestdb.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	// The transaction begins before and commits while no one else gets in.
	conn, err := w.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := dulytx.Submit(t.Context(), tx, Buy, "o-2", Order{"o-2", 2}); err != nil {
		t.Fatal(err)
	}
	allow := func(is bool) {
		if _, err := other.Exec(t.Context(), fmt.Sprintf(`ALTER DATABASE %s ALLOW_CONNECTIONS %t`, pgx.Identifier{name}.Sanitize(), is)); err != nil {
			t.Fatal(err)
		}
	}
	allow(false)
	if _, err := other.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> $2`, name, conn.Conn().PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.await("the node tells of an outbox that it cannot read", func() bool { return w.outboxInTrouble() })
	w.never("o-2")
	allow(true)
	w.processed("o-2")
	w.await("the trouble is over", func() bool { return !w.outboxInTrouble() })
	conn.Release()
}

// TestRefusedLater: what only a node can know is kept with its reason and told, and an operator has it tried again; a
// plan that is applied later is waited for.
func TestRefusedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.beginWithout()
	if err := placeOrder(t.Context(), w.pool, Order{"o-1", 1}); err != nil {
		t.Fatal(err)
	}
	w.await("the row says that its plan is not there", func() bool {
		rows, err := w.outbox.List(t.Context(), 0, true, 10)
		return err == nil && len(rows) == 1 && rows[0].Code == 404 && rows[0].Refused.IsZero()
	})
	if err := Buy.Apply(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	w.processed("o-1")
	submit := func(id string, options ...duly.SubmitOption) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			return dulytx.Submit(t.Context(), tx, Buy, id, Order{id, 9}, options...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	submit("o-1")
	submit("o-2", duly.ReplyTo("secret.subject"))
	submit("o-3")
	w.processed("o-3")
	w.empty()
	rows, err := w.outbox.List(t.Context(), 0, false, 10)
	if err != nil || len(rows) != 2 || rows[0].Task != "o-1" || rows[0].Code != 409 || rows[1].Task != "o-2" || rows[1].Code != 400 || !strings.Contains(rows[1].Reason, "secret.subject") {
		t.Fatalf("%+v %v", rows, err)
	}
	w.await("operators are told", func() bool { return w.outboxInTrouble() })
	w.never("o-2")
	w.exec(`UPDATE duly_outbox SET headers = '{}' WHERE number = $1`, rows[1].Number)
	if n, err := w.outbox.Again(t.Context(), true, nil); n != 2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	w.processed("o-2")
	if n := w.effects("o-1"); n != 1 {
		t.Errorf("o-1 took effect %d times", n)
	}
}

// TestTwiceAtOnce: the same task in many transactions at once is one task.
func TestTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
				return dulytx.Submit(t.Context(), tx, Buy, "o-1", Order{"o-1", 9})
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.processed("o-1")
	w.empty()
	if s, err := w.outbox.Standing(t.Context()); err != nil || s.Refused != 0 || w.effects("o-1") != 1 {
		t.Errorf("%+v %v, took effect %d times", s, err, w.effects("o-1"))
	}
}
