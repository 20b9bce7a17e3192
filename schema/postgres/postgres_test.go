package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// both runs a test at both isolation levels of PostgreSQL.
func both(t *testing.T, test func(*testing.T, schema.Store)) {
	for name, o := range map[string]schema.Options{"read committed": {}, "serializable": {Serializable: true}} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, o)
			if err := s.Partitions(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			test(t, s)
		})
	}
}

// blocked waits until a connection of this database waits for a lock.
func blocked(t *testing.T, db *sql.DB) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		var n int
		err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing waits for the lock")
		}
	}
}

func begin(t *testing.T, db *sql.DB, statement string) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // done already when the test passes
	if _, err := tx.Exec(statement); err != nil {
		t.Fatal(err)
	}
	return tx
}

// behind begins what has to wait for tx, commits tx once it does wait, and gives what
// came of it.
func behind[T any](t *testing.T, db *sql.DB, tx *sql.Tx, do func() (T, error)) (T, error) {
	t.Helper()
	got, errs := make(chan T, 1), make(chan error, 1)
	go func() {
		v, err := do()
		got <- v
		errs <- err
	}()
	blocked(t, db)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return <-got, <-errs
}

// A commit that has passed the fence and is not over yet holds up a takeover,
// which then finds what the commit wrote.
func TestTakeoverWaitsForTheCommitBeforeIt(t *testing.T) {
	both(t, func(t *testing.T, s schema.Store) {
		if _, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "zombie"}); err != nil {
			t.Fatal(err)
		}
		db := dbOf(s)
		zombie := begin(t, db, `UPDATE partitions SET next_number = 5, cursor = 9 WHERE partition = 1 AND epoch = 1`)
		st, err := behind(t, db, zombie, func() (core.PartitionState, error) {
			return s.TakeOver(context.Background(), 1, core.Claim{Owner: "successor"})
		})
		if err != nil || st.NextNumber != 5 || st.Cursor != 9 || st.Epoch != 2 {
			t.Errorf("the takeover found %+v, %v", st, err)
		}
	})
}

// A commit that meets a takeover which is not over yet waits for it and is left
// out, in that partition alone.
func TestCommitWaitsForTheTakeoverBeforeItAndIsLeftOut(t *testing.T) {
	both(t, func(t *testing.T, s schema.Store) {
		for p := range 2 {
			if _, err := s.TakeOver(t.Context(), p, core.Claim{Owner: "zombie"}); err != nil {
				t.Fatal(err)
			}
		}
		db := dbOf(s)
		successor := begin(t, db, `UPDATE partitions SET owner = 'successor', epoch = epoch + 1 WHERE partition = 1`)
		res, err := behind(t, db, successor, func() (core.CommitResult, error) {
			return s.Commit(context.Background(), &core.Batch{
				ID: 1, Partitions: []core.PartitionWrite{{Partition: 0, Epoch: 1, NextNumber: 2, NextEnd: 1}, {Partition: 1, Epoch: 1, NextNumber: 2, NextEnd: 1}},
				Writes: []core.TaskWrite{plainBirth(0, 1), plainBirth(1, 1)},
			})
		})
		if err != nil || len(res.Duplicates) != 0 || len(res.Fenced) != 1 || res.Fenced[0] != 1 {
			t.Errorf("the commit says %+v, %v", res, err)
		}
		for p, want := range []int{1, 0} {
			if saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: p}, []int64{1}); err != nil || len(saved) != want {
				t.Errorf("partition %d holds %d tasks, %v, want %d", p, len(saved), err, want)
			}
		}
	})
}

// TestPurgeWaitsForTheTakeoverBeforeIt: a purge that began under the old epoch waits
// for the takeover that is under way, and then forgets nothing.
func TestPurgeWaitsForTheTakeoverBeforeIt(t *testing.T) {
	both(t, func(t *testing.T, s schema.Store) {
		st, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "zombie"})
		if err != nil {
			t.Fatal(err)
		}
		birth := plainBirth(1, 1)
		task := *birth.Task
		task.Seq, task.State, task.EndNumber, task.EndedAt = 2, core.StateProcessed, 1, task.UpdatedAt
		end := core.TaskWrite{Task: &task, Row: true, Records: []core.Record{{Seq: 2, Kind: core.KindDone, At: task.EndedAt, State: task.State, Step: 0, StepStatus: core.StepDone, Attempt: 1, Next: -1}}}
		for i, w := range []core.TaskWrite{birth, end} {
			b := core.Batch{ID: int64(i + 1), Partitions: []core.PartitionWrite{{Partition: 1, Epoch: st.Epoch, After: int64(i), NextNumber: 2, NextEnd: 2, Told: 1}}, Writes: []core.TaskWrite{w}}
			if res, err := s.Commit(t.Context(), &b); err != nil || len(res.Fenced)+len(res.Duplicates) > 0 {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		db := dbOf(s)
		successor := begin(t, db, `UPDATE partitions SET owner = 'successor', epoch = epoch + 1 WHERE partition = 1`)
		touched, err := behind(t, db, successor, func() (int, error) { return s.Purge(context.Background(), 1, st.Epoch, task.EndedAt+1, 0, 10) })
		if err != nil || touched != 0 {
			t.Errorf("%d tasks purged, %v", touched, err)
		}
		if saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 1}, []int64{1}); err != nil || len(saved) != 1 || len(saved[0].Journal) != 2 {
			t.Errorf("the successor has %+v, %v", saved, err)
		}
	})
}

func plainBirth(p int, number int64) core.TaskWrite {
	at := core.Instant(1_893_456_000_000_000)
	return core.TaskWrite{
		Task: &core.Task{
			Partition: p, Number: number, ID: fmt.Sprintf("t%d", number), Type: "order", State: core.StateProcessing, Seq: 1,
			CreatedAt: at, UpdatedAt: at, Bound: at, Deadline: at,
		},
		Birth:   true,
		Records: []core.Record{{Seq: 1, Kind: core.KindSubmitted, At: at, State: core.StateProcessing, Step: -1, Next: 0, NextAttempt: 1, Due: at}},
	}
}

// The row update of a commit finds its rows by the primary key, whatever the planner
// knows of the table, and for arrays of any length.
func TestCommitReadsByKey(t *testing.T) {
	s := fresh(t, schema.Options{MaxConns: 1})
	db := dbOf(s)
	prepareRows(t, db)
	if text := planOfRows(t, db); !strings.Contains(text, "Conflict Arbiter Indexes: tasks_pkey") || strings.Contains(text, "Scan using") || strings.Contains(text, "on tasks_") {
		t.Error(text)
	}
}

// prepareRows prepares the row update of a commit; planOfRows is its plan then.
func prepareRows(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.Exec("PREPARE commit_rows AS " + postgres.UpdateSQL); err != nil {
		t.Fatal(err)
	}
}

func planOfRows(t *testing.T, db *sql.DB) string {
	t.Helper()
	return storetest.Explain(t, db, "EXECUTE commit_rows("+strings.Repeat("NULL, ", postgres.UpdateParams-1)+"NULL)")
}
