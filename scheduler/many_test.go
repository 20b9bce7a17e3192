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

// inError makes n tasks of a plan that stops for an operator; all of them have stopped at journal row 2.
func inError(t *testing.T, n int, cfg scheduler.Config) *rig {
	t.Helper()
	r := newRig(t, cfg)
	strict := orderPlan("strict", 1, "a", "b")
	strict.Steps[0].OnExhausted = core.PolicyError
	r.store.AddPlan(strict)
	subs := orders(n)
	for i := range subs {
		subs[i].Type = "strict"
	}
	r.tasks(0, subs...)
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, core.CodeRefused)
	}
	r.cycle()
	for i := range subs {
		r.state(subs[i].ID, core.StateError)
	}
	r.cycle() // the endings are published
	r.news()
	return r
}

// aboutMany names the tasks 1 to n at journal row 2.
func aboutMany(kind core.EventKind, n int) core.Control {
	c := core.Control{Kind: kind, Type: "strict", Actor: "olga", Reason: "all at once"}
	for i := range n {
		c.Numbers, c.Seqs = append(c.Numbers, int64(i+1)), append(c.Seqs, 2)
	}
	return c
}

// commits and acks of what happened.
func (r *rig) commitsAndAcks() []string {
	return slices.DeleteFunc(r.news(), func(line string) bool {
		return !strings.HasPrefix(line, "commit") && !strings.HasPrefix(line, "ack")
	})
}

// One request about many tasks changes each that is still at its row, in as many commits as the batch limit asks for;
// one that has moved on, or is not there, does not stop the others. The message is acknowledged after the last commit.
//
// covers: OP2
func TestRequestAboutMany(t *testing.T) {
	r := inError(t, 5, scheduler.Config{BatchMax: 2})
	c := aboutMany(core.EventResubmit, 5)
	c.Seqs[2] = 1
	c.Numbers, c.Seqs = append([]int64{99}, c.Numbers...), append([]int64{2}, c.Seqs...)
	pos := r.control(c)
	r.cycle()
	if got, want := r.commitsAndAcks(), []string{"commit 2", "commit 2", fmt.Sprintf("ack control %d", pos)}; !slices.Equal(got, want) {
		t.Fatalf("happened %q, want %q", got, want)
	}
	for i, want := range []core.State{core.StateProcessing, core.StateProcessing, core.StateError, core.StateProcessing, core.StateProcessing} {
		r.state(fmt.Sprintf("t%d", i+1), want)
	}
	if n := len(r.bus.take()); n != 4 {
		t.Errorf("%d commands left, want 4", n)
	}
	r.logged("did not change all of them")
	r.logged("unknown=1 refused=0")
	r.logged("unknown=0 refused=1")
	r.logged("the request is about its journal row 1, and it is at row 2 by now")
}

// Each kind of request that may name many.
func TestKindsOfRequestsAboutMany(t *testing.T) {
	for kind, want := range map[core.EventKind]core.State{
		core.EventUndo: core.StateUndone, core.EventResubmit: core.StateProcessing, core.EventEdit: core.StateProcessing,
		core.EventAccept: core.StateProcessing, core.EventResolve: core.StateProcessed,
	} {
		r := inError(t, 3, scheduler.Config{})
		c := aboutMany(kind, 3)
		switch kind {
		case core.EventEdit:
			c.Input = []byte(`{"edited":true}`)
		case core.EventAccept:
			c.Result = []byte(`"by hand"`)
		case core.EventResolve:
			c.As = core.StateProcessed
		}
		r.control(c)
		r.cycle()
		for _, id := range []string{"t1", "t2", "t3"} {
			if task := r.state(id, want); task.Seq != 3 {
				t.Errorf("kind %d: %s", kind, r.store.History(0, id))
			}
		}
		cmds, leave := r.bus.take(), 0
		if want == core.StateProcessing {
			leave = 3
		}
		if len(cmds) != leave {
			t.Errorf("kind %d: %d commands leave, want %d", kind, len(cmds), leave)
		}
		for _, cmd := range cmds {
			if kind == core.EventEdit && string(cmd.Input) != `{"edited":true}` {
				t.Errorf("after an edit a command has the input %s", cmd.Input)
			}
			if kind == core.EventAccept && (cmd.Step != "b" || len(cmd.Results) != 1 || string(cmd.Results[0].Result) != `"by hand"`) {
				t.Errorf("after an accept left %+v", cmd)
			}
		}
	}
}

