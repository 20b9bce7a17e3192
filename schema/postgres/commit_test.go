package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// atTheEnd makes the end of the first transaction that writes a task do that: the
// statements have gone well by then.
func atTheEnd(t *testing.T, s schema.Store, do string) {
	t.Helper()
	for _, statement := range []string{
		`CREATE SEQUENCE ends`, // counts also what is rolled back
		`CREATE FUNCTION at_the_end() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('ends') = 1 THEN ` + do + ` END IF;
			RETURN NULL;
		END $$`,
		`CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON tasks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_the_end()`,
	} {
		if _, err := dbOf(s).Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
}

// oneBirth commits the birth of one task.
func oneBirth(t *testing.T, s schema.Store) error {
	t.Helper()
	st, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Commit(context.Background(), &core.Batch{
		ID: 1, Partitions: []core.PartitionWrite{{Partition: 1, Epoch: st.Epoch, NextNumber: 2, NextEnd: 1}}, Writes: []core.TaskWrite{plainBirth(1, 1)},
	})
	if len(res.Fenced) > 0 || len(res.Duplicates) > 0 {
		t.Errorf("left out: %+v", res)
	}
	return err
}

func stored(t *testing.T, s schema.Store) int {
	t.Helper()
	saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 1}, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	return len(saved)
}

// What the database says no to at the end of a transaction is refused, not
// counted as committed because its statements went well.
func TestRefusedAtTheEnd(t *testing.T) {
	both(t, func(t *testing.T, s schema.Store) {
		atTheEnd(t, s, `RAISE EXCEPTION 'no' USING ERRCODE = '23514';`)
		if _, err := dbOf(s).Exec(`ALTER SEQUENCE ends MAXVALUE 2 MINVALUE 1 CYCLE`); err != nil { // the task is refused, and the probe after it is not
			t.Fatal(err)
		}
		if err := oneBirth(t, s); !errors.Is(err, core.ErrRowRefused) {
			t.Errorf("error %v, want the row refused", err)
		}
		if n := stored(t, s); n != 0 {
			t.Errorf("%d tasks are stored", n)
		}
	})
}

// Whatever ends the first try at its end, the batch is sent again and found there
// once.
func TestSentAgainAfterTheEnd(t *testing.T) {
	for name, do := range map[string]string{
		"serialization": `RAISE EXCEPTION 'again' USING ERRCODE = '40001';`,
		"deadlock":      `RAISE EXCEPTION 'again' USING ERRCODE = '40P01';`,
		"unknown":       `RAISE EXCEPTION 'who knows' USING ERRCODE = '40003';`,
		"connection":    `PERFORM pg_terminate_backend(pg_backend_pid());`,
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s schema.Store) {
				atTheEnd(t, s, do)
				if err := oneBirth(t, s); err != nil {
					t.Fatal(err)
				}
				if n := stored(t, s); n != 1 {
					t.Errorf("%d tasks are stored", n)
				}
			})
		})
	}
}

// A commit finds its way back from the careful way, and notices in both that an
// id is taken.
func TestTakenIDsInEveryWay(t *testing.T) {
	both(t, func(t *testing.T, s schema.Store) {
		st, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "node"})
		if err != nil {
			t.Fatal(err)
		}
		taken := plainBirth(1, 1)
		for n := range int64(60) {
			w := plainBirth(1, n+1)
			again := n%25 == 1 || n%25 == 2
			if again {
				w.Task.ID = taken.Task.ID
			}
			res, err := s.Commit(t.Context(), &core.Batch{
				ID: n + 1, Partitions: []core.PartitionWrite{{Partition: 1, Epoch: st.Epoch, After: n, NextNumber: n + 2, NextEnd: 1}}, Writes: []core.TaskWrite{w},
			})
			if err != nil || len(res.Fenced) > 0 || (len(res.Duplicates) == 1) != again {
				t.Fatalf("commit %d: %+v, %v", n+1, res, err)
			}
		}
	})
}

// A commit that is given up while the server works on it leaves no connection
// behind on which its answers still come: the next one would take them for its own.
func TestGivenUpInTheMiddle(t *testing.T) {
	s := fresh(t, schema.Options{MaxConns: 2})
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	st, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	last := st.LastCommit
	commit := func(ctx context.Context, n int64) (core.CommitResult, error) {
		after := last
		last = n
		return s.Commit(ctx, &core.Batch{
			ID: n, Partitions: []core.PartitionWrite{{Partition: 1, Epoch: st.Epoch, After: after, NextNumber: n + 1, NextEnd: 1}}, Writes: []core.TaskWrite{plainBirth(1, n)},
		})
	}
	for n := range int64(4) {
		holder, err := dbOf(s).Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(`SELECT 1 FROM partitions WHERE partition = 1 FOR UPDATE`); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = commit(ctx, 100+n)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want the deadline", err)
		}
		if err := holder.Rollback(); err != nil {
			t.Fatal(err)
		}
		// What was given up may have happened all the same.
		if st, err = s.TakeOver(t.Context(), 1, core.Claim{Owner: "node"}); err != nil {
			t.Fatal(err)
		}
		last = st.LastCommit
		// Another task each time: an answer to the one before would be wrong for it.
		for k := range int64(2) {
			if res, err := commit(t.Context(), 1000+10*n+k); err != nil || len(res.Fenced)+len(res.Duplicates) > 0 {
				t.Fatalf("after it: %+v, %v", res, err)
			}
			saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 1}, []int64{1000 + 10*n + k})
			if err != nil || len(saved) != 1 {
				t.Fatalf("%d tasks of number %d, %v", len(saved), 1000+10*n+k, err)
			}
		}
	}
}
