package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/sqlite"
	"duly.dev/duly/schema/storetest"
)

// migrated is the file of a store with the newest tables, made once and written for each test.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "duly-sqlite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "duly.db")
	s, err := sqlite.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.Migrate(context.Background()), s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path) // all is in it: see TestCloseLeavesNothing
})

// open opens a store, with the newest tables where there is no file yet; it is closed when the test ends.
func open(tb testing.TB, path string) *sqlite.Store {
	tb.Helper()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		file, err := migrated()
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, file, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := sqlite.Open(context.Background(), path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// beside is a store's database as a second process sees it.
func beside(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// covers: S20, S33 in a_live_task_equals_its_replay
// covers: S18, G6 in every_field_comes_back
// covers: G2 in overdue
// covers: inv4 in owners_at_once
// covers: S21 in owners_by_turns
// covers: inv12 in poison
// covers: inv4 in row_of_a_lower_seq
// covers: inv4 in stale_epoch
// covers: inv4 in take_over
// covers: I23 in taken_id
// covers: S3 in view
// covers: L8 in purge_of_a_family
// covers: L16 in purge_of_what_was_passed_over
// covers: Q4 in any_value_comes_back
// covers: Q4 in purge_of_anything
// covers: O11 in counts_that_are_cut
func TestSQLite(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		path := filepath.Join(tb.TempDir(), "duly.db")
		return open(tb, path), beside(tb, path)
	})
}

// covers: OP5, OP21 in list_of_one_microsecond
// covers: OP21 in list_beside_births
// covers: OP5 in list_that_is_cut_off
// covers: OP5 in groups
// covers: OP16 in audit_trail
// covers: OP16 in audit_trail_by_filter
// covers: OP16 in old_audit_entries
// covers: O12 in outcome_with_its_change
// covers: OP3 in freeze_a_group
// covers: OP2 in members_and_tally
func TestSQLiteOperators(t *testing.T) {
	storetest.RunOperators(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		path := filepath.Join(tb.TempDir(), "duly.db")
		return open(tb, path), beside(tb, path)
	})
}

// owned is a store of one partition that is ours, and its file.
func owned(tb testing.TB) (*sqlite.Store, core.PartitionWrite, string) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "duly.db")
	s := open(tb, path)
	if err := s.Partitions(tb.Context(), 1); err != nil {
		tb.Fatal(err)
	}
	st, err := s.TakeOver(tb.Context(), 0, core.Claim{Owner: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	return s, core.PartitionWrite{Epoch: st.Epoch, NextNumber: 1, NextEnd: 1}, path
}

func parked(number int64, input []byte) core.TaskWrite {
	t := &core.Task{
		Number: number, ID: fmt.Sprint("t", number), Type: "order", PlanVersion: 1, Input: input, State: core.StatePending, Seq: 1,
		WaitsFor: "agent", Bound: core.Instant(number), Deadline: core.Instant(number), CreatedAt: 1, UpdatedAt: 1,
	}
	rec := core.Record{Seq: 1, Kind: core.KindSubmitted, At: 1, Actor: "test", State: t.State, Step: -1, Next: -1}
	return core.TaskWrite{Task: t, Birth: true, Records: []core.Record{rec}}
}

// big is how big a task's input is: now and then, a good part of a megabyte.
func big(number int64) int {
	if number%40 < 3 {
		return 700_000
	}
	return int(number % 7)
}

// However many rows a batch has and however big they are, each comes back.
func TestBatchSizes(t *testing.T) {
	s, p, _ := owned(t)
	number := int64(0)
	for batch, size := range []int{1, 3, 65, 129, 200} {
		b := core.Batch{ID: int64(batch + 1), Node: "test"}
		for range size {
			number++
			b.Writes = append(b.Writes, parked(number, bytes.Repeat([]byte{byte(number)}, big(number))))
		}
		p.NextNumber = number + 1
		b.Partitions = []core.PartitionWrite{p}
		for range 2 { // the second finds all its rows standing
			if res, err := s.Commit(t.Context(), &b); err != nil || len(res.Fenced)+len(res.Duplicates) > 0 {
				t.Fatalf("batch of %d: %+v, %v", size, res, err)
			}
		}
		p.After = b.ID
		for i := range b.Writes {
			want := b.Writes[i].Task
			saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 0}, []int64{want.Number})
			if err != nil || len(saved) != 1 || len(saved[0].Journal) != 1 || saved[0].Row.ID != want.ID || !bytes.Equal(saved[0].Row.Input, want.Input) {
				t.Fatalf("task %d of a batch of %d: %v, %d found", want.Number, size, err, len(saved))
			}
		}
	}
}

