package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/storetest"
)

// hearing are options whose migrations, to a version to come, are listened to.
func hearing(t *testing.T, statements string) (o schema.Options, heard func() string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	o.Migrations = storetest.NextMigrations(t, "postgres", statements)
	o.Tell = func(what string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, what)
	}
	return o, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(2 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
		<-tick.C
	}
}

// A migration that finds a table locked by a backup lets others by in between, says what it waits for without the values in
// it, and goes on when the backup is done: each of its statements, also where some of the file wait for as long as it takes.
//
// covers: B6, L12
func TestMigrateBehindABackup(t *testing.T) {
	at := pgtestdb.Migrated(t)
	serving := opened(t, at, schema.Options{})
	db := dbOf(serving)
	commit := committing(t, serving)
	o, heard := hearing(t, `ALTER TABLE tasks ADD COLUMN IF NOT EXISTS mood TEXT;
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_mood ON tasks (mood) WHERE mood IS NOT NULL;
ALTER TABLE journal ADD COLUMN IF NOT EXISTS mood TEXT;
`)
	s := opened(t, at, o)
	backup := begin(t, db, `SELECT count(*) FROM tasks WHERE type = 'olga' AND number = 12345`)
	report := begin(t, db, `LOCK TABLE journal IN ACCESS SHARE MODE`)
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	// A commit that waited for a statement that waits for the backup would wait for ever.
	untilHeard := func(waits int) {
		t.Helper()
		eventually(t, "the migration says what it waits for", func() bool {
			commit()
			return strings.Count(heard(), "waits for a lock: session ") == waits
		})
		for range 100 { // the second and third try of the statement
			commit()
		}
		select {
		case err := <-done:
			t.Fatalf("the migration has ended: %v", err)
		default:
		}
	}
	untilHeard(1)
	if !strings.Contains(heard(), "SELECT count(*) FROM tasks WHERE type = ? AND number = ?") || strings.Contains(heard(), "olga") || strings.Contains(heard(), "12345") {
		t.Errorf("told %q", heard())
	}
	if err := backup.Rollback(); err != nil {
		t.Fatal(err)
	}
	untilHeard(2)
	if err := report.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.CheckVersion(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(heard(), "waits no longer") {
		t.Errorf("the end is not told: %q", heard())
	}
}

// committing returns what makes a task that is stored, within a minute.
func committing(t *testing.T, s schema.Store) func() {
	t.Helper()
	if err := s.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	st, err := s.TakeOver(t.Context(), 0, core.Claim{Owner: "n"})
	if err != nil {
		t.Fatal(err)
	}
	number := int64(0)
	return func() {
		t.Helper()
		number++
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		task := &core.Task{Number: number, ID: fmt.Sprint("t", number), Type: "order", PlanVersion: 1, State: core.StateProcessing, Seq: 1, CreatedAt: 1, UpdatedAt: 1, Bound: 1, Deadline: 1}
		record := core.Record{Seq: 1, Kind: core.KindSubmitted, At: 1, Actor: "n", State: task.State, Step: -1, Next: -1}
		res, err := s.Commit(ctx, &core.Batch{
			ID: number, Partitions: []core.PartitionWrite{{Epoch: st.Epoch, After: number - 1, NextNumber: number + 1, NextEnd: 1}},
			Writes: []core.TaskWrite{{Task: task, Birth: true, Records: []core.Record{record}}},
		})
		if err != nil || len(res.Fenced) > 0 {
			t.Fatalf("a commit beside the migration: %+v, %v", res, err)
		}
	}
}

// An index over a large table is built while commits go on, for as long as it takes,
// and what a build that was cut off has left is not taken for it.
// covers: B6
func TestIndexIsBuiltBesideCommits(t *testing.T) {
	at := pgtestdb.Migrated(t)
	o, _ := hearing(t, "CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_round ON tasks (round);\n")
	o.Timeout = 100 * time.Millisecond
	s := opened(t, at, o)
	db := dbOf(s)
	commit, err := db.Begin() // it has written; the build waits for it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := commit.Exec(storetest.ManyTasks(10)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Migrate(ctx) }()
	invalid := func() (n int) {
		if err := db.QueryRow(`SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('tasks_round') AND NOT indisvalid`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "the build waits", func() bool { return invalid() == 1 })
	// For longer than any time-out of the store.
	var waited bool
	eventually(t, "the build goes on waiting", func() bool {
		if err := db.QueryRow(`SELECT COALESCE(bool_or(now() - query_start > INTERVAL '700 ms'), FALSE) FROM pg_stat_activity
			WHERE query LIKE '%CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock' AND datname = current_database() AND pid <> pg_backend_pid()`).Scan(&waited); err != nil {
			t.Fatal(err)
		}
		return waited
	})
	if _, err := db.Exec(strings.ReplaceAll(storetest.ManyTasks(10), "md5(g::TEXT)", "'other' || g") + ` WHERE g > 100`); err != nil {
		t.Errorf("a commit meanwhile: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) && err == nil {
		t.Fatalf("migrate: %v", err)
	}
	eventually(t, "the build is over", func() bool {
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%CREATE INDEX CONCURRENTLY%' AND state = 'active'
			AND datname = current_database() AND pid <> pg_backend_pid()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	if invalid() != 1 {
		t.Fatal("nothing is left of the build, and this test is of no use")
	}
	if err := commit.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var valid bool
	if err := db.QueryRow(`SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('tasks_round')`).Scan(&valid); err != nil || !valid {
		t.Errorf("valid %v, %v", valid, err)
	}
}

// Who migrates while another does waits, and says so, on either database.
//
// covers: B6, K5
func TestMigrateOneAtATime(t *testing.T) {
	asBoth(t, func(t *testing.T, cockroach bool) {
		o, heard := hearing(t, "CREATE TABLE IF NOT EXISTS moods (mood TEXT NOT NULL PRIMARY KEY);\n")
		s := opened(t, through(t, proxy(t, faultsAs(cockroach)), pgtestdb.Migrated(t)), o)
		db := dbOf(s)
		if _, err := db.Exec(`DELETE FROM migration_lease`); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`INSERT INTO migration_lease (one, holder, until) VALUES (1, 'other', now() + INTERVAL '1 hour')`); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Migrate(context.Background()) }()
		eventually(t, "it says what it waits for", func() bool { return strings.Contains(heard(), "another process") })
		if _, err := db.Exec(`UPDATE migration_lease SET until = now() - INTERVAL '1 second'`); err != nil { // it has died
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		var left int
		if err := db.QueryRow(`SELECT count(*) FROM migration_lease`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d leases are left, %v", left, err)
		}
	})
}

// A migration whose lease is not stored, because something locks its table or a synchronous standby is not there yet, says so
// and waits.
//
// covers: B6
func TestMigrateWaitsForItsLease(t *testing.T) {
	o, heard := hearing(t, "CREATE TABLE IF NOT EXISTS moods (mood TEXT NOT NULL PRIMARY KEY);\n")
	s := opened(t, pgtestdb.Migrated(t), o)
	tx := begin(t, dbOf(s), `LOCK TABLE migration_lease IN ACCESS EXCLUSIVE MODE`)
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	eventually(t, "it says what it waits for", func() bool { return strings.Contains(heard(), "to store the lease") })
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Processes that start at once on an empty database apply each version once.
//
// covers: K5
func TestMigrateAtOnce(t *testing.T) {
	asBoth(t, func(t *testing.T, cockroach bool) {
		at := through(t, proxy(t, faultsAs(cockroach)), pgtestdb.URL(t))
		var all sync.WaitGroup
		for range 4 {
			s := opened(t, at, schema.Options{})
			all.Go(func() {
				if err := s.Migrate(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var versions int
		if err := dbOf(opened(t, at, schema.Options{})).QueryRow(`SELECT count(*) FROM goose_db_version WHERE version_id > 0`).Scan(&versions); err != nil || versions != 1 {
			t.Errorf("%d versions are written down, want 1: %v", versions, err)
		}
	})
}

// A migration whose lease another has taken, because this process or its database stood still, goes no further.
//
// covers: K5
func TestMigrateWithoutLease(t *testing.T) {
	o, heard := hearing(t, "ALTER TABLE journal ADD COLUMN IF NOT EXISTS mood TEXT;\n")
	s := opened(t, pgtestdb.Migrated(t), o)
	db := dbOf(s)
	begin(t, db, `LOCK TABLE journal IN ACCESS SHARE MODE`)
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	eventually(t, "the migration waits", func() bool { return strings.Contains(heard(), "waits for a lock") })
	if _, err := db.Exec(`UPDATE migration_lease SET holder = 'other'`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "may have lost its lease") {
		t.Errorf("it ended with %v", err)
	}
	var holder string
	if err := db.QueryRow(`SELECT holder FROM migration_lease`).Scan(&holder); err != nil || holder != "other" {
		t.Errorf("the lease is %q's, %v", holder, err)
	}
}

// What is of one of the two databases alone is never said to the other: CockroachDB keeps old versions of rows of partitions,
// which are rewritten all the time, for a short time; PostgreSQL vacuums large tables earlier.
func TestStatementsOfOneDatabase(t *testing.T) {
	for _, cockroach := range []bool{false, true} {
		p := proxy(t, faultsAs(cockroach))
		open(t, through(t, p, pgtestdb.URL(t)), schema.Options{})
		for says, want := range map[string]bool{
			"gc.ttlseconds": cockroach, "autovacuum_": !cockroach, "SET default_transaction_isolation = 'serializable'": cockroach,
		} {
			if said := strings.Contains(strings.Join(p.Texts(), "\n"), says); said != want {
				t.Errorf("CockroachDB %v: said %s: %v", cockroach, says, said)
			}
		}
	}
}
