package schema_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
	"duly.dev/duly/schema/storetest"
)

// stores are the two, each with a fresh database a call.
var stores = map[string]func(testing.TB) string{"postgres": pgtestdb.URL, "sqlite": sqliteURL}

// nextStatements are of a version to come, of every kind that a migration may have.
var nextStatements = map[string]string{
	"postgres": `ALTER TABLE tasks ADD COLUMN IF NOT EXISTS mood TEXT;
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_mood ON tasks (mood) WHERE mood IS NOT NULL;
CREATE TABLE IF NOT EXISTS moods (mood TEXT NOT NULL PRIMARY KEY, tasks INT8 NOT NULL);
ALTER TABLE journal ADD COLUMN IF NOT EXISTS mood TEXT NOT NULL DEFAULT '';
INSERT INTO moods (mood, tasks) VALUES ('good', 0) ON CONFLICT DO NOTHING;
UPDATE moods SET tasks = 7;
DROP INDEX CONCURRENTLY IF EXISTS tasks_pending;
/* PostgreSQL */ ALTER TABLE labels SET (autovacuum_vacuum_scale_factor = 0.05);
/* CockroachDB */ ALTER TABLE labels CONFIGURE ZONE USING gc.ttlseconds = 600;
`,
	"sqlite": `ALTER TABLE tasks ADD COLUMN mood TEXT;
CREATE INDEX tasks_mood ON tasks (mood) WHERE mood IS NOT NULL;
CREATE TABLE moods (mood TEXT NOT NULL PRIMARY KEY, tasks INTEGER NOT NULL);
ALTER TABLE journal ADD COLUMN mood TEXT NOT NULL DEFAULT '';
INSERT INTO moods (mood, tasks) VALUES ('good', 0);
UPDATE moods SET tasks = 7;
DROP INDEX tasks_pending;
`,
}

// next are options of a binary of that version.
func next(tb testing.TB, dialect string) schema.Options {
	tb.Helper()
	return schema.Options{MaxConns: 2, Migrations: storetest.NextMigrations(tb, dialect, nextStatements[dialect])}
}

