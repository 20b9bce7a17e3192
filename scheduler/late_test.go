package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A late answer is kept once, when it answers the command that the task's own commit issued, and the undo has its result;
// the late answer of an undo undoes.
//
// covers: S13, inv5
func TestLateAnswers(t *testing.T) {
	r := newRig(t, scheduler.Config{Genuine: func(r *core.Reply, commit int64) bool { return commit != 0 && r.Token == tokenOf(commit) }})
	plan := orderPlan("order", 7, "a")
	plan.Steps[0].AttemptsMax, plan.Steps[0].ResultMax = 1, 16
	r.store.AddPlan(plan.WithDefaults())
	late := func(c core.Command, result string, token core.Token) {
		t.Helper()
		r.mail.Replies = append(r.mail.Replies, scheduler.ReplyMail{At: r.now, Reply: core.Reply{
			Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: token, Result: []byte(result), From: "i1",
		}})
		r.cycle()
	}
	rows := func(kind core.Kind) (found []core.Record) {
		saved, err := r.store.LoadIDs(t.Context(), core.AsOf{Partition: 0}, []string{"t1"})
		if err != nil || len(saved) != 1 {
			t.Fatalf("%d stored: %v", len(saved), err)
		}
		for _, j := range saved[0].Journal {
			if j.Kind == kind {
				found = append(found, j)
			}
		}
		return found
	}
	overdue := func() {
		t.Helper()
		r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1}})
		r.cycle()
	}
	r.tasks(0, order("t1"))
	r.cycle()
	do := r.one()
	r.now = do.CompleteBy
	overdue()
	late(do, `"forged"`, core.Token{1})
	late(do, `"over the limit of it"`, tokenOf(do.Commit))
	if n := len(rows(core.KindLate)); n != 0 {
		t.Fatalf("%d late rows of answers that say nothing", n)
	}
	late(do, `"there"`, tokenOf(do.Commit))
	late(do, `"there"`, tokenOf(do.Commit))
	if kept := rows(core.KindLate); len(kept) != 1 || string(kept[0].Result) != `"there"` || kept[0].Actor != "i1@agent.a" {
		t.Fatalf("late rows: %+v", kept)
	}
	r.now = r.now.Add(core.DefaultGrace)
	r.cycle()
	undo := r.one()
	if !undo.Undo || string(undo.Result) != `"there"` {
		t.Fatalf("the undo: %+v", undo)
	}
	r.now = undo.CompleteBy.Add(time.Millisecond)
	overdue()
	late(undo, `null`, tokenOf(undo.Commit))
	r.state("t1", core.StateUndone)
	if kept := rows(core.KindUndoLate); len(kept) != 1 || kept[0].StepStatus != core.StepUndone {
		t.Fatalf("rows of the late undo: %+v", kept)
	}
	r.kinds(scheduler.Kinds{LateDos: 1, LateUndos: 1})
}

// An owner that was without its lease for a while may have had a successor that sent its commands again, and of which the
// database has nothing any more. So the refusal of one copy is no word about the step: its undo leaves when no copy can take
// effect. Of a command that has left since it is.
//
// covers: inv7
func TestRefusalAfterAGapOfTheLease(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, gap := range []string{"", "before the task", "since it left", "since it was silent"} {
			term := int64(1)
			r := newRig(t, scheduler.Config{Leased: func() int64 { return term }})
			if gap == "before the task" {
				term++
			}
			r.tasks(0, order("t1"))
			r.cycle()
			r.answer(r.one(), 0)
			r.cycle()
			b := r.one()
			want, quiet := "a", b.CompleteBy.Add(core.DefaultGrace)
			if gap == "since it left" {
				term++
			}
			if late {
				r.now = b.CompleteBy
				r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1}})
				r.control(core.Control{Kind: core.EventUndo, ID: "t1", Type: "order"})
				r.cycle()
			}
			if gap == "since it was silent" {
				term++
			}
			r.answer(b, 422)
			r.cycle()
			if strings.HasPrefix(gap, "since") {
				r.now = quiet - 1
				r.cycle()
				if left := r.bus.take(); len(left) > 0 {
					t.Fatalf("late %v: %+v leaves while another copy may be at work", late, left)
				}
				r.now = quiet
				r.cycle()
				want = "b"
			}
			if c := r.one(); !c.Undo || c.Step != want {
				t.Errorf("late %v, gap %q: %+v leaves, want the undo of %s", late, gap, c, want)
			}
		}
	}
}
