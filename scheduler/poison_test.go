package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// refuse makes the database refuse rows of those tasks: all of them, or all but
// the one that puts the task in error.
func (r *rig) refuse(bareToo bool, ids ...string) {
	r.store.RefuseRow = func(w *core.TaskWrite) bool {
		bare := w.Records[len(w.Records)-1].Kind == core.KindPoisoned
		return slices.Contains(ids, w.Task.ID) && (bareToo || !bare)
	}
}

// Rows that the database refuses are found by halving; their tasks go to error
// with their input kept, all others are created.
//
// covers: E17, D10, T9, inv12
func TestPoisonNewTask(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for bad := 1; bad <= n; bad++ {
			r := newRig(t, scheduler.Config{})
			r.refuse(false, fmt.Sprintf("t%d", bad), "t8")
			r.tasks(0, orders(n)...)
			r.cycle()
			poisoned := int64(1)
			if n >= 8 && bad != 8 {
				poisoned = 2
			}
			if r.shard.Stats.Poisoned != poisoned {
				t.Fatalf("%d of %d: %d poisoned", bad, n, r.shard.Stats.Poisoned)
			}
			task := r.state(fmt.Sprintf("t%d", bad), core.StateError)
			if string(task.Input) != string(order(task.ID).Input) {
				t.Fatalf("input %s is not kept", task.Input)
			}
			r.finish()
			for i := 1; i <= n; i++ {
				if i != bad && i != 8 {
					r.state(fmt.Sprintf("t%d", i), core.StateProcessed)
				}
			}
			r.checkTold()
		}
	}
}

// checkTold checks that every end number is accounted for.
func (r *rig) checkTold() {
	r.t.Helper()
	if n := r.shard.Load(0); n != 0 {
		r.t.Fatalf("load %d of nothing", n)
	}
	r.flush()
	if st := r.store.Partition(0); st.Told != st.NextEnd-1 || r.shard.Unsaved() {
		r.t.Fatalf("published up to %d of %d, unsaved %v", st.Told, st.NextEnd-1, r.shard.Unsaved())
	}
}

// A new task that is refused even without its optional texts is a dead letter, and
// its message is acknowledged only after that is stored.
//
// covers: D7, D10, inv12
func TestPoisonDeadLetter(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.refuse(true, "t2")
	r.tasks(0, orders(3)...)
	r.cycle()
	if len(r.bus.dead) != 1 || r.bus.dead[0].ID != "t2" || string(r.bus.dead[0].Input) != string(order("t2").Input) {
		t.Fatalf("dead letters %+v", r.bus.dead)
	}
	if list := r.news(); list[len(list)-1] != "ack 1" || !strings.HasPrefix(strings.Join(list, "\n"), "commit 1\ndead t2") {
		t.Fatalf("happened %q", list)
	}
	r.finish()
	r.checkTold()

	r.refuse(true, "t4")
	r.bus.deadErr = errCut
	r.tasks(0, order("t4"))
	r.news()
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatalf("commit cycle: %v", err)
	}
	if list := r.news(); slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, "ack") }) {
		t.Fatalf("happened %q", list)
	}
}

// The submitter of what cannot be stored is notified, once, and only after it is
// stored as what it has come to.
//
// covers: inv12
func TestPoisonedTaskIsReportedToItsSubmitter(t *testing.T) {
	for bare, want := range map[bool]string{false: string(core.StateError), true: core.StatusRefused} {
		r := newRig(t, scheduler.Config{})
		r.refuse(bare, "t2")
		r.tasks(0, orders(3)...)
		r.cycle()
		heard := 0
		for _, n := range r.bus.notices {
			if n.ID == "t2" {
				heard++
				if n.Status != want || n.Error == "" || n.Type != "order" || n.At == 0 {
					t.Errorf("even the bare row %v: the submitter hears %+v", bare, n)
				}
			}
		}
		if heard != 1 {
			t.Errorf("even the bare row %v: the submitter hears %d times of it", bare, heard)
		}
		list := r.news()
		if at := slices.Index(list, "notify private.t2 "+want); at < 1 || at > slices.Index(list, "ack 1") {
			t.Errorf("happened %q", list)
		}
	}
}

