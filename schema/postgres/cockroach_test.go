package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// asBoth runs a test on each database that a store can be on; behind the proxy CockroachDB is a PostgreSQL.
func asBoth(t *testing.T, test func(t *testing.T, cockroach bool)) {
	for name, cockroach := range map[string]bool{"postgres": false, "cockroach": true} {
		t.Run(name, func(t *testing.T) { test(t, cockroach) })
	}
}

// Whichever database it is, its server ends a transaction in which nothing is said: a frozen owner, or relay, keeps no
// successor waiting for longer than that.
//
// covers: K1
func TestServerEndsIdleTransactions(t *testing.T) {
	asBoth(t, func(t *testing.T, cockroach bool) {
		p := proxy(t, faultsAs(cockroach))
		at := through(t, p, pgtestdb.Migrated(t))
		s := opened(t, at, schema.Options{}).(*postgres.Store)
		for name, db := range map[string]*sql.DB{"commits": s.DB(), "asks": s.AskDB()} {
			var ends string
			if err := db.QueryRow(`SHOW idle_in_transaction_session_timeout`).Scan(&ends); err != nil || ends != "1min" {
				t.Errorf("who %s is ended after %s, %v", name, ends, err)
			}
		}
		o := openOutbox(t, at)
		if err := o.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		written(t, userOf(t, at), "o-1")
		if n, err := o.Take(t.Context(), 1, func(context.Context, []postgres.OutboxRow) []postgres.OutboxVerdict { return nil }); n != 1 || err != nil {
			t.Errorf("%d taken, %v", n, err)
		}
		if said := strings.Join(p.Texts(), "\n"); !strings.Contains(said, "SET LOCAL idle_in_transaction_session_timeout = 30000") {
			t.Error("a relay that stands still is not ended")
		}
	})
}
