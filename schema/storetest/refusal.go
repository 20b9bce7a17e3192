package storetest

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// CommitOne takes partition 1 over and commits one write there, as the commit of that number.
func CommitOne(ctx context.Context, s schema.Store, number int64, w core.TaskWrite) (core.CommitResult, error) {
	st, err := s.TakeOver(ctx, 1, core.Claim{Owner: "node"})
	if err != nil {
		return core.CommitResult{}, err
	}
	p := core.PartitionWrite{Partition: 1, Epoch: st.Epoch, NextNumber: number + 1, NextEnd: 1}
	return s.Commit(ctx, &core.Batch{ID: number, Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{w}})
}

// RefusesAll puts a database into a state in which it refuses all and out of it, while
// a commit is under way.
func RefusesAll(t *testing.T, s schema.Store, db *sql.DB, number int64, begin, end string) {
	t.Helper()
	st, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(begin); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	done := make(chan error, 1)
	go func() {
		p := core.PartitionWrite{Partition: 1, Epoch: st.Epoch, NextNumber: number + 1, NextEnd: 1}
		_, err := s.Commit(t.Context(), &core.Batch{ID: number, Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{birth(1, number, "refused"+strconv.FormatInt(number, 10))}})
		done <- err
	}()
	since, reason := Troubled(t, s, done)
	if since.Before(from.Add(-time.Second)) || since.After(time.Now()) || reason == nil {
		t.Errorf("trouble since %v: %v", since, reason)
	}
	if _, err := db.Exec(end); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if since, reason := s.Trouble(); !since.IsZero() || reason != nil {
		t.Errorf("trouble is over, and told since %v: %v", since, reason)
	}
	if saved, err := s.LoadNumbers(t.Context(), core.AsOf{Partition: 1}, []int64{number}); err != nil || len(saved) != 1 {
		t.Errorf("%d stored, %v", len(saved), err)
	}
}

// Troubled waits until the store tells that a commit does not get through.
func Troubled(t *testing.T, s schema.Store, done chan error) (time.Time, error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		if since, reason := s.Trouble(); !since.IsZero() {
			return since, reason
		}
		select {
		case err := <-done:
			t.Fatalf("the commit has ended: %v", err)
		case <-deadline:
			t.Fatal("no trouble is told")
		case <-tick.C:
		}
	}
}
