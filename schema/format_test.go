package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// A journal row of a later format is refused with its task number, and not read as
// if it were of ours: side by side with a newer binary, an old one must not go on with
// what it does not understand. Tasks beside it are read as before.
//
// covers: inv12, L3
func TestLaterJournalFormatIsRefused(t *testing.T) {
	for _, name := range []string{"postgres", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, name, schema.Options{})
			two(t, s)
			db := schema.DB(s)
			if name == "sqlite" { // the store's own connections for reading cannot write
				db = schema.WriterDB(s)
			}
			later(t, db)
			for what, read := range map[string]func() error{
				"active": func() error {
					saved, err := s.LoadActive(t.Context(), core.AsOf{Partition: 0}, 0, 10)
					return errors.Join(err, saved[1].Err)
				},
				"number": func() error {
					saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 0}, []int64{2})
					return errors.Join(err, saved[0].Err)
				},
				"id": func() error {
					saved, err := s.LoadIDs(t.Context(), core.AsOf{Partition: 0}, []string{"t2"})
					return errors.Join(err, saved[0].Err)
				},
				"journal": func() error { _, err := s.Journal(t.Context(), 0, 2); return err },
				"get":     func() error { _, err := s.Get(t.Context(), 0, "t2"); return err },
			} {
				if err := read(); err == nil || !strings.Contains(err.Error(), "of task number 2 has format 2, this binary knows up to 1: use a newer binary") {
					t.Errorf("%s: %v", what, err)
				}
			}
			saved, err := s.LoadActive(t.Context(), core.AsOf{Partition: 0}, 0, 10)
			if err != nil || len(saved) != 2 || saved[0].Err != nil || len(saved[0].Journal) != 1 || core.FaultOf(saved[1].Err).Stops != core.StopsTask {
				t.Errorf("the task beside it: %v, %+v", err, saved)
			}
			if name == "postgres" { // which takes no text for a time
				return
			}
			if _, err := db.ExecContext(t.Context(), `UPDATE tasks SET created_at = 'soon' WHERE number = 1`); err != nil {
				t.Fatal(err)
			}
			saved, err = s.LoadActive(t.Context(), core.AsOf{Partition: 0}, 0, 10)
			if err != nil || len(saved) != 2 || saved[0].Row.ID != "t1" || core.FaultOf(saved[0].Err).Stops != core.StopsTask {
				t.Errorf("a row that does not parse: %v, %+v", err, saved)
			}
		})
	}
}

// two stores two tasks that are processing.
func two(t *testing.T, s schema.Store) {
	t.Helper()
	if err := s.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	st, err := s.TakeOver(t.Context(), 0, core.Claim{Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b := core.Batch{ID: 1, Node: "test", Writes: []core.TaskWrite{parked(1, nil), parked(2, nil)}}
	for i := range b.Writes {
		b.Writes[i].Task.State, b.Writes[i].Task.WaitsFor = core.StateProcessing, ""
		b.Writes[i].Records[0].State = core.StateProcessing
	}
	b.Partitions = []core.PartitionWrite{{Epoch: st.Epoch, NextNumber: 3, NextEnd: 1}}
	if res, err := s.Commit(t.Context(), &b); err != nil || len(res.Fenced)+len(res.Duplicates) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
}

func later(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), `UPDATE journal SET format = 2 WHERE number = 2`); err != nil {
		t.Fatal(err)
	}
}

// A task's input is in its first journal row, and another in the row of an edit, whichever way a commit goes: one with an
// id that is taken goes the careful way.
func TestInputIsInTheFirstRow(t *testing.T) {
	for _, name := range []string{"postgres", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, name, schema.Options{})
			two(t, s)
			last := int64(1)
			commit := func(id int64, left int, writes ...core.TaskWrite) {
				t.Helper()
				p := core.PartitionWrite{Epoch: 1, After: last, NextNumber: 10, NextEnd: 1}
				last = id
				res, err := s.Commit(t.Context(), &core.Batch{ID: id, Partitions: []core.PartitionWrite{p}, Writes: writes})
				if err != nil || len(res.Duplicates) != left {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			moved := func(w core.TaskWrite) core.TaskWrite {
				task, rec := *w.Task, w.Records[0]
				task.Seq, rec.Seq, rec.Kind = 2, 2, core.KindAsked
				return core.TaskWrite{Task: &task, Records: []core.Record{rec}}
			}
			three, four, taken := parked(3, []byte(`3`)), parked(4, []byte(`4`)), parked(5, nil)
			taken.Task.ID = "t1"
			commit(2, 0, three, parked(6, nil))
			commit(3, 1, four, taken, parked(7, nil), moved(three))
			commit(4, 0, moved(four))
			edited, accepted := moved(moved(three)), moved(moved(four))
			for _, w := range []core.TaskWrite{edited, accepted} {
				w.Task.Seq, w.Records[0].Seq = 3, 3
			}
			edited.Records[0].Kind, edited.Records[0].Input = core.KindResubmitted, []byte(`33`)
			accepted.Records[0].Kind = core.KindAccepted
			commit(5, 0, edited)
			taken.Task.Number = 8
			commit(6, 1, accepted, taken) // the careful way
			rows, err := schema.DB(s).Query(`SELECT number, seq, input FROM journal WHERE number > 2 ORDER BY number, seq`)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			var got []string
			for rows.Next() {
				var number, seq int
				var input []byte
				if err := rows.Scan(&number, &seq, &input); err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%d.%d: %q", number, seq, input))
			}
			want := []string{
				`3.1: "3"`, `3.2: ""`, `3.3: "33"`, `4.1: "4"`, `4.2: ""`, `4.3: ""`, `6.1: ""`, `7.1: ""`,
			}
			if err := rows.Err(); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
