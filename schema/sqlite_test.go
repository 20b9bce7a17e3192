package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// owned is a store of one partition that is ours.
func owned(tb testing.TB) (schema.Store, core.PartitionWrite) {
	tb.Helper()
	s := open(tb, sqliteURL(tb), schema.Options{})
	if err := s.Partitions(tb.Context(), 1); err != nil {
		tb.Fatal(err)
	}
	st, err := s.TakeOver(tb.Context(), 0, core.Claim{Owner: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	return s, core.PartitionWrite{Epoch: st.Epoch, NextNumber: 1, NextEnd: 1}
}

// The rows of a query end with its error, whenever that comes, and who leaves them leaves no connection behind.
func TestRowsOfAQuery(t *testing.T) {
	s, _ := owned(t)
	db := schema.AskedDB(s)
	for _, query := range []string{"SELECT none FROM nowhere", "SELECT 1 UNION ALL SELECT abs(-9223372036854775808)"} {
		if all, err := schema.ScanColumn[int](db.Query(query)); err == nil || all != nil {
			t.Errorf("%s: %v, %v", query, all, err)
		}
	}
	schema.First(db.Query("SELECT 1 UNION ALL SELECT 2"))
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are in use", n)
	}
}

func parked(number int64, input []byte) core.TaskWrite {
	t := &core.Task{
		Number: number, ID: fmt.Sprint("t", number), Type: "order", PlanVersion: 1, Input: input, State: core.StatePending, Seq: 1,
		WaitsFor: "agent", Bound: core.Instant(number), Deadline: core.Instant(number), CreatedAt: 1, UpdatedAt: 1,
	}
	rec := core.Record{Seq: 1, Kind: core.KindSubmitted, At: 1, Actor: "test", State: t.State, Step: -1, Next: -1}
	return core.TaskWrite{Task: t, Birth: true, Records: []core.Record{rec}}
}

// grown is a store with many parked tasks, many more that have ended, and a few
// that run.
func grown(tb testing.TB, parkedTasks, endedTasks, active int) schema.Store {
	tb.Helper()
	s, p := owned(tb)
	const fill = `WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
		INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, waits_for, complete_by, failure_count, origin, created_at, updated_at,
			ended_at, end_number, commit_id)
		SELECT 0, i, 't' || i, 'order', 1, ?3, 1, 0, ?4, CASE WHEN ?5 THEN NULL ELSE 1000000 + i END, 0, 0, 1, 1, CASE WHEN ?5 THEN 1 END, CASE WHEN ?5 THEN i END, 1 FROM n`
	first := 1
	for _, part := range []struct {
		n     int
		state core.State
		waits any
		ended bool
	}{{active, core.StateProcessing, nil, false}, {parkedTasks, core.StatePending, "agent", false}, {endedTasks, core.StateProcessed, nil, true}} {
		if _, err := schema.WriterDB(s).ExecContext(tb.Context(), fill, first, first+part.n-1, string(part.state), part.waits, part.ended); err != nil {
			tb.Fatal(err)
		}
		first += part.n
	}
	p.NextNumber = int64(first)
	if _, err := s.Commit(tb.Context(), &core.Batch{ID: 1, Node: "test", Partitions: []core.PartitionWrite{p}}); err != nil {
		tb.Fatal(err)
	}
	return s
}

// What runs all the time costs what it finds, not what is stored.
func TestSQLiteAtGrowth(t *testing.T) {
	ctx := t.Context()
	s := grown(t, 60_000, 140_000, 50)
	for query, indexes := range map[string][]string{
		schema.QActive:  {"tasks_active (partition=? AND number>?)"},
		schema.QOverdue: {"tasks_parked (partition=? AND (complete_by,number)>(?,?) AND complete_by<?)", "tasks_active (partition=?)"},
		schema.QSteps: {
			"tasks_parked (partition=? AND (complete_by,number)>(?,?) AND complete_by<?)", "tasks_active (partition=?)", "sqlite_autoindex_tasks_1 (partition=? AND number=?)",
			"sqlite_autoindex_journal_1 (partition=? AND number=?)", "sqlite_autoindex_journal_1 (partition=? AND number=? AND seq>?)",
			"sqlite_autoindex_plan_steps_1 (plan=? AND version=? AND ordinal=?)",
		},
		schema.QWaiting:   {"tasks_waiting (partition=? AND waits_for=? AND number>?)"},
		schema.QNextAgent: {"tasks_waiting (partition=? AND waits_for>?)"},
		schema.QUntold:    {"tasks_ended (partition=? AND end_number>?)"},
	} {
		if got := reads(t, s, query); !slices.Equal(got, indexes) {
			t.Errorf("%s\nreads %q\nwant %q", query, got, indexes)
		}
	}
	for what, do := range map[string]func() (int, error){
		"load active": func() (int, error) {
			saved, err := s.LoadActive(ctx, core.AsOf{Partition: 0}, 0, 1000)
			return len(saved), err
		},
		"overdue": func() (int, error) { due, err := s.Overdue(ctx, 0, 1_000_051, core.Due{}, 1000); return len(due), err },
	} {
		begin := time.Now()
		n, err := do()
		if err != nil || n != 50 {
			t.Errorf("%s: %d, %v, want the 50 that run", what, n, err)
		}
		t.Logf("%s: %v", what, time.Since(begin))
	}
}

// reads are the indexes that SQLite reads for a query, and how; or what else it
// reads.
func reads(t *testing.T, s schema.Store, query string) []string {
	t.Helper()
	rows, err := schema.DB(s).QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, 20)...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		if _, index, ok := strings.Cut(step, " INDEX "); ok {
			all = append(all, index)
		} else if strings.Contains(step, " tasks") {
			all = append(all, step)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
