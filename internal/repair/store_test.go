package repair

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// owner writes what a world's owners decide to a database, as the scheduler does: one batch a turn, fenced, with the
// cursors of the control streams in it.
type owner struct {
	store schema.Store
	own   [partitions]core.PartitionState
	batch core.Batch
	at    map[*task]int // place in the batch
}

// over is a world whose tasks and operations are in a database.
func over(t *testing.T, url string) *world {
	t.Helper()
	ctx := context.Background()
	store, err := dialects.Open(ctx, url, schema.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := store.Partitions(ctx, partitions); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.to = &owner{store: store, at: map[*task]int{}}
	for p := range w.to.own {
		if w.to.own[p], err = store.TakeOver(ctx, p, core.Claim{Owner: "node-1"}); err != nil {
			t.Fatal(err)
		}
	}
	w.db = store
	return w
}

func (o *owner) plan(w *world, p core.Plan) {
	w.t.Helper()
	if err := o.store.PutPlan(context.Background(), p); err != nil {
		w.t.Fatalf("plan %s: %v", p.Name, err)
	}
}

// add puts what an event came to into the batch.
func (o *owner) add(t *task, out *core.Outcome) {
	i, in := o.at[t]
	if !in {
		i = len(o.batch.Writes)
		o.at[t] = i
		o.batch.Writes = append(o.batch.Writes, core.TaskWrite{Task: t.live, Birth: out.Records[0].Seq == 1})
	}
	w := &o.batch.Writes[i]
	w.Records = append(w.Records, out.Records...)
	w.Row = w.Row || out.Row && !w.Birth
}

// flush commits the batch.
func (o *owner) flush(w *world) {
	w.t.Helper()
	moved := false
	for p := range o.own {
		moved = moved || o.own[p].ControlCursor != w.read[p]
	}
	if len(o.batch.Writes) == 0 && !moved {
		return
	}
	o.batch.ID = time.Now().UnixNano()
	o.batch.Node = "node-1"
	for p := range o.own {
		o.batch.Partitions = append(o.batch.Partitions, core.PartitionWrite{
			Partition: p, Epoch: o.own[p].Epoch, After: o.own[p].LastCommit, ControlCursor: w.read[p],
			NextNumber: int64(len(w.tasks)/partitions + 2), NextEnd: w.ends[p] + 1})
	}
	result, err := o.store.Commit(context.Background(), &o.batch)
	if err != nil || len(result.Fenced)+len(result.Duplicates) > 0 {
		w.t.Fatalf("commit of %d tasks: %+v, %v", len(o.batch.Writes), result, err)
	}
	for p := range o.own {
		o.own[p].LastCommit, o.own[p].ControlCursor = o.batch.ID, w.read[p]
	}
	o.batch = core.Batch{}
	clear(o.at)
}

// hasty is a configuration for real time.
func hasty() Config {
	return Config{Now: time.Now, Beat: 5 * time.Millisecond, Interval: 50 * time.Millisecond}
}

// living lets a world's owners live.
func living(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.live(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// onDatabases runs a test on SQLite and on PostgreSQL.
func onDatabases(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, db := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"SQLite", func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "duly.db") }},
		{"PostgreSQL", func(t *testing.T) string { return pgtestdb.Installation(t) }},
	} {
		t.Run(db.name, func(t *testing.T) {
			w := over(t, db.url(t))
			living(t, w)
			test(t, w)
		})
	}
}

// An operation over a real state store: waves, outcomes, what joins since, the brake, and a kill now and then.
//
// covers: OP2, OP3, OP4
func TestOnDatabases(t *testing.T) {
	onDatabases(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 200, "card 17 declined")
		groups, err := w.to.store.Groups(t.Context(), operate.GroupFilter{Type: "order", Limit: 10})
		if err != nil || len(groups.Groups) != 1 || groups.Groups[0].Tasks.N != 200 {
			t.Fatalf("groups %+v, %v", groups, err)
		}
		op := w.started(operate.Selection{Group: groups.Groups[0].ID}, resubmit)
		if op.Rehearsal.Repairable != 200 || op.Rehearsal.Sampled != 0 {
			t.Errorf("rehearsal %+v", op.Rehearsal)
		}
		w.failing(core.PolicyError, 7, "card 18 declined")
		w.by(tasks[100], core.EventUndo)
		w.settle()
		w.set(func() {
			w.answer = func(tk *task, step string, _ bool) answer {
				if tk == tasks[50] && step == "pay" {
					return answer{code: core.CodeRefused, text: "no such account 17"}
				}
				return answer{}
			}
		})
		stop := w.runner(t.Context(), hasty())
		got, members := w.until(op.ID, operate.OperationDone)
		stop()
		if want := (operate.Tally{Done: 198, FailedAgain: 1, Skipped: 1}); got.Tally != want {
			t.Errorf("tally %+v, want %+v", got.Tally, want)
		}
		failed := 0
		for _, m := range members {
			if m.Outcome == operate.OutcomeFailedAgain {
				failed++
				if m.Text != "no such account 17" || m.Fingerprint == "" {
					t.Errorf("the one that failed again: %+v", m)
				}
			}
		}
		if failed != 1 || len(members) != 200 {
			t.Errorf("%d of %d members failed again", failed, len(members))
		}
		shown, err := w.service().Show(t.Context(), op.ID)
		if err != nil || shown.Since.N != 7 {
			t.Errorf("since %+v, %v; want 7", shown.Since, err)
		}
		for i, tk := range tasks {
			if want := map[bool]int{true: 1, false: 0}[i != 100]; tk.asked(op.ID) != want {
				t.Errorf("task %d was asked for %d times", i, tk.asked(op.ID))
			}
		}
	})
}

// covers: OP2, OP4
func TestKillOnDatabases(t *testing.T) {
	onDatabases(t, func(t *testing.T, w *world) {
		want, points := killed(t.Context(), t, w, hasty(), resubmit, 0)
		every := max(1, points/killsMax)
		for at := 1; at <= points; at += every {
			if got, _ := killed(t.Context(), t, w, hasty(), resubmit, at); got != want {
				t.Fatalf("killed at point %d of %d it came to\n%s\nwant\n%s", at, points, got, want)
			}
		}
	})
}

// killsMax bounds the kills of one test over a database.
const killsMax = 15

// An undo of many tasks is over when it has ended.
//
// covers: OP2
func TestUndoOnDatabases(t *testing.T) {
	onDatabases(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 30, "card declined")
		op := w.started(operate.Selection{Filter: &core.Filter{State: core.StateError}}, operate.Request{Action: operate.ActionUndo})
		w.set(func() {
			w.answer = func(tk *task, _ string, undo bool) answer {
				if undo && tk == tasks[7] {
					return answer{code: core.CodeRefused, text: "the parcel has left"}
				}
				return answer{after: 20 * time.Millisecond}
			}
		})
		defer w.runner(t.Context(), hasty())()
		got, members := w.until(op.ID, operate.OperationDone)
		if want := (operate.Tally{Done: 29, FailedAgain: 1}); got.Tally != want {
			t.Errorf("tally %+v, want %+v: %s", got.Tally, want, fmt.Sprint(members))
		}
	})
}