// Running tasks are moved to another version wherever they are, those that may be, in one message; read again after a crash
// it moves none twice, and the rest.
//
// covers: OP2
func TestMigrationOfMany(t *testing.T) {
	r := newRig(t, scheduler.Config{BatchMax: 2})
	second := orderPlan("order", 2, "a", "other")
	r.store.AddPlan(second)
	subs := orders(5)
	for i := range subs {
		subs[i].PlanVersion = 1
	}
	r.tasks(0, subs...)
	r.cycle()
	for _, c := range r.bus.take() {
		if c.Task == "t2" { // its second step begins, which the new version has at another agent
			r.answer(c, 0)
		}
	}
	r.cycle()
	r.bus.take()
	commits, note := 0, r.store.AfterCommit
	r.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error {
		if commits++; commits == 2 {
			return errCut
		}
		return note(b, res)
	}
	c := core.Control{Kind: core.EventMigrate, Numbers: []int64{1, 2, 3, 4, 5}, Actor: "operation/x", Version: 2}
	r.control(c)
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatalf("commit cycle: %v", err)
	}
	r.store.AfterCommit = note
	r.start("n2")
	r.adopt(0)
	r.control(c)
	r.cycle()
	for i, want := range []int64{2, 1, 2, 2, 2} {
		task := r.state(fmt.Sprintf("t%d", i+1), core.StateProcessing)
		moved := strings.Count(fmt.Sprint(r.store.History(0, task.ID)), "migrated")
		if task.PlanVersion != want || moved != int(want-1) {
			t.Errorf("%s is of version %d, moved %d times: %s", task.ID, task.PlanVersion, moved, r.store.History(0, task.ID))
		}
	}
	r.logged("step b has begun, and version 2 has none of that name")
}

// A crash between the commits of one message: its next reader finds what has changed at another row, also where a
// task has failed again meanwhile, and changes the rest.
//
// covers: OP2
func TestRequestAboutManyAfterACrash(t *testing.T) {
	r := inError(t, 5, scheduler.Config{BatchMax: 2})
	c := aboutMany(core.EventResubmit, 5)
	commits := 0
	note := r.store.AfterCommit
	r.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error {
		if commits++; commits == 2 {
			return errCut
		}
		return note(b, res)
	}
	r.control(c)
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatalf("commit cycle: %v", err)
	}
	if got := r.commitsAndAcks(); slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "ack") }) {
		t.Fatalf("acknowledged half applied: %q", got)
	}
	r.store.AfterCommit = note
	first := r.bus.take() // of the first commit
	r.start("n2")
	r.adopt(0)
	for _, cmd := range first { // fails again before the message is read again
		r.answer(cmd, core.CodeRefused)
	}
	r.cycle()
	r.bus.take()
	r.control(c)
	r.cycle()
	for i := range 5 {
		id := fmt.Sprintf("t%d", i+1)
		kinds := ""
		saved, err := r.store.LoadIDs(t.Context(), core.AsOf{Partition: 0}, []string{id})
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range saved[0].Journal {
			if rec.Kind == core.KindResubmitted {
				kinds += string(rec.Kind)
			}
		}
		if kinds != string(core.KindResubmitted) {
			t.Errorf("resubmitted %q times:\n%s", kinds, r.store.History(0, id))
		}
	}
}

// A partition that is lost in the middle of a message does not let the next message begin in its middle.
func TestPartitionLostInTheMiddleOfARequest(t *testing.T) {
	r := inError(t, 4, scheduler.Config{BatchMax: 2})
	if _, err := r.shard.Adopt(t.Context(), r.now, 1, scheduler.Ground{Stream: "stream-1"}); err != nil {
		t.Fatal(err)
	}
	strict := order("u1")
	strict.Type = "strict"
	r.tasks(1, strict)
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, core.CodeRefused)
	}
	r.cycle()
	note := r.store.AfterCommit
	r.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error {
		r.store.AfterCommit = note
		r.steal(0)
		return note(b, res)
	}
	r.control(aboutMany(core.EventResubmit, 4))
	r.pos++
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Partition: 1, Pos: r.pos, At: r.now, Control: aboutMany(core.EventResubmit, 1)})
	if lost := r.cycle(); !slices.Equal(lost, []int{0}) {
		t.Fatalf("lost %v", lost)
	}
	if task := r.store.Task(1, "u1"); task.State != core.StateProcessing {
		t.Fatalf("the other partition's task was passed over: %s", r.store.History(1, "u1"))
	}
}

