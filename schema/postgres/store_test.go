package postgres_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// open opens and migrates a store; it is closed when the test ends.
func open(tb testing.TB, at string, o schema.Options) schema.Store {
	tb.Helper()
	s := opened(tb, at, o)
	if err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

func opened(tb testing.TB, at string, o schema.Options) schema.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), at, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// dbOf is the database behind a store.
func dbOf(s schema.Store) *sql.DB { return s.(*postgres.Store).DB() }

// fresh opens a store of a new database with the newest tables.
func fresh(tb testing.TB, o schema.Options) schema.Store {
	tb.Helper()
	return opened(tb, pgtestdb.Migrated(tb), o)
}

func run(t *testing.T, fresh func(testing.TB, schema.Options) schema.Store, o schema.Options, except ...string) {
	storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		s := fresh(tb, o)
		return s, dbOf(s)
	}, except...)
}

// covers: S20, S33, I24 in a_live_task_equals_its_replay
// covers: I10 in cursors_alone
// covers: S18, S19, S25, S39, G6 in every_field_comes_back
// covers: inv4 in foreign_journal_row
// covers: S38 in load_active
// covers: S23 in load_by_number_and_id
// covers: G2 in overdue
// covers: S21, inv4 in owners_at_once
// covers: inv12 in poison
// covers: inv4 in row_of_a_lower_seq
// covers: S21, inv4 in stale_epoch
// covers: inv4 in take_over
// covers: I23, inv9 in taken_id
// covers: inv9 in taken_id_within_a_batch
// covers: S3, S20 in view
// covers: G5 in waiting
// covers: L8 in purge_of_a_family
// covers: L16 in purge_of_what_was_passed_over
func TestPostgres(t *testing.T) {
	t.Parallel() // a good part of it is waiting, as in its neighbours
	run(t, fresh, schema.Options{})
}

// covers: OP5, OP21 in list_of_one_microsecond
// covers: OP21 in list_beside_births
// covers: OP5 in list_that_is_cut_off
// covers: OP5 in groups
// covers: OP16 in audit_trail
// covers: OP16 in audit_trail_by_filter
// covers: OP16 in old_audit_entries
// covers: O12 in outcome_with_its_change
// covers: OP3 in freeze_a_group
// covers: OP2 in members_and_tally
func TestPostgresOperators(t *testing.T) {
	t.Parallel()
	storetest.RunOperators(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		s := fresh(tb, schema.Options{})
		return s, dbOf(s)
	})
}

// Random values are written and read at one isolation level as at the other.
func TestPostgresSerializable(t *testing.T) {
	t.Parallel()
	run(t, fresh, schema.Options{Serializable: true}, "any value comes back", "a live task equals its replay")
}

// cockroachEnv names a CockroachDB server, as postgres://…, to run the suite on.
const cockroachEnv = "DULY_TEST_COCKROACH_URL"

var cockroachDatabases atomic.Int64

func TestCockroach(t *testing.T) {
	server := os.Getenv(cockroachEnv)
	if server == "" {
		t.Skipf("%s names no server", cockroachEnv)
	}
	at := func(tb testing.TB, o schema.Options) schema.Store { return open(tb, cockroachURL(tb, server), o) }
	t.Run("read committed", func(t *testing.T) { run(t, at, schema.Options{}) })
	t.Run("serializable", func(t *testing.T) { run(t, at, schema.Options{Serializable: true}) })
	t.Run("injected retries", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) { return injected(tb, cockroachURL(tb, server)) })
	})
}

// injected is a store whose transactions a CockroachDB makes try again before it
// lets them through. That is for transactions with its savepoint: the migrations
// run without.
func injected(tb testing.TB, at string) (schema.Store, *sql.DB) {
	tb.Helper()
	calm := open(tb, at, schema.Options{})
	with, err := url.Parse(at)
	if err != nil {
		tb.Fatal(err)
	}
	q := with.Query()
	q.Set("inject_retry_errors_enabled", "true")
	with.RawQuery = q.Encode()
	return opened(tb, with.String(), schema.Options{}), dbOf(calm)
}

// cockroachURL is a fresh database on the server, dropped when the test ends.
func cockroachURL(tb testing.TB, server string) string {
	tb.Helper()
	name := "duly_test_" + strconv.FormatInt(time.Now().UnixMicro(), 10) + "_" + strconv.FormatInt(cockroachDatabases.Add(1), 10)
	db := dbOf(opened(tb, server, schema.Options{}))
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if _, err := db.Exec("DROP DATABASE " + name + " CASCADE"); err != nil {
			tb.Error(err)
		}
	})
	at, err := url.Parse(server)
	if err != nil {
		tb.Fatal(err)
	}
	at.Path = "/" + name
	return at.String()
}

// chained opens two stores of one database, of which the first keeps chains.
func chained(tb testing.TB) (schema.Store, schema.Store, *sql.DB) {
	tb.Helper()
	at := pgtestdb.Migrated(tb)
	plain := opened(tb, at, schema.Options{})
	return opened(tb, at, schema.Options{Chain: true}), plain, dbOf(plain)
}

func TestPostgresChained(t *testing.T) {
	t.Parallel()
	storetest.RunChained(t, chained)
}
