package schema_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtest/pgtestdb"
	"duly.dev/duly/schema"
)

// manyTasks is a table in which two of three tasks have ended, nearly all others
// are parked, and one in sixty is in hand.
const manyTasks = `INSERT INTO tasks (partition, number, id, type, plan_version, input, state, seq, round, waits_for, complete_by, failure_count, origin,
	created_at, updated_at, ended_at, end_number, commit_id)
SELECT g %% 16, g / 16 + 1, md5(g::TEXT), 'order', 1, 'input', CASE WHEN k < 40 THEN 'processed' WHEN k < 59 THEN 'pending' ELSE 'processing' END, 7, 0,
	CASE WHEN k BETWEEN 40 AND 58 THEN 'agent' || g %% 3 END, CASE WHEN k >= 40 THEN '2030-01-01'::TIMESTAMPTZ + g * INTERVAL '1 ms' END, 0, g,
	'2026-01-01'::TIMESTAMPTZ + g * INTERVAL '1 ms', '2026-01-02', CASE WHEN k < 40 THEN '2026-01-02'::TIMESTAMPTZ END, CASE WHEN k < 40 THEN g / 16 + 1 END, 1
FROM (SELECT g, g / 16 %% 60 AS k FROM generate_series(0, %d - 1) AS g) AS g`

// manyEnv makes the table of TestReadsByIndex as long as that, and has it log what the
// reads take.
const manyEnv = "DULY_TEST_MANY_TASKS"

// What reads look for is found by an index of nothing else, also before the table
// has statistics.
func TestReadsByIndex(t *testing.T) {
	s := open(t, pgtestdb.URL(t), schema.Options{MaxConns: 1})
	if err := s.Partitions(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	n := 30_000
	if v := os.Getenv(manyEnv); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	db := schema.DB(s)
	for _, q := range schema.Reads {
		if _, err := db.Exec(fmt.Sprintf("PREPARE %s AS %s", prepared(q.Name), q.SQL)); err != nil {
			t.Fatal(err)
		}
	}
	fill := fmt.Sprintf(manyTasks, n)
	for _, statement := range []string{fill, "VACUUM ANALYZE tasks"} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
		readsByIndex(t, db)
		if os.Getenv(manyEnv) != "" {
			timeReads(t, s)
		}
	}
}

func prepared(name string) string { return strings.ReplaceAll(name, " ", "_") }

func readsByIndex(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, q := range schema.Reads {
		plan := explain(t, db, "(ANALYZE, BUFFERS) EXECUTE "+prepared(q.Name)+"("+q.Values+")")
		t.Logf("%s:\n%s", q.Name, plan)
		want := map[string]bool{}
		for _, index := range q.Indexes {
			want[index] = true
		}
		for _, index := range []string{"Seq Scan", "tasks_pkey", "tasks_id", "tasks_active", "tasks_parked", "tasks_waiting", "tasks_ended", "tasks_failed"} {
			if strings.Contains(plan, index) != want[index] {
				t.Errorf("%s: %s is in the plan: %v", q.Name, index, !want[index])
			}
		}
	}
}

// timeReads logs what the reads of a running system take.
func timeReads(t *testing.T, s schema.Store) {
	t.Helper()
	ctx := t.Context()
	for _, read := range []struct {
		name string
		do   func() error
	}{
		{"a tick with 1000 overdue", func() error {
			_, err := s.Overdue(ctx, core.InstantOf(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)), core.Due{}, 1000)
			return err
		}},
		{"a tick with nothing overdue", func() error { _, err := s.Overdue(ctx, 1, core.Due{}, 1000); return err }},
		{"agents waited for", func() error { _, err := s.WaitingAgents(ctx, 1); return err }},
		{"a page of active tasks", func() error { _, err := s.LoadActive(ctx, 1, 0, 1000); return err }},
		{"counts", func() error { _, err := s.Counts(ctx); return err }},
		{"a page of the list", func() error { return listPages(ctx, s, core.Filter{Limit: 50}, 1) }},
		{"a hundred pages of the list", func() error { return listPages(ctx, s, core.Filter{Limit: 50}, 100) }},
		{"a page of the parked", func() error { return listPages(ctx, s, core.Filter{Limit: 50, State: core.StatePending}, 1) }},
		{"a page of the failed, of which there are none", func() error { return listPages(ctx, s, core.Filter{Limit: 50, State: core.StateError}, 1) }},
	} {
		for range 2 { // the second without planning
			at := time.Now()
			if err := read.do(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %v", read.name, time.Since(at))
		}
	}
}

func listPages(ctx context.Context, s schema.Store, f core.Filter, pages int) error {
	for range pages {
		page, err := s.List(ctx, f)
		if err != nil {
			return err
		}
		f.After = page.Next
	}
	return nil
}