// When the one refused row was all there was to write, the cursors of other
// partitions in that commit are still owed.
func TestPoisonAloneOwesTheOtherCursors(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.adopt(1)
	pos := r.tasks(1)
	r.cycle()
	r.refuse(true, "t1")
	r.tasks(0, order("t1"))
	r.flush()
	r.flush()
	r.flush()
	if c := r.store.Partition(1).Cursor; c != pos || r.shard.Unsaved() {
		t.Fatalf("cursor %d, want %d", c, pos)
	}
}

// An update the database refuses puts the task in error as it was stored.
//
// covers: T9, inv12
func TestPoisonUpdate(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(4)...)
	r.cycle()
	cmds := r.bus.take()
	r.refuse(false, "t3")
	for _, c := range cmds {
		r.answer(c, 0)
	}
	r.cycle()
	task := r.state("t3", core.StateError)
	if task.Steps[0].Result != nil || string(task.Input) != string(order("t3").Input) {
		t.Fatalf("stored %+v", task)
	}
	r.store.RefuseRow = nil
	r.finish()
	for _, id := range []string{"t1", "t2", "t4"} {
		r.state(id, core.StateProcessed)
	}
	r.checkTold()
}

// The refused update may have been an ending: the number it was given is spent.
func TestPoisonedEnding(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	r.answer(r.one(), 0)
	r.refuse(false, "t1")
	r.cycle()
	r.state("t1", core.StateError)
	r.cycle()
	r.checkTold()
	if list := r.news(); slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "processed") }) {
		t.Fatalf("happened: %q", list)
	}
}

// A task whose every row is refused is left as it is stored: it stops nothing.
func TestPoisonUpdateRefusedTwice(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(2)...)
	r.cycle()
	r.refuse(true, "t1")
	for _, c := range r.bus.take() {
		r.answer(c, 0)
	}
	r.cycle()
	r.logged("ALERT")
	r.state("t1", core.StateProcessing)
	r.finish()
	r.state("t2", core.StateProcessed)
	r.checkTold()
}

// The owner stood still since before the row that is refused: a successor has ended the
// task, and its detail is forgotten. That is no failure of the cycle.
func TestPoisonOfWhatASuccessorForgot(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(2)...)
	r.cycle()
	refused := r.bus.take()
	old, mail := r.shard, *r.mail
	r.start("n2")
	r.adopt(0)
	r.finish()
	r.flush()
	epoch := r.store.Partition(0).Epoch
	if n, err := r.store.Purge(t.Context(), 0, epoch, r.now.Add(time.Hour), 0, 10); n != 2 || err != nil {
		t.Fatalf("%d forgotten, %v", n, err)
	}
	r.shard, *r.mail = old, mail
	r.refuse(false, "t1")
	r.store.BeforeCommit = func(b *core.Batch) error { // a database looks at rows before it compares the partition's
		if len(b.Writes) > 0 && b.Writes[0].Task.ID == "t1" {
			return core.ErrRowRefused
		}
		return nil
	}
	for _, c := range refused {
		r.answer(c, 0)
	}
	if lost := r.cycle(); !slices.Equal(lost, []int{0}) {
		t.Fatalf("lost %v", lost)
	}
}

// rereads is a store of which tasks are read by number as they are in another one: that of a time that has come meanwhile.
type rereads struct {
	*sim.MemStore
	now *sim.MemStore
}

func (s rereads) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	return s.now.LoadNumbers(ctx, as, numbers)
}

