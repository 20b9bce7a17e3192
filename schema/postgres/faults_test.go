package postgres_test

import (
	"context"
	"database/sql"
	"net/url"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// proxy is a proxy to the tests' server, closed when the test ends.
func proxy(tb testing.TB, f pgfault.Faults) *pgfault.Proxy {
	tb.Helper()
	p, err := pgfault.Start(pgtestdb.URL(tb), f)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// through is the database of a URL as the proxy's clients see it.
func through(tb testing.TB, p *pgfault.Proxy, at string) string {
	tb.Helper()
	to, err := url.Parse(p.URL())
	if err != nil {
		tb.Fatal(err)
	}
	from, err := url.Parse(at)
	if err != nil {
		tb.Fatal(err)
	}
	to.Path = from.Path
	return to.String()
}

// faulty is a store behind the proxy, and its database without it.
func faulty(tb testing.TB, p *pgfault.Proxy, o schema.Options) (schema.Store, *sql.DB) {
	tb.Helper()
	return faultyAt(tb, p, pgtestdb.Migrated(tb), o)
}

func faultyAt(tb testing.TB, p *pgfault.Proxy, direct string, o schema.Options) (schema.Store, *sql.DB) {
	tb.Helper()
	db, err := sql.Open("pgx", direct)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	s, err := retried(context.Background(), func() (schema.Store, error) { return postgres.Open(context.Background(), through(tb, p, direct), o) })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return patient{s, db}, db
}

// suitesThroughFaults runs the suite of each variant on stores behind a proxy, and wants every kind of fault to happen.
func suitesThroughFaults(t *testing.T, suites map[string]func(*testing.T, storetest.Open)) {
	for name, suite := range suites {
		f := faultVariants[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			f.faults.Rate = 0.08
			p := proxy(t, f.faults)
			suite(t, func(tb testing.TB) (schema.Store, *sql.DB) {
				s, db := faulty(tb, p, f.options)
				if got := s.Dialect(); got != f.dialect {
					tb.Fatalf("dialect %s, want %s", got, f.dialect)
				}
				return s, db
			})
			counts := p.Counts()
			t.Logf("%d requests: %v", p.Requests(), counts)
			for _, k := range pgfault.Kinds {
				if counts[k] == 0 {
					t.Errorf("no %s happened", k)
				}
			}
		})
	}
}

// faultVariants are the databases that a proxy makes of PostgreSQL.
var faultVariants = map[string]struct {
	faults  pgfault.Faults
	options schema.Options
	dialect string
}{
	"postgres":               {pgfault.Faults{Seed: 1}, schema.Options{}, "postgres"},
	"cockroach":              {pgfault.Faults{Seed: 2, Cockroach: true}, schema.Options{}, "cockroach"},
	"cockroach serializable": {pgfault.Faults{Seed: 3, Cockroach: true}, schema.Options{Serializable: true}, "cockroach"},
}

// The whole suite holds where the database fails as CockroachDB may: in the words
// of PostgreSQL, whose commits take the fast path first, and in those of CockroachDB,
// with its retries. At its other isolation level only the transactions differ.
//
// covers: E18
func TestThroughFaults(t *testing.T) {
	t.Parallel()
	// A drawn purge asks so often that the proxy fails one question a hundred times sooner or later.
	all := func(t *testing.T, open storetest.Open) { storetest.Run(t, open, "purge of anything") }
	suitesThroughFaults(t, map[string]func(*testing.T, storetest.Open){"postgres": all, "cockroach serializable": all, "cockroach": storetest.RunTransactions})
}

// So do the migrations, from no tables at all.
//
// covers: E18
func TestMigrateThroughFaults(t *testing.T) {
	t.Parallel()
	for name, f := range faultVariants {
		t.Run(name, func(t *testing.T) {
			f.faults.Rate = 0.05 // each call begins the file again
			p := proxy(t, f.faults)
			s, _ := faultyAt(t, p, pgtestdb.URL(t), f.options)
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.CheckVersion(t.Context()); err != nil {
				t.Error(err)
			}
			happened := 0
			for _, n := range p.Counts() {
				happened += n
			}
			if happened < 5 {
				t.Errorf("%d faults in %d requests, want some between the statements", happened, p.Requests())
			}
		})
	}
}

// What operators read and write holds there as well. What only has many more rows is left out, at the second also long
// lists that are read as at the first, and the refusal of a Freeze whose members another has planted: a try
// that is cut off takes them away. The mark counts queries, and here they are made again. A change of a breaker is made once: see PutBreaker.
//
// covers: OP2, OP3, OP16
func TestOperatorsThroughFaults(t *testing.T) {
	t.Parallel()
	except := []string{"list of one microsecond", "list that is cut off", "list by time of creation", "waiting for agents", "freeze a filter", "freeze refused", "mark", "breakers", "limits"}
	suitesThroughFaults(t, map[string]func(*testing.T, storetest.Open){
		"postgres": func(t *testing.T, open storetest.Open) { storetest.RunOperators(t, open, except...) },
		"cockroach serializable": func(t *testing.T, open storetest.Open) {
			storetest.RunOperators(t, open, append(slices.Clone(except), "filters of a list", "audit trail by filter", "groups in pages")...)
		},
	})
}

// A key that could not be looked up because the connection was lost is an error, and not a key that was used before.
//
// covers: OP16
func TestAuditKeyOfALostConnection(t *testing.T) {
	t.Parallel()
	p := proxy(t, pgfault.Faults{Rate: 1, Only: []pgfault.Kind{pgfault.LostBefore}, From: "FROM audit WHERE request_key", Until: "max(number)"})
	s, _ := faulty(t, p, schema.Options{})
	ctx, store := context.Background(), s.(patient).Unwrap()
	e := operate.AuditEntry{At: time.Now(), Actor: "olga", Role: operate.RoleOperator, Via: "http", Action: "undo", Target: "task/order/1", Outcome: "asked", Key: "key"}
	if number, again, err := store.Append(ctx, e); err == nil {
		t.Errorf("entry %d, again %+v, though its key could not be looked up", number, again)
	}
	if n := p.Counts()[pgfault.LostBefore]; n != 1 {
		t.Errorf("%d connections were lost, want 1", n)
	}
	if page, err := s.Audit(ctx, operate.AuditFilter{Limit: 10}); err != nil || len(page.Entries) != 0 {
		t.Errorf("%d entries, %v", len(page.Entries), err)
	}
}

func faultsAs(cockroach bool) pgfault.Faults { return pgfault.Faults{Cockroach: cockroach} }

// A preview whose last commit has happened, though its answer was lost, is frozen and keeps its members.
//
// covers: OP3
func TestFreezeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	p := proxy(t, pgfault.Faults{Rate: 1, Only: []pgfault.Kind{pgfault.LostAfter}, From: "waiting = $3", Until: "'dropping'"})
	s, db := faulty(t, p, schema.Options{})
	ctx, store := context.Background(), s.(patient).Unwrap()
	if err := s.Partitions(ctx, 4); err != nil {
		t.Fatal(err)
	}
	const tasks = 7
	if _, err := db.Exec(`INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, failure_count, origin, created_at, updated_at, ended_at, end_number, commit_id)
		SELECT 1, n, 't' || n, 'order', 1, 'error', 2, 0, 0, 0, now(), now(), now(), n, 1 FROM generate_series(1, $1::INT8) AS n`, tasks); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE partitions SET next_number = $1, next_end = $1 WHERE partition = 1`, tasks+1); err != nil {
		t.Fatal(err)
	}
	op := operate.Operation{ID: "op", Action: operate.ActionResubmit, Request: operate.Request{Action: operate.ActionResubmit}, Created: time.Now()}
	frozen, err := store.Freeze(ctx, op, operate.Selection{Filter: &core.Filter{State: core.StateError}})
	if err != nil || frozen != tasks {
		t.Errorf("%d tasks are frozen, want %d: %v", frozen, tasks, err)
	}
	if n := p.Counts()[pgfault.LostAfter]; n != 1 {
		t.Errorf("%d answers were lost, want 1", n)
	}
	if members, err := s.Members(ctx, "op", "", 0, 100); err != nil || len(members) != tasks {
		t.Errorf("%d members, want %d: %v", len(members), tasks, err)
	}
}
