package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// partitions is how many the suite's stores have.
const partitions = 4

// start is when the suite's time begins.
const start = core.Instant(1_893_456_000_000_000)

const node = "node-1"

// rig is a store with what its owner remembers of it.
type rig struct {
	rapid.TB // a *testing.T, or a *rapid.T within a property

	ctx    context.Context
	s      schema.Store
	db     *sql.DB      // nil: not to be had
	calm   schema.Store // what chains are checked through; nil: s
	own    map[int]*core.PartitionState
	commit int64
}

func newRig(tb testing.TB, s schema.Store, db *sql.DB) *rig {
	tb.Helper()
	r := &rig{TB: tb, ctx: context.Background(), s: s, db: db, own: map[int]*core.PartitionState{}}
	r.must(s.Partitions(r.ctx, partitions))
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// get is the value of a call that has to succeed: get(call())(r).
func get[T any](v T, err error) func(*rig) T {
	return func(r *rig) T {
		r.Helper()
		if err != nil {
			r.Fatal(err)
		}
		return v
	}
}

func (r *rig) equal(what string, got, want any) {
	r.Helper()
	if !reflect.DeepEqual(got, want) {
		r.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// takeOver makes the rig the owner of a partition.
func (r *rig) takeOver(p int) *core.PartitionState {
	r.Helper()
	st := get(r.s.TakeOver(r.ctx, p, core.Claim{Owner: node}))(r)
	r.own[p] = &st
	return &st
}

// batch is a batch of the writes, with the partitions they are of.
func (r *rig) batch(writes ...core.TaskWrite) *core.Batch {
	r.Helper()
	r.commit++
	b := &core.Batch{ID: r.commit, Node: node, Writes: writes}
	seen := map[int]bool{}
	for i := range writes {
		p := writes[i].Task.Partition
		if seen[p] {
			continue
		}
		seen[p] = true
		b.Partitions = append(b.Partitions, r.partition(p))
	}
	return b
}

// partition is the write of a partition's own row, which the rig takes over
// first if it is not its own yet.
func (r *rig) partition(p int) core.PartitionWrite {
	r.Helper()
	st := r.own[p]
	if st == nil {
		st = r.takeOver(p)
	}
	return core.PartitionWrite{
		Partition: p, Epoch: st.Epoch, After: st.LastCommit, Cursor: st.Cursor, ControlCursor: st.ControlCursor,
		NextNumber: st.NextNumber, NextEnd: st.NextEnd, Told: st.Told, CursorStored: st.CursorStored, ControlStored: st.ControlStored,
	}
}

// write commits the writes, which all have to be taken.
func (r *rig) write(writes ...core.TaskWrite) {
	r.Helper()
	r.taken(r.batch(writes...))
}

func (r *rig) taken(b *core.Batch) {
	r.Helper()
	r.result(b, core.CommitResult{})
}

func (r *rig) result(b *core.Batch, want core.CommitResult) {
	r.Helper()
	r.equal("result of the commit", get(r.s.Commit(r.ctx, b))(r), want)
	for i := range b.Partitions {
		w := &b.Partitions[i]
		if st := r.own[w.Partition]; st != nil && st.Epoch == w.Epoch && !slices.Contains(want.Fenced, w.Partition) {
			st.LastCommit = b.ID
		}
	}
}

// load is one task as stored, or nil.
func (r *rig) load(p int, number int64) *core.Saved {
	r.Helper()
	saved := get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: p}, []int64{number}))(r)
	if len(saved) == 0 {
		return nil
	}
	return &saved[0]
}

// birth is the write of a new task that has just started its first step.
func birth(p int, number int64, id string) core.TaskWrite {
	at := start.Add(time.Duration(number) * time.Second)
	t := &core.Task{
		Partition: p, Number: number, ID: id, Type: "order", PlanVersion: 1, Input: []byte(`{"n":1}`), InputHash: []byte("hash of " + id),
		State: core.StateProcessing, Seq: 1, Deadline: at.Add(time.Minute), Bound: at.Add(10 * time.Second), LockedBy: node,
		CreatedAt: at, UpdatedAt: at,
	}
	return core.TaskWrite{Task: t, Birth: true, Records: []core.Record{{
		Seq: 1, Kind: core.KindSubmitted, At: at, Actor: node, State: core.StateProcessing, Step: -1, Attempt: 1,
		Next: 0, NextAttempt: 1, Due: at.Add(10 * time.Second), Deadline: at.Add(time.Minute),
	}}}
}

// births are that many births in one partition, from number 1.
func births(p, n int) []core.TaskWrite {
	all := make([]core.TaskWrite, n)
	for i := range all {
		all[i] = birth(p, int64(i+1), fmt.Sprintf("t%d-%d", p, i+1))
	}
	return all
}

// next is the write of a task's next journal row, made by change.
func next(t *core.Task, row bool, change func(*core.Task, *core.Record)) core.TaskWrite {
	copied := *t
	copied.Seq++
	copied.UpdatedAt = copied.UpdatedAt.Add(time.Second)
	rec := core.Record{
		Seq: copied.Seq, Kind: core.KindDone, At: copied.UpdatedAt, Actor: "agent.a", Round: copied.Round,
		Step: -1, Next: -1,
	}
	change(&copied, &rec)
	rec.State = copied.State
	return core.TaskWrite{Task: &copied, Row: row, Records: []core.Record{rec}}
}

// ended is the write that ends a task.
func ended(t *core.Task, state core.State, endNumber int64) core.TaskWrite {
	return next(t, true, func(t *core.Task, rec *core.Record) {
		t.State, t.EndedAt, t.EndNumber, t.LockedBy = state, t.UpdatedAt, endNumber, ""
		rec.Step, rec.StepStatus, rec.Attempt, rec.Result = 0, core.StepDone, 1, []byte(`"done"`)
	})
}

// plan is the plan of the suite's tasks.
func plan() core.Plan {
	return core.Plan{Name: "order", Version: 1, Steps: []core.Step{
		{Name: "check", Agent: "credit.check"},
		{Name: "charge", Agent: "payment", After: []int{0}, Undoable: true, CompleteBy: 1500 * time.Millisecond},
		{Name: "ship", Agent: "ship", After: []int{0, 1}, Undoable: true, OnExhausted: core.PolicyWait},
	}}.WithDefaults()
}