// Between the refusal of a row and the look at its task the database went back, and others went on: the number is another
// task's, of a plan that may be another, or the task is at another row, or not there. The partition is let go, and nothing
// of what was read is used, whatever the row of the partition is like at the next commit.
func TestPoisonOfAnotherLife(t *testing.T) {
	for name, live := range map[string]func(r *rig){
		"another task": func(r *rig) {
			r.store.AddPlan(orderPlan("long", 1, "a", "b", "c", "d"))
			r.tasks(0, core.Submission{Type: "long", ID: "t9", Input: []byte(`{}`)})
			r.cycle()
			for range 3 {
				r.answer(r.one(), 0)
				r.cycle()
			}
		},
		"another task of the same plan": func(r *rig) {
			r.tasks(0, order("t9"))
			r.cycle()
		},
		"a later row": func(r *rig) {
			r.tasks(0, order("t1"))
			r.cycle()
			r.answer(r.one(), 0)
			r.cycle()
		},
		"none": func(*rig) {},
	} {
		t.Run(name, func(t *testing.T) {
			later := newRig(t, scheduler.Config{})
			live(later)
			r := newRig(t, scheduler.Config{})
			r.shard = scheduler.NewShard(r.cfg, rereads{r.store, later.store}, r.bus, slog.New(slog.DiscardHandler), chance("n1"), func(scheduler.PublishedMail) {}, func(scheduler.ProbedMail) {})
			r.adopt(0)
			r.tasks(0, order("t1"))
			r.cycle()
			r.refuse(false, "t1")
			r.answer(r.one(), 0)
			if lost := r.cycle(); !slices.Equal(lost, []int{0}) {
				t.Fatalf("lost %v", lost)
			}
			if got := r.store.Task(0, "t1"); got.State != core.StateProcessing || got.Seq != 1 {
				t.Errorf("t1 has gone on:\n%s", r.store.History(0, "t1"))
			}
		})
	}
}

// Poison in one partition, a fence in another, in one commit.
//
// covers: inv12
func TestPoisonAndFence(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.adopt(1)
	r.steal(1)
	r.refuse(false, "t2")
	r.tasks(0, orders(4)...)
	r.tasks(1, order("t5"), order("t6"))
	if lost := r.cycle(); !slices.Equal(lost, []int{1}) {
		t.Fatalf("lost %v", lost)
	}
	r.state("t2", core.StateError)
	r.finish()
	for _, id := range []string{"t1", "t3", "t4"} {
		r.state(id, core.StateProcessed)
	}
	r.checkTold()
}

// What a halved batch finds out about ids that are taken counts like what a whole one does:
// a task that is known neither runs again nor is its submitter notified of an error, also when
// the row that came again is the one that the database refuses.
//
// covers: inv9
func TestPoisonAndDuplicate(t *testing.T) {
	for _, bad := range []string{"t1", "t2"} {
		r := newRig(t, scheduler.Config{})
		r.tasks(0, order("t1"))
		r.cycle()
		r.finish()
		r.state("t1", core.StateProcessed)
		r.refuse(false, bad)
		r.bus.notices = nil
		r.tasks(0, orders(3)...) // t1 again
		r.cycle()
		for _, c := range r.bus.take() {
			if c.Task == "t1" {
				t.Errorf("%s is refused, and t1 runs again: %+v", bad, c)
			}
			r.answer(c, 0)
		}
		heard := map[string][]string{}
		for _, s := range r.bus.notices {
			heard[s.ID] = append(heard[s.ID], s.Status)
		}
		if words := heard["t1"]; slices.Contains(words, "error") || bad != "t1" && !slices.Equal(words, []string{"processed"}) {
			t.Errorf("%s is refused, and the submitter of t1 hears %q", bad, words)
		}
		r.cycle()
		r.finish()
		r.state("t1", core.StateProcessed)
		r.state("t3", core.StateProcessed)
		if r.shard.Stats.Duplicates != 1 {
			t.Errorf("%d duplicates, want 1", r.shard.Stats.Duplicates)
		}
	}
}
