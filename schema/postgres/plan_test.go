package postgres_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// A table that was vacuumed while it was empty counts as empty until it is analyzed. The
// update of a commit finds its rows by their key all the same: it reads no more of the
// index than there are rows to update.
func TestCommitsToAnEmptiedTable(t *testing.T) {
	s := fresh(t, schema.Options{MaxConns: 1})
	if err := s.Partitions(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	db := dbOf(s)
	for _, statement := range []string{`ALTER TABLE tasks SET (autovacuum_enabled = false)`, storetest.ManyTasks(30_000), "DELETE FROM tasks", "VACUUM (TRUNCATE FALSE) tasks"} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if plan := storetest.Explain(t, db, `SELECT 1 FROM tasks, generate_series(1, 1000) AS n WHERE partition = 1 AND number = n`); !strings.Contains(plan, "rows=1 ") {
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
	s := fresh(t, schema.Options{MaxConns: 1})
	if err := s.Partitions(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	db := dbOf(s)
	run := func(statement string) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run(storetest.ManyTasks(300))
	run("VACUUM ANALYZE")
	if saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 1}, []int64{7, 8, 9}); err != nil || len(saved) != 3 {
		t.Fatalf("%d tasks, %v", len(saved), err)
	}
	run(strings.Replace(storetest.ManyTasks(30_000), "generate_series(0,", "generate_series(304,", 1))
	run(`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		SELECT g % 16, g / 32 + 1, g / 16 % 2, now(), 'node', 1, 1, 'begun', 'processing', 0, 0, FALSE FROM generate_series(0, 29999) AS g`)
	run(`UPDATE partitions SET forgotten = 1000000`)
	for _, q := range postgres.Lists() {
		run("PREPARE " + prepared(q.Name) + " AS " + q.SQL) // planned now, as each call of the store is
		plan := storetest.Explain(t, db, "(ANALYZE, TIMING OFF) EXECUTE "+prepared(q.Name)+"("+q.Values+")")
		t.Logf("%s:\n%s", q.Name, plan)
		if read := largest(t, plan); read > 20 {
			t.Errorf("%s: a part of it went over %d rows for 3", q.Name, read)
		}
	}
	// A read of the store leaves no plan behind.
	if _, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 1}, []int64{7, 8, 9}); err != nil {
		t.Fatal(err)
	}
	var kept int
	if err := db.QueryRow(`SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql AND statement LIKE '%FROM tasks%'`).Scan(&kept); err != nil || kept > 0 {
		t.Errorf("%d plans of reads are kept (%v)", kept, err)
	}
}

func prepared(name string) string { return strings.ReplaceAll(name, " ", "_") }

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
