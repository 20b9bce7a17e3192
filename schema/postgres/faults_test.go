package postgres_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"

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
	direct := pgtestdb.URL(tb)
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
	calm := patient{s, db}
	if err := calm.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return calm, db
}

// The whole suite holds where the database fails as CockroachDB may: in the words
// of PostgreSQL, whose commits take the fast path first, and in those of CockroachDB,
// with its retries.
//
// covers: E18
func TestThroughFaults(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		faults  pgfault.Faults
		options schema.Options
		dialect string
	}{
		"postgres":               {pgfault.Faults{Seed: 1}, schema.Options{}, "postgres"},
		"cockroach":              {pgfault.Faults{Seed: 2, Cockroach: true}, schema.Options{}, "cockroach"},
		"cockroach serializable": {pgfault.Faults{Seed: 3, Cockroach: true}, schema.Options{Serializable: true}, "cockroach"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			f.faults.Rate = 0.08
			p := proxy(t, f.faults)
			storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
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

func faultsAs(cockroach bool) pgfault.Faults { return pgfault.Faults{Cockroach: cockroach} }