// After the database went back, a number of the time that is lost may be another task's: a request from then, read
// again, is not about that one. One about a task that is still there is.
func TestRequestAboutManyAfterTheDatabaseWentBack(t *testing.T) {
	r := inError(t, 1, scheduler.Config{})
	standby := r.store.Copy()
	stop := func(id string) {
		sub := order(id)
		sub.Type = "strict"
		r.tasks(0, sub)
		r.cycle()
		for _, c := range r.bus.take() {
			r.answer(c, core.CodeRefused)
		}
		r.cycle()
	}
	stop("lost") // number 2
	evidence := core.Evidence{Partition: 0, Epoch: r.store.Partition(0).Epoch, Commit: r.store.Partition(0).LastCommit}
	asked := r.now
	r.store.Replace(standby)
	r.start("n2")
	r.now = r.now.Add(time.Second)
	if _, err := r.shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1", Evidence: evidence}); err != nil {
		t.Fatal(err)
	}
	stop("other") // number 2 again
	r.pos++
	c := aboutMany(core.EventResolve, 2)
	c.As = core.StateUndone
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Pos: r.pos, At: r.now, Stored: asked, Control: c})
	r.cycle()
	r.state("t1", core.StateUndone)
	r.state("other", core.StateError)
	r.now = r.now.Add(time.Hour)
	r.pos++
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Pos: r.pos, At: r.now, Stored: r.now, Control: c})
	r.cycle()
	r.state("other", core.StateUndone)
}

// With memory for less than all of them, tasks are loaded in parts.
func TestRequestAboutManyInLittleMemory(t *testing.T) {
	r := inError(t, 5, scheduler.Config{Memory: scheduler.NewMemory(1 << 20)})
	loads := 0
	log := slog.New(slog.NewTextHandler(&r.logs, nil))
	r.shard = scheduler.NewShard(r.cfg, countingStore{r.store, &loads}, r.bus, log, chance("n1"), func(m scheduler.PublishedMail) { r.mail.Published = append(r.mail.Published, m) }, func(scheduler.ProbedMail) {})
	r.adopt(0)
	r.control(aboutMany(core.EventUndo, 5))
	r.cycle()
	for i := range 5 {
		r.state(fmt.Sprintf("t%d", i+1), core.StateUndone)
	}
	if loads < 2 {
		t.Error("all were loaded at once")
	}
}

// countingStore counts how often tasks are loaded by number.
type countingStore struct {
	*sim.MemStore
	loads *int
}

func (s countingStore) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	*s.loads++
	return s.MemStore.LoadNumbers(ctx, as, numbers)
}

// A request about one journal row changes nothing at another, and takes no id that is not known.
func TestRequestAboutOneRow(t *testing.T) {
	r := inError(t, 1, scheduler.Config{})
	r.control(core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga", IfSeq: 1})
	r.control(core.Control{Kind: core.EventCancel, ID: "none", Type: "strict", Actor: "olga", IfSeq: 1})
	r.cycle()
	r.state("t1", core.StateError)
	if r.store.Task(0, "none") != nil {
		t.Error("a cancel about a journal row took an id")
	}
	r.control(core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga", IfSeq: 2})
	r.control(core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga", IfSeq: 2})
	r.cycle()
	if task := r.state("t1", core.StateProcessing); task.Seq != 3 {
		t.Error(r.store.History(0, "t1"))
	}
}

// A task keeps the hash of its submission: that is still recognised after an edit, and the new input is no other
// submission of it.
//
// covers: OP11
func TestEditKeepsTheSubmission(t *testing.T) {
	r := inError(t, 1, scheduler.Config{})
	r.control(core.Control{Kind: core.EventEdit, ID: "t1", Actor: "olga", Input: []byte(`{"of":"t2"}`)})
	r.cycle()
	if c := r.one(); string(c.Input) != `{"of":"t2"}` {
		t.Fatalf("left with %s", c.Input)
	}
	same, other := order("t1"), order("t1")
	same.Type, other.Type = "strict", "strict"
	other.Input = []byte(`{"of":"t2"}`)
	r.tasks(0, same)
	r.cycle()
	if n := len(r.bus.refused); n != 0 {
		t.Fatalf("the submission again is refused: %+v", r.bus.refused)
	}
	r.tasks(0, other)
	r.cycle()
	if n := len(r.bus.refused); n != 1 || r.bus.refused[0].Code != 409 {
		t.Fatalf("a submission with the new input: refused %+v", r.bus.refused)
	}
}
