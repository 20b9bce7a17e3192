package schema_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/storetest"
)

// manyEnv makes the table of TestReadsByIndex as long as that, and has it log what the
// reads take.
const manyEnv = "DULY_TEST_MANY_TASKS"

// What reads look for is found by an index of nothing else, also before the table
// has statistics.
func TestReadsByIndex(t *testing.T) {
	s := fresh(t, "postgres", schema.Options{MaxConns: 1})
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
	fill := storetest.ManyTasks(n)
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
		plan := storetest.Explain(t, db, "(ANALYZE, BUFFERS) EXECUTE "+prepared(q.Name)+"("+q.Values+")")
		t.Logf("%s:\n%s", q.Name, plan)
		want := map[string]bool{}
		for _, index := range q.Indexes {
			want[index] = true
		}
		for _, index := range []string{"Seq Scan", "tasks_pkey", "tasks_id", "tasks_active", "tasks_parked", "tasks_waiting", "tasks_ended", "tasks_by_state", "tasks_groups"} {
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
			_, err := s.Overdue(ctx, 0, core.InstantOf(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)), core.Due{}, 1000)
			return err
		}},
		{"a tick with nothing overdue", func() error { _, err := s.Overdue(ctx, 0, 1, core.Due{}, 1000); return err }},
		{"agents waited for", func() error { _, err := s.WaitingAgents(ctx, core.AsOf{Partition: 1}); return err }},
		{"a page of active tasks", func() error { _, err := s.LoadActive(ctx, core.AsOf{Partition: 1}, 0, 1000); return err }},
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
