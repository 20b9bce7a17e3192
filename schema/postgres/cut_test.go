package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// A commit comes back with its outcome wherever its connection is cut, also where
// it is committed already and only looks why the tasks ended that have taken ids.
//
// covers: E28, inv12
func TestCommitCutAnywhere(t *testing.T) {
	t.Parallel()
	direct := pgtestdb.Migrated(t)
	calm := opened(t, direct, schema.Options{MaxConns: 1})
	if err := errors.Join(calm.PutPlan(t.Context(), fivePlan()), calm.Partitions(t.Context(), 1)); err != nil {
		t.Fatal(err)
	}
	st, err := calm.TakeOver(t.Context(), 0, core.Claim{Owner: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	plan := fivePlan()
	var out core.Outcome
	number := int64(0)
	last := st.LastCommit
	write := func(s schema.Store, w core.TaskWrite) (core.CommitResult, error) {
		owner := core.PartitionWrite{Partition: 0, Epoch: st.Epoch, After: last, NextNumber: number + 1, NextEnd: 2}
		last = 1000 + number
		return s.Commit(t.Context(), &core.Batch{ID: 1000 + number, Node: "n1", Partitions: []core.PartitionWrite{owner}, Writes: []core.TaskWrite{w}})
	}
	number++
	never := &core.Task{Number: number, ID: "taken", Type: "order", CreatedAt: 1_893_456_000_000_000, EndNumber: 1}
	core.BirthCancelled(never, &core.Event{At: never.CreatedAt, Actor: "olga", Reason: "not wanted"}, &out)
	if _, err := write(calm, core.TaskWrite{Task: never, Birth: true, Records: out.Records}); err != nil {
		t.Fatal(err)
	}
	cuts := 0
	for n := 1; ; n++ {
		p, err := pgfault.Start(direct, pgfault.Faults{CutAt: n})
		if err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(t.Context(), p.URL(), schema.Options{MaxConns: 2})
		if err == nil {
			number++
			task := &core.Task{Number: number, ID: "taken", Type: "order", Input: []byte(`{}`), InputHash: make([]byte, 32), LockedBy: "n1"}
			core.Birth(&plan, task, &core.Event{At: never.CreatedAt, Actor: "n1"}, &out)
			res, err := write(s, core.TaskWrite{Task: task, Birth: true, Records: out.Records})
			if err != nil || len(res.Duplicates) != 1 || res.Duplicates[0].Existing.Reason != "not wanted" {
				t.Errorf("cut at request %d: %+v, %v", n, res, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if p.Counts()[pgfault.LostBefore] == 0 {
			break
		}
		cuts++
	}
	if cuts < 8 {
		t.Errorf("%d cuts: a commit with a duplicate has more requests", cuts)
	}
	t.Logf("%d cuts", cuts)
}

// fivePlan is a plan of five steps.
func fivePlan() core.Plan {
	p := core.Plan{Name: "order", Version: 1}
	for i := range 5 {
		p.Steps = append(p.Steps, core.Step{Name: fmt.Sprint("step", i), Agent: "agent", Undoable: true})
	}
	return p.WithDefaults()
}
