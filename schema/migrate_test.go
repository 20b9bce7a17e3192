package schema_test

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// migratorOf is what migrates a store, and the database that it writes to.
func migratorOf(s schema.Store) (*goose.Provider, *sql.DB, error) {
	if pg, ok := s.(*postgres.Store); ok {
		m, err := pg.Migrator()
		return m, schema.DB(s), err
	}
	m, err := schema.SQLiteMigrator(s)
	return m, schema.WriterDB(s), err
}

// migrateTo brings an empty store to an earlier version of the tables, and returns
// its database, which may be written to.
func migrateTo(ctx context.Context, s schema.Store, version int64) (*sql.DB, error) {
	m, db, err := migratorOf(s)
	if err == nil {
		_, err = m.UpTo(ctx, version)
	}
	return db, err
}

// versionsOf are those of the tables, the oldest first.
func versionsOf(s schema.Store) ([]int64, error) {
	m, _, err := migratorOf(s)
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, source := range m.ListSources() {
		all = append(all, source.Version)
	}
	return all, nil
}

// stores are the two, each with a fresh database a call.
var stores = map[string]func(testing.TB) string{"postgres": pgtestdb.URL, "sqlite": sqliteURL}

// tables are all that hold data.
var tables = []string{"plans", "plan_steps", "partitions", "tasks", "journal"}

// From every version of the tables with data in it, the newest binary reads the
// data as if it had been written today.
//
// covers: E20
func TestMigrateWithData(t *testing.T) {
	t.Parallel()
	eachVersion(t, every, func(t *testing.T, s, reference schema.Store, _ string) {
		for range 2 { // the second time there is nothing to do
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			same(t, s, reference)
		}
		forgotten(t, s)
	})
}

// contended are the versions from which several processes migrate at once: from the first they meet at every migration,
// and from the last at one alone. PostgreSQL builds an index beside commits after 4, and merges the generations of the
// journal, with rows in them, after 10.
func contended(dialect string, earlier []int64) []int64 {
	some := []int64{earlier[0], earlier[len(earlier)-1]}
	if dialect == "postgres" {
		some = append(some, 4, 10)
	}
	return some
}

func every(_ string, earlier []int64) []int64 { return earlier }