// What the tables hold is the same after the next migration, and once more when there is nothing to do. Processes that
// start at once, over data or over nothing, all find the database migrated.
//
// covers: E20
func TestNextMigration(t *testing.T) {
	t.Parallel()
	for name, at := range stores {
		t.Run(name, func(t *testing.T) {
			reference := fresh(t, name, schema.Options{})
			fillStore(t, reference)
			url := at(t)
			migrateAtOnce(t, url, schema.Options{MaxConns: 2})
			fillStore(t, opened(t, url, schema.Options{}))
			migrateAtOnce(t, url, next(t, name))
			for range 2 {
				s := open(t, url, next(t, name))
				same(t, s, reference)
				var sum int
				if err := schema.DB(s).QueryRow(`SELECT tasks + (SELECT count(*) FROM tasks WHERE mood IS NULL) FROM moods`).Scan(&sum); err != nil || sum != 14 {
					t.Errorf("%d, %v, want 7 that are written and 7 tasks", sum, err)
				}
				if err := s.CheckVersion(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// migrateAtOnce migrates a database by four processes that start at once.
func migrateAtOnce(t *testing.T, at string, o schema.Options) {
	t.Helper()
	const processes = 4
	errs := make(chan error, processes)
	for range processes {
		s := opened(t, at, o)
		go func() { errs <- s.Migrate(context.Background()) }()
	}
	for range processes {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// fillStore makes tasks in every state, with their journals.
func fillStore(t *testing.T, s schema.Store) {
	t.Helper()
	ctx := t.Context()
	plan := core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "charge", Agent: "payment", Undoable: true}}}.WithDefaults()
	for _, err := range []error{s.Partitions(ctx, 2), s.PutPlan(ctx, plan)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.TakeOver(ctx, 1, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	p := core.PartitionWrite{Partition: 1, Epoch: st.Epoch, Cursor: 7, ControlCursor: 8, NextNumber: 8, NextEnd: 5, Told: 4}
	after := p
	after.After = 1
	born, moved := &core.Batch{ID: 1, Partitions: []core.PartitionWrite{p}}, &core.Batch{ID: 2, Partitions: []core.PartitionWrite{after}}
	end := int64(0)
	for i, state := range []core.State{
		core.StateProcessing, core.StatePending, core.StateUndoing, core.StateProcessed, core.StateUndone, core.StateError, core.StateProcessed,
	} {
		w := plainBirth(1, int64(i+1))
		w.Task.PlanVersion, w.Task.Input, w.Task.InputHash, w.Task.LockedBy = 1, []byte(`{"n":1}`), []byte("hash"), "node"
		born.Writes = append(born.Writes, w)
		if state == core.StateProcessing {
			continue
		}
		task := *w.Task
		task.State, task.Seq, task.Failures, task.UpdatedAt = state, 2, i, task.UpdatedAt.Add(time.Second)
		rec := core.Record{Seq: 2, At: task.UpdatedAt, Actor: "agent", Kind: core.KindDone, State: state, Step: 0, StepStatus: core.StepDone, Attempt: 1, Next: -1, Result: []byte(`1`)}
		switch state {
		case core.StatePending:
			task.WaitsFor, rec.Result, rec.StepStatus, rec.Kind, rec.Error = "payment", nil, core.StepWaiting, core.KindFailed, "no"
		case core.StateProcessed, core.StateUndone, core.StateError:
			end++
			task.EndNumber, task.EndedAt, task.LockedBy = end, task.UpdatedAt, ""
		}
		moved.Writes = append(moved.Writes, core.TaskWrite{Task: &task, Row: true, Records: []core.Record{rec}})
	}
	for _, b := range []*core.Batch{born, moved} {
		if res, err := s.Commit(ctx, b); err != nil || len(res.Fenced)+len(res.Duplicates) > 0 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if n, err := s.Purge(ctx, 1, st.Epoch, 1<<60, 0, 1); err != nil || n != 1 {
		t.Fatalf("%d tasks purged, %v", n, err)
	}
}

// same compares all that two stores say.
func same(t *testing.T, got, want schema.Store) {
	t.Helper()
	ctx := t.Context()
	for name, read := range map[string]func(schema.Store) (any, error){
		"cursors": func(s schema.Store) (any, error) { return s.Cursors(ctx) },
		"plans":   func(s schema.Store) (any, error) { return s.Plans(ctx) },
		"active":  func(s schema.Store) (any, error) { return s.LoadActive(ctx, core.AsOf{Partition: 1}, 0, 100) },
		"numbers": func(s schema.Store) (any, error) {
			return s.LoadNumbers(ctx, core.AsOf{Partition: 1}, []int64{1, 2, 3, 4, 5, 6, 7})
		},
		"waiting": func(s schema.Store) (any, error) { return s.Waiting(ctx, core.AsOf{Partition: 1}, "payment", 0, 100) },
		"agents":  func(s schema.Store) (any, error) { return s.WaitingAgents(ctx, core.AsOf{Partition: 1}) },
		"untold":  func(s schema.Store) (any, error) { return s.Untold(ctx, core.AsOf{Partition: 1}, 0, 100) },
		"overdue": func(s schema.Store) (any, error) { return s.Overdue(ctx, 0, 1<<60, core.Due{}, 100) },
		"list": func(s schema.Store) (any, error) {
			return s.List(ctx, core.Filter{Limit: 100})
		},
		"counts":   func(s schema.Store) (any, error) { return s.Counts(ctx) },
		"existing": func(s schema.Store) (any, error) { return s.Existing(ctx, 1, []string{"t1", "t4", "t5"}) },
		"books":    func(s schema.Store) (any, error) { return s.Books(ctx) },
		"steps": func(s schema.Store) (any, error) {
			var n, done int
			err := schema.DB(s).QueryRowContext(ctx, `SELECT count(*), sum(CASE WHEN status = 'done' THEN 1 ELSE 0 END) FROM steps`).Scan(&n, &done)
			return []int{n, done}, err
		},
	} {
		g, err := read(got)
		w, werr := read(want)
		if err != nil || werr != nil {
			t.Fatalf("%s: %v, %v", name, err, werr)
		}
		if v := reflect.ValueOf(w); v.Kind() == reflect.Slice && v.Len() == 0 {
			t.Errorf("%s: nothing to compare", name)
		}
		if !reflect.DeepEqual(g, w) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, g, w)
		}
	}
}

// A migration that is cut off before any statement that changes something is done by the
// next process that starts, to the same tables as at one go.
//
// covers: E20
func TestMigrateCutAnywhere(t *testing.T) {
	t.Parallel()
	direct := pgtestdb.URL(t)
	o := next(t, "postgres")
	o.MaxConns = 1
	db := schema.DB(opened(t, direct, o))
	want := tablesOf(t, direct, o)
	cuts := 0
	for n := 1; ; n++ {
		if _, err := db.Exec(`DROP SCHEMA public CASCADE; CREATE SCHEMA public`); err != nil {
			t.Fatal(err)
		}
		p, err := pgfault.Start(direct, pgfault.Faults{CutAtWrite: n})
		if err != nil {
			t.Fatal(err)
		}
		s, err := dialects.Open(t.Context(), p.URL(), o)
		if err == nil {
			err = s.Migrate(t.Context())
			if cerr := s.Close(); cerr != nil {
				t.Error(cerr)
			}
		}
		if cerr := p.Close(); cerr != nil {
			t.Error(cerr)
		}
		if p.Counts()[pgfault.LostBefore] == 0 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		cuts++
		if got := tablesOf(t, direct, o); got != want {
			t.Errorf("cut at write %d (%v):\n got %s\nwant %s", n, err, got, want)
		}
	}
	if statements := strings.Count(nextStatements["postgres"], ";\n"); cuts < 50+statements {
		t.Errorf("%d cuts: the migrations have more statements", cuts)
	}
	t.Logf("%d cuts", cuts)
}

// tablesOf migrates a database and describes what is in it then.
func tablesOf(t *testing.T, at string, o schema.Options) string {
	t.Helper()
	s, err := dialects.Open(t.Context(), at, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := schema.DB(s).Query(`SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT definition FROM pg_views WHERE schemaname = 'public'
		UNION ALL SELECT DISTINCT 'version ' || version_id FROM goose_db_version WHERE is_applied ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		all.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// versionWritten notes behind the store's back that a migration was applied.
func versionWritten(t *testing.T, s schema.Store, version int) {
	t.Helper()
	db := schema.DB(s)
	if s.Dialect() == "sqlite" {
		db = schema.WriterDB(s)
	}
	if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, TRUE)`, version); err != nil {
		t.Fatal(err)
	}
}

// refused wants that a database is neither served nor migrated, for that reason.
func refused(t *testing.T, s schema.Store, want string) {
	t.Helper()
	for what, err := range map[string]error{"check": s.CheckVersion(t.Context()), "migrate": s.Migrate(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", what, err, want)
		}
	}
}

// Only tables of the very version of the binary are served. Those that a newer one has been at are not migrated.
//
// covers: C7
func TestCheckVersion(t *testing.T) {
	for name, at := range stores {
		t.Run(name, func(t *testing.T) {
			url := at(t)
			s, newer := opened(t, url, schema.Options{}), opened(t, url, next(t, name))
			if err := s.CheckVersion(t.Context()); err == nil || !strings.Contains(err.Error(), "has no tables of version 100: run `duly migrate`") {
				t.Errorf("without tables: %v", err)
			}
			if err := errors.Join(s.Migrate(t.Context()), s.CheckVersion(t.Context())); err != nil {
				t.Fatal(err)
			}
			if err := newer.CheckVersion(t.Context()); err == nil || !strings.Contains(err.Error(), "has version 100, this binary wants 999: run `duly migrate`") {
				t.Errorf("older: %v", err)
			}
			if err := newer.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			refused(t, s, "has version 999, this binary knows up to 100: use a newer binary")
		})
	}
}

// A database that was made while Duly was developed is refused, and stays as it is.
//
// covers: C7
func TestTablesOfDevelopment(t *testing.T) {
	for name, at := range stores {
		t.Run(name, func(t *testing.T) {
			url := at(t)
			s := open(t, url, schema.Options{})
			db := schema.DB(s)
			if name == "sqlite" {
				db = schema.WriterDB(s)
			}
			for _, statement := range []string{`DELETE FROM goose_db_version WHERE version_id > 0`, `DROP VIEW steps`, `DROP TABLE limits`} {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			for _, version := range []int{1, 22, 29} {
				versionWritten(t, s, version)
				refused(t, s, fmt.Sprintf("has version %d, made while Duly was not released yet, and cannot be migrated: use a new database; nothing was changed", version))
			}
			var limits int
			if err := db.QueryRow(`SELECT count(*) FROM limits`).Scan(&limits); err == nil {
				t.Error("a table was made")
			}
		})
	}
}