// A table that was vacuumed while it was empty counts as empty until it is analyzed. The
// update of a commit finds its rows by their key all the same: it reads no more of the
// index than there are rows to update.
func TestCommitsToAnEmptiedTable(t *testing.T) {
	s := open(t, pgtestdb.URL(t), schema.Options{MaxConns: 1})
	if err := s.Partitions(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	db := schema.DB(s)
	for _, statement := range []string{`ALTER TABLE tasks SET (autovacuum_enabled = false)`, fmt.Sprintf(manyTasks, 30_000), "DELETE FROM tasks", "VACUUM (TRUNCATE FALSE) tasks"} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if plan := explain(t, db, `SELECT 1 FROM tasks, generate_series(1, 1000) AS n WHERE partition = 1 AND number = n`); !strings.Contains(plan, "rows=1 ") {
		t.Errorf("the database knows how many tasks there are, and this test is of no use:\n%s", plan)
	}
	st, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	const tasks = 2000
	births, ends := &core.Batch{ID: 1}, &core.Batch{ID: 2}
	for n := range int64(tasks) {
		w := plainBirth(1, n+1)
		births.Writes = append(births.Writes, w)
		task := *w.Task
		task.Seq, task.State, task.EndNumber = 2, core.StateProcessed, n+1
		ends.Writes = append(ends.Writes, core.TaskWrite{Task: &task, Row: true})
	}
	for i, b := range []*core.Batch{births, ends} {
		b.Partitions = []core.PartitionWrite{{Partition: 1, Epoch: st.Epoch, After: int64(i), NextNumber: tasks + 1, NextEnd: tasks + 1}}
		if _, err := s.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	var read, seq, updated int
	eventually(t, "the counters of the server tell of the updates", func() bool {
		err := db.QueryRow(`SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'tasks'), seq_tup_read, n_tup_upd
			FROM pg_stat_user_tables WHERE relname = 'tasks'`).Scan(&read, &seq, &updated)
		if err != nil {
			t.Fatal(err)
		}
		return updated >= tasks
	})
	t.Logf("%d entries of indexes and %d rows were read to update %d", read, seq, tasks)
	if seq > 30_000 || read > 20*tasks {
		t.Errorf("%d entries of indexes and %d rows were read to update %d", read, seq, tasks)
	}
}

// What goes by a list looks up each of it, also where the tables grew since they were
// looked at last: plans are not kept.
func TestListsByKey(t *testing.T) {
	s := open(t, pgtestdb.URL(t), schema.Options{MaxConns: 1})
	if err := s.Partitions(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	db := schema.DB(s)
	run := func(statement string) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run(fmt.Sprintf(manyTasks, 300))
	run("VACUUM ANALYZE")
	if saved, err := s.LoadNumbers(t.Context(), 1, []int64{7, 8, 9}); err != nil || len(saved) != 3 {
		t.Fatalf("%d tasks, %v", len(saved), err)
	}
	run(strings.Replace(fmt.Sprintf(manyTasks, 30_000), "generate_series(0,", "generate_series(304,", 1))
	run(`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		SELECT g % 16, g / 32 + 1, g / 16 % 2, now(), 'node', 1, 1, 'begun', 'processing', 0, 0, FALSE FROM generate_series(0, 29999) AS g`)
	for _, q := range schema.Lists() {
		run(fmt.Sprintf("PREPARE %s AS %s", prepared(q.Name), q.SQL)) // planned now, as each call of the store is
		plan := explain(t, db, "(ANALYZE, TIMING OFF) EXECUTE "+prepared(q.Name)+"("+q.Values+")")
		t.Logf("%s:\n%s", q.Name, plan)
		if read := largest(t, plan); read > 20 {
			t.Errorf("%s: a part of it went over %d rows for 3", q.Name, read)
		}
	}
	// A read of the store leaves no plan behind.
	if _, err := s.LoadNumbers(t.Context(), 1, []int64{7, 8, 9}); err != nil {
		t.Fatal(err)
	}
	var kept int
	if err := db.QueryRow(`SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%FROM tasks%ANY%' AND name NOT IN ('numbers', 'ids', 'forget_rows', 'forget_inputs', 'forget')`).Scan(&kept); err != nil || kept > 0 {
		t.Errorf("%d plans of reads are kept (%v)", kept, err)
	}
}

// largest is over how many rows that part of a plan went that went over the most.
func largest(t *testing.T, plan string) int {
	t.Helper()
	most := 0
	for _, count := range regexp.MustCompile(`(?:Removed by \w+ ?\w*: |actual rows=)(\d+)`).FindAllStringSubmatch(plan, -1) {
		n, err := strconv.Atoi(count[1])
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	return most
}
