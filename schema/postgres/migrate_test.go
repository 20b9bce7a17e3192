package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// hearing is a store of earlier tables whose migrations are listened to.
func hearing(t *testing.T, version int64, o schema.Options) (s schema.Store, db *sql.DB, heard func() string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	o.Tell = func(what string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, what)
	}
	s = opened(t, pgtestdb.URL(t), o)
	db, err := migrateTo(t.Context(), s, version)
	if err != nil {
		t.Fatal(err)
	}
	return s, db, func() string {
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
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-tick.C
	}
}

// A migration that finds a table locked by a backup lets others by in between, says
// what it waits for without the values in it, and is done when the backup is.
// covers: B6
func TestMigrateBehindABackup(t *testing.T) {
	s, db, heard := hearing(t, 1, schema.Options{})
	backup, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Exec(`SELECT count(*) FROM journal WHERE actor = 'olga' AND number = 12345`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	// Commits that come meanwhile wait no longer than the migration does, and there
	// is one between two tries of it.
	longest := time.Duration(0)
	writes := 0
	eventually(t, "the migration says what it waits for", func() bool {
		began := time.Now()
		if _, err := db.Exec(`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
			VALUES (0, $1, 1, now(), 'n', 1, 1, 'begun', 'processing', 0, 0, FALSE)`, writes); err != nil {
			t.Fatal(err)
		}
		writes++
		longest = max(longest, time.Since(began))
		return strings.Contains(heard(), "session")
	})
	select {
	case err := <-done:
		t.Fatalf("the migration has ended: %v", err)
	default:
	}
	for _, part := range []string{"waits for a lock: session ", "SELECT count(*) FROM journal WHERE actor = ? AND number = ?"} {
		if !strings.Contains(heard(), part) {
			t.Errorf("told %q, want %q in it", heard(), part)
		}
	}
	if strings.Contains(heard(), "olga") || strings.Contains(heard(), "12345") {
		t.Errorf("values are told: %q", heard())
	}
	t.Logf("%d writes, the longest took %v", writes, longest)
	if longest > 5*time.Second { // lock_timeout is half a second
		t.Errorf("a write waited for %v", longest)
	}
	if err := backup.Rollback(); err != nil {
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

// An index over a large table is built while commits go on, for as long as it takes,
// and what a build that was cut off has left is not taken for it.
// covers: B6
func TestIndexIsBuiltBesideCommits(t *testing.T) {
	s, db, _ := hearing(t, 4, schema.Options{Timeout: 100 * time.Millisecond})
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
		if err := db.QueryRow(`SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('tasks_pending') AND NOT indisvalid`).Scan(&n); err != nil {
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
	if err := db.QueryRow(`SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('tasks_pending')`).Scan(&valid); err != nil || !valid {
		t.Errorf("valid %v, %v", valid, err)
	}
}

// Who migrates while another does waits, and says so.
// covers: B6
func TestMigrateOneAtATime(t *testing.T) {
	s, db, heard := hearing(t, 1, schema.Options{})
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), `SELECT pg_advisory_lock($1)`, postgres.MigrationLock); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	eventually(t, "it says what it waits for", func() bool { return strings.Contains(heard(), "another process") })
	if _, err := other.ExecContext(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Rows of partitions, which are rewritten all the time, are kept short on CockroachDB;
// PostgreSQL never hears of it.
func TestShortGC(t *testing.T) {
	for _, cockroach := range []bool{false, true} {
		p := proxy(t, faultsAs(cockroach))
		open(t, through(t, p, pgtestdb.URL(t)), schema.Options{})
		if said := strings.Contains(strings.Join(p.Texts(), "\n"), "gc.ttlseconds"); said != cockroach {
			t.Errorf("CockroachDB %v: said %v", cockroach, said)
		}
	}
}

// Nodes of before the merge of the journal go on beside it: what they write into a
// generation until it is sealed is moved, and after that it is refused there, which sends
// them to journal itself.
func TestMergeBesideAnOlderNode(t *testing.T) {
	s, db, heard := hearing(t, 10, schema.Options{})
	const write = `INSERT INTO %s (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		VALUES (1, 1, %d, now(), 'node', 1, 1, 'begun', 'processing', 0, 0, FALSE)`
	run := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run(`INSERT INTO partitions (partition) VALUES (0), (1)`)
	run(storetest.ManyTasks(32))
	storetest.InGenerations(t, db)
	run(fmt.Sprintf(write, "journal_3", 1))
	reader := begin(t, db, `SELECT count(*) FROM ONLY journal_3`)
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	eventually(t, "the merge waits for the reader", func() bool { return strings.Contains(heard(), "a lock: session") })
	run(fmt.Sprintf(write, "journal_3", 2)) // an older node, to which it is the newest
	var rotating int
	if err := db.QueryRow(`SELECT count(*) FROM journal_generations`).Scan(&rotating); err != nil || rotating != 0 {
		t.Errorf("an older node has %d generations to turn (%v)", rotating, err)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	run(fmt.Sprintf(write, "journal", 3))
	var rows, tables int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM ONLY journal WHERE number = 1), (SELECT count(*) FROM pg_class WHERE relname LIKE 'journal\_%' AND relkind = 'r')`).Scan(&rows, &tables); err != nil {
		t.Fatal(err)
	}
	if rows != 3 || tables != 0 {
		t.Errorf("%d of 3 rows are in the journal, and %d tables are left", rows, tables)
	}
}

// A generation that is sealed takes no more rows of older nodes, in the words that they
// know.
func TestMergeSealsAsOlderNodesKnow(t *testing.T) {
	s, db, heard := hearing(t, 10, schema.Options{})
	if _, err := db.Exec(`INSERT INTO partitions (partition) VALUES (0), (1)`); err != nil {
		t.Fatal(err)
	}
	storetest.InGenerations(t, db)
	if _, err := db.Exec(`INSERT INTO journal_2 (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		SELECT 1, n, 1, now(), 'node', 1, 1, 'begun', 'processing', 0, 0, FALSE FROM generate_series(1, 3) AS n`); err != nil {
		t.Fatal(err)
	}
	held := begin(t, db, `SELECT partition FROM partitions WHERE partition = 1 FOR UPDATE`)
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	eventually(t, "the merge waits for the partition", func() bool { return heard() != "" })
	_, err := db.Exec(`INSERT INTO journal_2 (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		VALUES (1, 9, 1, now(), 'node', 1, 1, 'begun', 'processing', 0, 0, FALSE)`)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "23514" || !strings.HasSuffix(refused.ConstraintName, "_sealed") {
		t.Errorf("%v, want the constraint journal_2_sealed", err)
	}
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