func TestCommitAfterClose(t *testing.T) {
	s, p, _ := owned(t)
	b := &core.Batch{ID: 1, Node: "test", Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{parked(1, nil)}}
	if _, err := s.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(context.Background(), b); err == nil || errors.Is(err, core.ErrRowRefused) {
		t.Errorf("commit after close: %v", err)
	}
}

func TestCommitCancelled(t *testing.T) {
	s, p, _ := owned(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &core.Batch{ID: 1, Node: "test", Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{parked(1, nil)}}
	for range 10 { // each either commits or does not begin
		if _, err := s.Commit(ctx, b); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if res, err := s.Commit(t.Context(), b); err != nil || len(res.Duplicates) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
}

// A purge that failed does not count as done: the next one takes what it would have taken.
func TestPurgeThatFailsIsDoneAgain(t *testing.T) {
	s, p, _ := owned(t)
	w := parked(1, nil)
	w.Task.State, w.Task.WaitsFor, w.Task.Bound, w.Task.EndedAt, w.Task.EndNumber = core.StateProcessed, "", 0, 1, 1
	w.Records[0].State = core.StateProcessed
	p.NextNumber, p.NextEnd, p.Told = 2, 2, 1
	if _, err := s.Commit(t.Context(), &core.Batch{ID: 1, Node: "test", Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{w}}); err != nil {
		t.Fatal(err)
	}
	const old = 10
	if n, err := s.Purge(t.Context(), 0, p.Epoch, old, 0, 5); n != 1 || err != nil {
		t.Fatalf("details of %d tasks, %v", n, err)
	}
	full := errors.New("the disk is full")
	if _, err := s.PurgeBy(t.Context(), 0, old, old, 5, func(*schema.Old) (int, error) { return 0, full }); !errors.Is(err, full) {
		t.Fatalf("%v, want the error", err)
	}
	if n, err := s.Purge(t.Context(), 0, p.Epoch, old, old, 5); n != 1 || err != nil {
		t.Errorf("%d rows are gone, %v, want the one", n, err)
	}
}

// A task that goes from one state to another while an operation is being frozen is a member all the same, and once.
func TestFreezeOfTasksThatMove(t *testing.T) {
	for what, moves := range map[string]string{"on": "pending", "back": "processing"} {
		t.Run(what, func(t *testing.T) {
			s, p, path := owned(t)
			p.NextNumber = 3
			if _, err := s.Commit(t.Context(), &core.Batch{ID: 1, Node: "test", Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{parked(1, nil), parked(2, nil)}}); err != nil {
				t.Fatal(err)
			}
			for _, query := range []string{ // the first member that is stored has tasks move
				`UPDATE tasks SET state = 'processing' WHERE number = 2`,
				`CREATE TRIGGER moves AFTER INSERT ON operation_members WHEN new.ordinal = -1 BEGIN
				UPDATE tasks SET state = CASE state WHEN 'pending' THEN 'processing' ELSE 'pending' END WHERE state = '` + moves + `'; END`,
			} {
				if _, err := beside(t, path).ExecContext(t.Context(), query); err != nil {
					t.Fatal(err)
				}
			}
			f := core.Filter{Type: "order", MovableTo: 2}
			if n, err := s.Freeze(t.Context(), operate.Operation{ID: "op", Action: operate.ActionMigrate, Created: time.Unix(1, 0)}, operate.Selection{Filter: &f}); n != 2 || err != nil {
				t.Errorf("%d members, %v, want 2", n, err)
			}
		})
	}
}

// chained opens two stores of one file, of which the first keeps chains.
func chained(tb testing.TB) (schema.Store, schema.Store, *sql.DB) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "duly.db")
	plain := open(tb, path)
	s, err := sqlite.OpenWith(context.Background(), path, schema.Options{Chain: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s, plain, beside(tb, path)
}

func TestSQLiteChained(t *testing.T) { storetest.RunChained(t, chained) }