// Processes that start at once with a database of an earlier version all find it
// migrated, and its data in it.
//
// covers: E20
func TestMigrateDataAtOnce(t *testing.T) {
	t.Parallel()
	eachVersion(t, contended, func(t *testing.T, s, reference schema.Store, at string) {
		const processes = 4
		errs := make(chan error, processes)
		for range processes {
			other := opened(t, at, schema.Options{MaxConns: 2})
			go func() { errs <- other.Migrate(context.Background()) }()
		}
		for range processes {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		same(t, s, reference)
	})
}

// What waited for an answer before a task's row said so is counted after the migration.
func TestMigrateOpenSignals(t *testing.T) {
	before := map[string]int64{"postgres": 26, "sqlite": 18} // the last without such a column
	for name, at := range stores {
		t.Run(name, func(t *testing.T) {
			reference := open(t, at(t), schema.Options{})
			fillExamples(t, reference)
			s := opened(t, at(t), schema.Options{})
			db, err := migrateTo(t.Context(), s, before[name])
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range tables {
				copyTable(t, table, before[name], schema.DB(reference), db)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := s.Signals(t.Context(), 0, 5)
			if err != nil || got.Tasks.N != 1 || got.Steps.N != 1 || len(got.Next) != 1 {
				t.Fatalf("%+v, %v, want the one that waits", got, err)
			}
			if o := got.Next[0]; o.ID != "wish" || fmt.Sprint(o.Steps) != "[approve]" || o.Since.Unix() != 1_893_456_000 || o.Due.Unix() != 1_893_456_060 {
				t.Errorf("%+v", o)
			}
		})
	}
}

// forgotten wants that what tasks of an earlier version were made of is forgotten like that
// of today's, from wherever that version kept it, and so are their rows.
func forgotten(t *testing.T, s schema.Store) {
	t.Helper()
	ctx := t.Context()
	st, err := s.TakeOver(ctx, 1, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	purge := func(detail, row core.Instant, limit, want int) {
		t.Helper()
		if n, err := s.Purge(ctx, 1, st.Epoch, detail, row, limit); err != nil || n != want {
			t.Fatalf("%d tasks purged, want %d, %v", n, want, err)
		}
	}
	const all = 1 << 60
	purge(0, all, 100, 1) // 4, of which the rest was forgotten before
	purge(all, 0, 100, 2) // 5 and 7; 6 is in error
	for _, saved := range loaded(t, s) {
		goes := saved.Row.State == core.StateProcessed || saved.Row.State == core.StateUndone
		if goes != (saved.Row.Input == nil) || goes != (len(saved.Journal) == 0) {
			t.Errorf("task %s, %s: input %q and %d journal rows", saved.Row.ID, saved.Row.State, saved.Row.Input, len(saved.Journal))
		}
	}
	purge(0, all, 1, 1)
	purge(0, all, 100, 1)
	if left := loaded(t, s); len(left) != 4 {
		t.Errorf("%d tasks are left, want those that have not ended and the one in error", len(left))
	}
	purge(all, all, 100, 0)
}

// loaded are the tasks of fillStore.
func loaded(t *testing.T, s schema.Store) []core.Saved {
	t.Helper()
	saved, err := s.LoadNumbers(t.Context(), 1, []int64{1, 2, 3, 4, 5, 6, 7})
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// eachVersion calls test with a store of each earlier version that is chosen, and where it is. It holds what the
// reference holds, of the newest.
func eachVersion(t *testing.T, choose func(dialect string, earlier []int64) []int64, test func(t *testing.T, s, reference schema.Store, at string)) {
	for name, at := range stores {
		t.Run(name, func(t *testing.T) {
			reference := fresh(t, name, schema.Options{})
			fillStore(t, reference)
			versions, err := versionsOf(reference)
			if err != nil || len(versions) < 2 {
				t.Fatalf("versions %v, %v", versions, err)
			}
			for _, v := range choose(name, versions[:len(versions)-1]) {
				t.Run(fmt.Sprintf("from %d", v), func(t *testing.T) {
					url := at(t)
					s := opened(t, url, schema.Options{})
					db, err := migrateTo(t.Context(), s, v)
					if err != nil {
						t.Fatal(err)
					}
					for _, table := range tables {
						copyTable(t, table, v, schema.DB(reference), db)
					}
					if name == "postgres" && v >= 4 && v <= 10 {
						storetest.InGenerations(t, db)
					}
					test(t, s, reference, url)
				})
			}
		})
	}
}

// inputIn is the version since which a task's input is in its journal.
const inputIn = 3

// older are the columns whose content an older version has elsewhere, or in
// another form.
var older = map[string]map[string]string{
	"tasks": {
		"input":  `COALESCE(input, (SELECT j.input FROM journal j WHERE j.partition = tasks.partition AND j.number = tasks.number AND j.seq = 1)) AS input`,
		"purged": `NOT EXISTS (SELECT 1 FROM journal j WHERE j.partition = tasks.partition AND j.number = tasks.number) AS purged`,
	},
	"journal": {"format": `1 AS format`},
}

// copyTable copies the columns that the table of an older version has.
func copyTable(t *testing.T, table string, version int64, from, to *sql.DB) {
	t.Helper()
	empty, err := to.Query("SELECT * FROM " + table)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := empty.Columns()
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	selected := slices.Clone(columns)
	for i, c := range columns {
		if as := older[table][c]; as != "" && version < inputIn {
			selected[i] = as
		}
	}
	rows, err := from.Query("SELECT " + strings.Join(selected, ", ") + " FROM " + table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	params := make([]string, len(columns))
	for i := range params {
		params[i] = fmt.Sprintf("$%d", i+1)
	}
	insert := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(params, ", ") + ")"
	n := 0
	for ; rows.Next(); n++ {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Exec(insert, values...); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil || n == 0 {
		t.Fatalf("%d rows of %s, %v", n, table, err)
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
		"cursors": func(s schema.Store) (any, error) {
			all, err := s.Cursors(ctx)
			for i := range all {
				all[i].LastCommit = 0 // earlier versions kept none; the next takeover writes it
			}
			return all, err
		},
		"plans":   func(s schema.Store) (any, error) { return s.Plans(ctx) },
		"active":  func(s schema.Store) (any, error) { return s.LoadActive(ctx, 1, 0, 100) },
		"numbers": func(s schema.Store) (any, error) { return s.LoadNumbers(ctx, 1, []int64{1, 2, 3, 4, 5, 6, 7}) },
		"waiting": func(s schema.Store) (any, error) { return s.Waiting(ctx, 1, "payment", 0, 100) },
		"agents":  func(s schema.Store) (any, error) { return s.WaitingAgents(ctx, 1) },
		"untold":  func(s schema.Store) (any, error) { return s.Untold(ctx, 1, 0, 100) },
		"overdue": func(s schema.Store) (any, error) { return s.Overdue(ctx, 1<<60, core.Due{}, 100) },
		"list": func(s schema.Store) (any, error) {
			page, err := s.List(ctx, core.Filter{Limit: 100})
			for i := range page.Tasks {
				page.Tasks[i].Fingerprint = "" // see TestFailedBeforeTheUpgrade
			}
			return page, err
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
	db := schema.DB(opened(t, direct, schema.Options{MaxConns: 1}))
	want := tablesOf(t, direct)
	cuts := 0
	for n := 1; ; n++ {
		if _, err := db.Exec(`DROP SCHEMA public CASCADE; CREATE SCHEMA public`); err != nil {
			t.Fatal(err)
		}
		p, err := pgfault.Start(direct, pgfault.Faults{CutAtWrite: n})
		if err != nil {
			t.Fatal(err)
		}
		s, err := dialects.Open(t.Context(), p.URL(), schema.Options{MaxConns: 1})
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
		if got := tablesOf(t, direct); got != want {
			t.Errorf("cut at write %d (%v):\n got %s\nwant %s", n, err, got, want)
		}
	}
	if cuts < 15 {
		t.Errorf("%d cuts: the migrations have more statements", cuts)
	}
	t.Logf("%d cuts", cuts)
}

// tablesOf migrates a database and describes what is in it then.
func tablesOf(t *testing.T, at string) string {
	t.Helper()
	s, err := dialects.Open(t.Context(), at, schema.Options{MaxConns: 2})
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

// Processes that start at once all find the tables.
func TestMigrateAtOnce(t *testing.T) {
	for name, at := range map[string]string{"postgres": pgtestdb.URL(t), "sqlite": sqliteURL(t)} {
		t.Run(name, func(t *testing.T) {
			const processes = 5
			errs := make(chan error, processes)
			for range processes {
				s := opened(t, at, schema.Options{MaxConns: 2})
				go func() { errs <- s.Migrate(context.Background()) }()
			}
			for range processes {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A database that a newer binary has been at is refused.
//
// covers: C7
func TestNewerDatabaseIsRefused(t *testing.T) {
	for name, at := range map[string]string{"postgres": pgtestdb.URL(t), "sqlite": sqliteURL(t)} {
		t.Run(name, func(t *testing.T) {
			s := open(t, at, schema.Options{})
			if name == "sqlite" { // the store's own connections for reading cannot write
				db, err := sql.Open("sqlite", strings.TrimPrefix(at, "sqlite:"))
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				_, err = db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`)
				if err != nil {
					t.Fatal(err)
				}
			} else if _, err := schema.DB(s).Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)`); err != nil {
				t.Fatal(err)
			}
			if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer binary") {
				t.Errorf("migrate: %v", err)
			}
		})
	}
}

// Only tables of the very version of the binary are served.
// covers: C7
func TestCheckVersion(t *testing.T) {
	for name, at := range stores {
		t.Run(name, func(t *testing.T) {
			s := opened(t, at(t), schema.Options{})
			versions, err := versionsOf(s)
			if err != nil {
				t.Fatal(err)
			}
			newest := versions[len(versions)-1]
			if err := s.CheckVersion(t.Context()); err == nil || !strings.Contains(err.Error(), "run `duly migrate`") {
				t.Errorf("without tables: %v", err)
			}
			db, err := migrateTo(t.Context(), s, 1)
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("has version 1, this binary wants %d: run `duly migrate`", newest)
			if err := s.CheckVersion(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("older: %v", err)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.CheckVersion(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, TRUE)`); err != nil {
				t.Fatal(err)
			}
			want = fmt.Sprintf("has version 1000, this binary knows up to %d", newest)
			for what, err := range map[string]error{"check": s.CheckVersion(t.Context()), "migrate": s.Migrate(t.Context())} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("newer, %s: %v", what, err)
				}
			}
		})
	}
}
