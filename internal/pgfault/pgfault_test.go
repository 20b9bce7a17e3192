package pgfault_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
)

func connect(t *testing.T, at string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // it may be lost already
	return c
}

// faulty is a connection to an empty table x through a proxy, and one without it.
func faulty(t *testing.T, f pgfault.Faults) (through, direct *pgx.Conn, p *pgfault.Proxy) {
	t.Helper()
	at := pgtestdb.URL(t)
	direct = connect(t, at)
	if _, err := direct.Exec(t.Context(), "CREATE TABLE x (a INT8)"); err != nil {
		t.Fatal(err)
	}
	p, err := pgfault.Start(at, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return connect(t, p.URL()), direct, p
}

func rows(t *testing.T, c *pgx.Conn) (n int) {
	t.Helper()
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM x").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func state(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	if err != nil {
		return "lost"
	}
	return ""
}

// Each kind is what it says, at the end of a transaction and of a statement that
// is one: the row is there, or it is not.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind  pgfault.Kind
		state string
		rows  int
	}{
		{pgfault.RetryAtCommit, "40001", 0}, {pgfault.UnknownCommitted, "40003", 1}, {pgfault.UnknownRolledBack, "40003", 0},
		{pgfault.LostBefore, "lost", 0}, {pgfault.LostAfter, "lost", 1}, {pgfault.Slow, "", 1},
	} {
		for _, end := range []string{"COMMIT", "RELEASE SAVEPOINT cockroach_restart"} {
			cockroach := end != "COMMIT"
			t.Run(c.kind.String()+" at "+end, func(t *testing.T) {
				through, direct, p := faulty(t, pgfault.Faults{Rate: 1, Only: []pgfault.Kind{c.kind}, Cockroach: cockroach, From: end})
				begin(t, through, cockroach)
				if _, err := through.Exec(t.Context(), "INSERT INTO x VALUES (1)"); err != nil {
					t.Fatal(err)
				}
				_, err := through.Exec(t.Context(), end)
				if got := state(err); got != c.state {
					t.Errorf("state %q, want %q", got, c.state)
				}
				if n := p.Counts()[c.kind]; n != 1 {
					t.Errorf("counted %d", n)
				}
				if n := rows(t, direct); n != c.rows {
					t.Errorf("%d rows, want %d", n, c.rows)
				}
			})
		}
	}
}

func begin(t *testing.T, c *pgx.Conn, cockroach bool) {
	t.Helper()
	texts := []string{"BEGIN"}
	if cockroach {
		texts = append(texts, "SAVEPOINT cockroach_restart")
	}
	for _, text := range texts {
		if _, err := c.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

// After 40001 a transaction is dead until it is rolled back, and its commit is none.
func TestFailedTransactionIsDead(t *testing.T) {
	through, direct, _ := faulty(t, pgfault.Faults{Rate: 1, Only: []pgfault.Kind{pgfault.RetryAtStatement}, From: "VALUES (2)", Until: "SELECT 3"})
	begin(t, through, false)
	for _, step := range []struct{ text, state string }{
		{"INSERT INTO x VALUES (1)", ""}, {"INSERT INTO x VALUES (2)", "40001"}, {"SELECT 1", "25P02"}, {"COMMIT", ""}, {"SELECT 3", ""},
	} {
		if _, err := through.Exec(t.Context(), step.text); state(err) != step.state {
			t.Errorf("%s: %v, want %q", step.text, err, step.state)
		}
	}
	if n := rows(t, direct); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// As CockroachDB, a transaction is over at the release and begins again after it
// has failed there.
func TestTriedAgainAsCockroach(t *testing.T) {
	through, direct, p := faulty(t, pgfault.Faults{Rate: 1, Only: []pgfault.Kind{pgfault.RetryAtCommit}, Cockroach: true, From: "RELEASE", Until: "VALUES (2)"})
	if v := through.PgConn().ParameterStatus("crdb_version"); !strings.Contains(v, "CockroachDB") {
		t.Errorf("crdb_version %q", v)
	}
	begin(t, through, true)
	for _, step := range []struct {
		text, state string
		rows        int
	}{
		{"INSERT INTO x VALUES (1)", "", 0}, {"RELEASE SAVEPOINT cockroach_restart", "40001", 0}, {"SELECT 1", "25P02", 0},
		{"ROLLBACK TO SAVEPOINT cockroach_restart", "", 0}, {"INSERT INTO x VALUES (2)", "", 0}, {"RELEASE SAVEPOINT cockroach_restart", "", 1},
		{"COMMIT", "", 1}, {"INSERT INTO x VALUES (3)", "", 2},
	} {
		if _, err := through.Exec(t.Context(), step.text); state(err) != step.state {
			t.Errorf("%s: %v, want %q", step.text, err, step.state)
		}
		if n := rows(t, direct); n != step.rows {
			t.Errorf("%d rows after %s, want %d", n, step.text, step.rows)
		}
	}
	if got := strings.Join(p.Texts(), "|"); !strings.Contains(got, "ROLLBACK TO SAVEPOINT") {
		t.Errorf("heard %s", got)
	}
}

// A cut at a write passes over what changes nothing: reads, and what a transaction has not committed yet.
func TestCutAtWrite(t *testing.T) {
	through, direct, p := faulty(t, pgfault.Faults{CutAtWrite: 3})
	for _, text := range []string{"INSERT INTO x VALUES (1)", "SELECT 1", "BEGIN", "INSERT INTO x VALUES (2)", "INSERT INTO x VALUES (3)", "COMMIT", "SELECT 1"} {
		if _, err := through.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if _, err := through.Exec(t.Context(), "INSERT INTO x VALUES (4)"); err == nil {
		t.Error("the third write came through")
	}
	if n, cut := rows(t, direct), p.Counts()[pgfault.LostBefore]; n != 3 || cut != 1 {
		t.Errorf("%d rows, want 3, and %d cuts, want 1", n, cut)
	}
}

// A cut after a request loses the answer to what the server has run; each request is told before and after.
func TestCutAfter(t *testing.T) {
	var mu sync.Mutex
	var told []string
	watch := func(number int, texts []string, ran bool) bool {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(number, texts, ran))
		return false
	}
	through, direct, p := faulty(t, pgfault.Faults{CutAfter: 2, Watch: watch})
	if _, err := through.Exec(t.Context(), "INSERT INTO x VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if _, err := through.Exec(t.Context(), "INSERT INTO x VALUES (2)"); err == nil {
		t.Error("the second answer came through")
	}
	if n, cut := rows(t, direct), p.Counts()[pgfault.LostAfter]; n != 2 || cut != 1 {
		t.Errorf("%d rows, want 2, and %d cuts, want 1", n, cut)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{"1 [INSERT INTO x VALUES (1)] false", "1 [INSERT INTO x VALUES (1)] true", "2 [INSERT INTO x VALUES (2)] false", "2 [INSERT INTO x VALUES (2)] true"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestBadFaults(t *testing.T) {
	for _, f := range []pgfault.Faults{{Rate: -0.1}, {Rate: 1.1}, {CutAt: -1}, {CutAtWrite: -1}, {CutAfter: -1}} {
		if _, err := pgfault.Start("postgres://127.0.0.1:1/x", f); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
	if _, err := pgfault.Start("postgres:///x", pgfault.Faults{}); err == nil {
		t.Error("a server without a port was taken")
	}
}
