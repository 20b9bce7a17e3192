package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/storetest"
)

// asked is a store with many tasks, in partition 1 of both.
func asked(t *testing.T, dialect string) schema.Store {
	t.Helper()
	s := fresh(t, dialect, schema.Options{MaxConns: 2})
	if err := s.Partitions(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	if dialect == "sqlite" {
		const fill = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
			INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, waits_for, complete_by, failure_count, origin, created_at, updated_at,
				ended_at, end_number, commit_id)
			SELECT 1, i, 't' || i, 'order', 1, CASE WHEN i % 60 < 40 THEN 'processed' WHEN i % 60 < 59 THEN 'pending' ELSE 'processing' END, 1, 0,
				CASE WHEN i % 60 BETWEEN 40 AND 58 THEN 'agent' END, 1, 0, 0, i, 1, CASE WHEN i % 60 < 40 THEN 1 END, CASE WHEN i % 60 < 40 THEN i END, 1 FROM n`
		for _, statement := range []string{fill, someFailed} {
			if _, err := schema.WriterDB(s).Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	for _, statement := range []string{storetest.ManyTasks(100_000), someFailed, "VACUUM ANALYZE tasks"} {
		if _, err := schema.DB(s).Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// someFailed makes every tenth task that has ended one that failed, in a few ways.
const someFailed = `UPDATE tasks SET state = CASE WHEN number % 3 = 0 THEN 'error' ELSE 'undone' END, failed_step = number % 5, fingerprint = '00000000000000' || (10 + number % 50)
	WHERE state = 'processed' AND number % 10 = 0`

// planOf is how a database answers a question.
func planOf(t *testing.T, s schema.Store, q schema.Question) string {
	t.Helper()
	explain := "EXPLAIN "
	if s.Dialect() == "sqlite" {
		explain += "QUERY PLAN "
	}
	rows, err := schema.AskedDB(s).Query(explain+q.SQL, q.Args...)
	if err != nil {
		t.Fatalf("%s: %v", q.SQL, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, *values[len(values)-1].(*any))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// Lists of the tasks in one state, and counts, go by an index of those tasks, on either
// store: none reads the table.
// covers: C16
func TestAskedByIndex(t *testing.T) {
	for dialect := range stores {
		t.Run(dialect, func(t *testing.T) {
			s := asked(t, dialect)
			key := map[string]string{"postgres": "tasks_pkey", "sqlite": "sqlite_autoindex_tasks_1"}[dialect]
			for state, index := range map[core.State]string{
				"": key, core.StatePending: "tasks_pending", core.StateProcessing: "tasks_active", core.StateUndoing: "tasks_active",
				core.StateUndone: "tasks_by_state", core.StateError: "tasks_by_state", core.StateProcessed: key,
			} {
				for _, below := range []int64{1 << 62, 500} {
					questions, err := schema.Listing(t.Context(), s, core.Filter{State: state, Limit: 50}, below)
					if err != nil || len(questions) == 0 {
						t.Fatal(len(questions), err)
					}
					for _, q := range questions {
						wholly(t, s, fmt.Sprintf("list of %q below %d", state, below), index, planOf(t, s, q))
					}
				}
			}
			for _, q := range schema.GroupQuestions(s) {
				wholly(t, s, q.SQL, "tasks_group", planOf(t, s, q))
			}
			for _, f := range []core.Filter{
				{Limit: 50, Type: "order", State: core.StateError, Fingerprint: "0000000000000030"}, {Limit: 50, Fingerprint: "0000000000000030"},
			} {
				questions, err := schema.Listing(t.Context(), s, f, 1<<62)
				if err != nil || len(questions) == 0 {
					t.Fatal(len(questions), err)
				}
				for _, q := range questions {
					wholly(t, s, q.SQL, "tasks_groups", planOf(t, s, q))
				}
			}
			db := schema.DB(s)
			if dialect == "sqlite" {
				db = schema.WriterDB(s)
			}
			// Of a rare label and of one that every second task has.
			for _, fill := range []string{
				`INSERT INTO labels SELECT partition, number, 'rare', CASE WHEN number % 100 = 0 THEN 'x' ELSE 'y' END FROM tasks WHERE number % 10 = 0`,
				`INSERT INTO labels SELECT partition, number, 'often', 'x' FROM tasks WHERE number % 2 = 0`,
				`ANALYZE labels`,
			} {
				if _, err := db.Exec(fill); err != nil {
					t.Fatal(err)
				}
			}
			for _, label := range []string{"rare=x", "often=x", "none=x"} {
				of := schema.Labelled(s, label)
				if plan := planOf(t, s, of[0]); strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "SCAN") || strings.Contains(plan, "Sort") || !strings.Contains(plan, "labels_found") {
					t.Errorf("numbers of %s: want labels_found, in its order:\n%s", label, plan)
				}
				wholly(t, s, "tasks of "+label, key, planOf(t, s, of[1]))
			}
			for i, q := range schema.SignalQuestions(s) {
				plan, index := planOf(t, s, q), []string{"tasks_signal_due", "tasks_signal_since", "tasks_signal_due"}[i]
				if !strings.Contains(plan, index) || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "TREE FOR ORDER BY") {
					t.Errorf("want %s, in its order:\n%s", index, plan)
				}
			}
			questions, err := schema.Listing(t.Context(), s, core.Filter{Limit: 50, OpenSignal: true}, 1<<62)
			if err != nil || len(questions) != 1 {
				t.Fatal(len(questions), err)
			}
			wholly(t, s, questions[0].SQL, "tasks_signals", planOf(t, s, questions[0]))
			for i, q := range schema.Countings(s) {
				wholly(t, s, q.SQL, []string{"tasks_active", "tasks_active", "tasks_pending", "tasks_by_state", "tasks_by_state", "tasks_ended"}[i], planOf(t, s, q))
			}
		})
	}
}

// wholly checks that a plan reads the index, and no table in any other way; the parent of each row, for its id, by its key.
func wholly(t *testing.T, s schema.Store, what, index, plan string) {
	t.Helper()
	reads := 0
	for line := range strings.Lines(plan) {
		if !strings.Contains(line, "tasks") || strings.Contains(line, " Key: ") || strings.Contains(line, " Cond: ") || strings.Contains(line, "Subquery Scan") ||
			strings.Contains(line, "CO-ROUTINE") || strings.Contains(line, "SCAN tasks") && strings.Contains(plan, "CO-ROUTINE tasks") {
			continue
		}
		if strings.Contains(line, "tasks_pkey on tasks up ") || strings.Contains(line, "SEARCH up USING INDEX sqlite_autoindex_tasks_1 (partition=? AND number=?)") {
			continue
		}
		reads++
		scansAll := strings.Contains(line, "Seq Scan") || s.Dialect() == "sqlite" && strings.Contains(line, "SCAN")
		if scansAll || !strings.Contains(line, index) && !strings.Contains(line, "Bitmap Heap Scan") {
			t.Errorf("%s: want %s, and no other:\n%s", what, index, plan)
			return
		}
	}
	if reads == 0 {
		t.Errorf("%s reads nothing:\n%s", what, plan)
	}
}

// Who asks cannot delay a commit, and its questions are planned as PostgreSQL does, for
// so long at most.
// covers: C16
func TestAskedBesideCommits(t *testing.T) {
	s := fresh(t, "postgres", schema.Options{MaxConns: 2})
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if err := s.PutPlan(t.Context(), benchPlan()); err != nil {
		t.Fatal(err)
	}
	w := plainBirth(1, 1)
	w.Task.PlanVersion = 1
	if _, err := storetest.CommitOne(t.Context(), s, 1, w); err != nil {
		t.Fatal(err)
	}
	var scans, timeout string
	if err := schema.AskedDB(s).QueryRow(`SELECT current_setting('enable_seqscan'), current_setting('statement_timeout')`).Scan(&scans, &timeout); err != nil {
		t.Fatal(err)
	}
	if scans != "on" || timeout != "30s" {
		t.Errorf("enable_seqscan %s, statement_timeout %s", scans, timeout)
	}
	holder, err := schema.DB(s).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }()
	if _, err := holder.Exec(`LOCK TABLE plans IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	const askers = 8
	done := make(chan error, askers)
	for range askers {
		go func() {
			_, err := s.Get(ctx, 1, "t1")
			done <- err
		}()
	}
	eventually(t, "those who ask wait", func() bool {
		var n int
		if err := holder.QueryRow(`SELECT count(*) FROM pg_locks WHERE relation = 'plans'::REGCLASS AND NOT granted`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n >= 4
	})
	if _, err := storetest.CommitOne(t.Context(), s, 2, plainBirth(1, 2)); err != nil {
		t.Error(err)
	}
	cancel()
	for range askers {
		if err := <-done; err == nil {
			t.Error("answered, while the plans were locked")
		}
	}
}
