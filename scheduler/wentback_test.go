package scheduler_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// tokenOf is a token that shows the commit, as the rig's bus makes it.
func tokenOf(commit int64) (t core.Token) {
	binary.BigEndian.PutUint64(t[4:], uint64(commit))
	return t
}

// A reply counts with the token of its command as its commit issued it: not without
// one, and not with that of a commit in a life that the database has forgotten.
//
// covers: A2
func TestReplyWithoutItsToken(t *testing.T) {
	r := newRig(t, scheduler.Config{Genuine: func(r *core.Reply, commit int64) bool { return commit != 0 && r.Token == tokenOf(commit) }})
	r.tasks(0, order("t1"))
	r.cycle()
	c := r.one()
	if c.Commit == 0 {
		t.Fatal("the command does not say which commit issued it")
	}
	reply := func(token core.Token) {
		r.mail.Replies = append(r.mail.Replies, scheduler.ReplyMail{At: r.now, Reply: core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: token}})
		r.cycle()
	}
	for _, wrong := range []core.Token{{}, tokenOf(c.Commit + 1), tokenOf(c.Commit - 1)} {
		reply(wrong)
		if cmds := r.bus.take(); len(cmds) != 0 {
			t.Fatalf("token %x of commit %d counts: %+v", wrong, c.Commit, cmds)
		}
	}
	// A successor reads the commit with the journal: what answers its predecessor counts.
	r.start("n2")
	r.adopt(0)
	if again := r.one(); again.Commit != c.Commit {
		t.Fatalf("sent again with commit %d, not %d", again.Commit, c.Commit)
	}
	reply(tokenOf(c.Commit))
	if next := r.one(); next.Step != "b" || next.Commit == c.Commit {
		t.Fatalf("after the answer: %+v", next)
	}
}

// adoptLess takes partition 0 over from a database that has less than was recorded; end is that of the stream.
func (r *rig) adoptLess(end uint64) {
	r.t.Helper()
	if _, err := r.shard.Adopt(r.t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1", End: end, Evidence: core.Evidence{Epoch: 1, Commit: 1 << 62}}); err != nil {
		r.t.Fatal(err)
	}
}

// TestDatabaseWentBackBehindAFailedCommit: a database that fails over in the middle of a commit may lack what it had committed
// before. The owner, which drops all partitions then, takes them over again by what it knew.
//
// covers: A1
func TestDatabaseWentBackBehindAFailedCommit(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	before := r.store.Copy()
	r.tasks(0, order("t1"))
	r.cycle()
	r.store.BeforeCommit = func(*core.Batch) error { return errCut }
	r.tasks(0, order("t2"))
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatalf("commit cycle: %v", err)
	}
	r.store.BeforeCommit = nil
	r.store.Replace(before)
	r.adopt(0)
	r.logged("ALERT: the database went back")
}

// A database that fails over to a copy from before the owner's last commit: the next
// commit is left out, the partition is taken over again, and what had begun begins again
// by the same keys. A task whose steps are not known to have run is undone by key.
//
// covers: A1, A3, A4
func TestDatabaseWentBack(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.answer(r.one(), 0) // a is done, b is out
	standby := r.store.Copy()
	r.cycle()
	r.bus.take()
	r.tasks(0, core.Submission{Type: "order", ID: "t2", CompleteBy: r.now.Add(time.Minute), At: r.now})
	r.cycle()
	r.bus.take()

	r.store.Replace(standby)
	r.tasks(0, order("t3"))
	if lost := r.cycle(); len(lost) != 1 {
		t.Fatalf("the commit went into a database without the last one: %v", lost)
	}
	was := r.store.Partition(0)
	from, err := r.shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1", End: 3})
	if err != nil || from.Cursor != was.Cursor {
		t.Fatalf("%+v, %v", from, err)
	}
	r.logged("ALERT: the database went back")
	st := r.store.Partition(0)
	if st.WentBackAt == 0 || st.WentBackUntil != 3 || st.Epoch != was.Epoch+1 {
		t.Fatalf("stored %+v", st)
	}
	r.bus.take()
	// The stream is read again: t2 comes when its time is over.
	r.pos = from.Cursor
	r.now = r.now.Add(time.Hour)
	r.tasks(0, core.Submission{Type: "order", ID: "t2", CompleteBy: r.now.Add(-time.Minute), At: r.now.Add(-time.Hour)})
	r.cycle()
	for range 8 {
		for _, c := range r.bus.take() {
			if c.Task == "t2" && !c.Undo {
				t.Fatalf("a task past its deadline is begun: %+v", c)
			}
			r.answer(c, 0)
		}
		r.now = r.now.Add(time.Second)
		r.cycle()
	}
	r.state("t2", core.StateUndone)
	if notes := strings.Join(r.bus.list, "\n"); !strings.Contains(notes, "undo t2/b/0") || !strings.Contains(notes, "undo t2/a/0") {
		t.Fatalf("t2 is undone, but not every step was: %s", notes)
	}
}

// A child that is born again after the database went back may have run before, as its parent may have, wherever in the stream
// the parent came from: its undo goes over steps that its journal does not know.
//
// covers: A4
func TestChildBornAgainMayHaveRun(t *testing.T) {
	for _, end := range []uint64{1, 0} { // of the stream; 0: it is another one, in which the parent never was
		r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
		r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: []byte(`{}`)})
		r.cycle()
		standby := r.store.Copy()
		r.answer(r.one(), 0)
		r.cycle()
		if c := r.one(); c.Task != "t1~kids" {
			t.Fatalf("%+v", c)
		}
		r.store.Replace(standby)
		r.start("n2")
		r.adoptLess(end)
		for range 3 {
			for _, c := range r.bus.take() {
				if c.Task == "t1" {
					r.answer(c, 0)
				}
			}
			r.cycle()
		}
		if kid := r.state("t1~kids", core.StateProcessing); kid.WentBackAt == 0 {
			t.Errorf("end %d: the child does not know that it may have run: %s", end, r.store.History(0, "t1~kids"))
		}
	}
}

// Nor does it matter that the parent has had no event yet since, by which its own journal would note it.
//
// covers: A4
func TestNextChildMayHaveRun(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 2, Parallel: 1}, scheduler.Config{})
	r.family("t1", list(2))
	first := r.one()
	standby := r.store.Copy()
	r.answer(first, 0)
	r.cycle()
	if c := r.one(); c.Task != "t1~kids~1" {
		t.Fatalf("%+v", c)
	}
	r.store.Replace(standby)
	r.start("n2")
	r.adoptLess(1)
	for range 3 {
		for _, c := range r.bus.take() {
			if c.Task == "t1~kids~0" {
				r.answer(c, 0)
			}
		}
		r.cycle()
	}
	if kid := r.state("t1~kids~1", core.StateProcessing); kid.WentBackAt == 0 {
		t.Errorf("the child does not know that it may have run: %s", r.store.History(0, "t1~kids~1"))
	}
}

// A child that was done before the database went back may have been undone in the time that is lost: the step fails, and with
// it the task, where not all of its children were done, also by a clock that is behind. One that is done afterwards counts.
//
// covers: A4
func TestDoneChildMayHaveBeenUndone(t *testing.T) {
	for _, c := range []struct {
		done  int
		later time.Duration // of the takeover, by the clock of the new owner
	}{{0, 5 * time.Second}, {1, 5 * time.Second}, {1, -time.Second}} {
		done := c.done
		r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 2, Parallel: 1}, scheduler.Config{})
		r.family("t1", list(2))
		if done == 1 {
			r.answer(r.one(), 0)
			r.cycle()
		}
		r.now = r.now.Add(c.later)
		standby := r.store.Copy()
		r.control(core.Control{Kind: core.EventCancel, ID: "t1", Actor: "olga"})
		r.cycle()
		r.store.Replace(standby)
		for _, node := range []string{"n2", "n3"} { // the second finds that it is noted, and no child done since
			r.start(node)
			r.adoptLess(1)
			r.cycle()
		}
		for range 200 {
			for _, c := range r.bus.take() {
				r.answer(c, 0)
			}
			r.now = r.now.Add(100 * time.Millisecond)
			r.cycle()
		}
		want := []core.State{core.StateProcessed, core.StateUndone}[done]
		if got := r.state("t1", want); done == 1 && !strings.Contains(got.Why, "child t1~kids~0 was done, and the database went back since") {
			t.Errorf("undone because %q", got.Why)
		}
	}
}

// A cancel that is read again before the submission that it is about, after the database
// went back, waits for it: what ran in the life that is lost is undone, and a crash
// meanwhile reads the cancel again.
//
// covers: A3, inv7
func TestCancelWaitsForWhatMayHaveRun(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	standby := r.store.Copy()
	r.tasks(0, order("t1"))
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	r.bus.take()
	r.store.Replace(standby)
	r.start("n2")
	r.adoptLess(1)
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Pos: 1, At: r.now, Control: core.Control{Kind: core.EventCancel, ID: "t1", Type: "order"}})
	r.flush()
	if st := r.store.Partition(0); r.store.Task(0, "t1") != nil || st.ControlCursor != 0 {
		t.Fatalf("the cancel did not wait: %+v, %s", st, r.store.History(0, "t1"))
	}
	r.pos = 0
	r.tasks(0, order("t1"))
	r.cycle()
	for range 24 {
		for _, c := range r.bus.take() {
			r.answer(c, 0)
		}
		r.now = r.now.Add(time.Second)
		r.flush()
	}
	r.state("t1", core.StateUndone)
	if notes := strings.Join(r.bus.list, "\n"); !strings.Contains(notes, "undo t1/a/0") {
		t.Errorf("t1 is undone, and what ran was not: %s", notes)
	}
	if st := r.store.Partition(0); st.ControlCursor != 1 || st.Cursor != 1 {
		t.Errorf("%+v", st)
	}
}

// A cancel waits for a submission that may be gone from the stream, so it does not wait
// for ever, also where nothing else happens.
func TestCancelDoesNotWaitForEver(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.start("n2")
	for partition := range 2 {
		if _, err := r.shard.Adopt(t.Context(), r.now, partition, scheduler.Ground{Stream: "stream-1", End: 7, Evidence: core.Evidence{Epoch: 1, Commit: 1 << 62}}); err != nil {
			t.Fatal(err)
		}
		at := r.now.Add(time.Duration(partition) * -5 * time.Minute) // the one of the last partition came first
		r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{
			Partition: partition, Pos: 1, At: at, Control: core.Control{Kind: core.EventCancel, ID: fmt.Sprintf("t%d", partition), Type: "order"},
		})
	}
	var ended [2]core.Instant
	for range 10 {
		r.flush()
		for partition := range ended {
			if is := r.store.Task(partition, fmt.Sprintf("t%d", partition)); is != nil && is.State == core.StateUndone && ended[partition] == 0 {
				ended[partition] = r.now
			}
		}
		if at := r.shard.NextWake(); at != 0 {
			r.now = max(r.now, at)
		}
	}
	for partition, most := range []time.Duration{11 * time.Minute, 6 * time.Minute} {
		if at := ended[partition]; at == 0 || at > began.Add(most) {
			t.Errorf("partition %d: it waited until %d, want %v at most", partition, at, most)
		}
	}
}

// A former owner that knows of commits which the takeover did not find makes it take the
// partition over again; what it knows of another life, or does not know better, does not.
//
// covers: A1, inv4
func TestFormerOwnerIsHeard(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	standby := r.store.Copy()
	known := r.store.Partition(0).LastCommit
	r.flush()
	lost := r.store.Partition(0).LastCommit
	r.store.Replace(standby)
	r.start("n2")
	if st := r.adopt(0); st.Epoch != 2 || r.store.Partition(0).WentBackAt != 0 {
		t.Fatalf("%+v, %+v", st, r.store.Partition(0))
	}
	for _, e := range []core.Evidence{
		{Epoch: 1, Commit: known, Former: true}, {Epoch: 1, Commit: lost}, {Epoch: 2, Commit: lost, Former: true}, {Partition: 1, Epoch: 1, Commit: lost, Former: true},
	} {
		if r.shard.Doubt(e) {
			t.Errorf("%+v counts", e)
		}
	}
	if !r.shard.Doubt(core.Evidence{Epoch: 1, Commit: lost, Former: true}) {
		t.Fatal("a former owner's word does not count")
	}
	r.shard.Drop(0)
	r.adopt(0)
	r.logged("ALERT: the database went back")
	if st := r.store.Partition(0); st.WentBackAt == 0 || st.Epoch != 3 {
		t.Errorf("%+v", st)
	}
}

// After the database went back, a request about the row that was seen is about the task as it was seen: what the owner
// notes because of the request does not count. A task in error is undone with all that may have run, is done again by
// key, and no step of it is accepted.
func TestRequestsAfterTheDatabaseWentBack(t *testing.T) {
	r := inError(t, 3, scheduler.Config{})
	r.tasks(0, order("live"))
	r.cycle()
	r.start("n2")
	r.adoptLess(r.pos)
	r.cycle()
	r.bus.take()
	for i, kind := range []core.EventKind{core.EventUndo, core.EventResubmit, core.EventAccept} {
		r.control(core.Control{Kind: kind, ID: fmt.Sprintf("t%d", i+1), Type: "strict", Actor: "olga", IfSeq: 2, Result: []byte(`"by hand"`)})
	}
	r.control(core.Control{Kind: core.EventExtend, ID: "live", Type: "order", Actor: "olga", IfSeq: 1, Until: r.now.Add(24 * time.Hour)})
	r.cycle()
	for id, want := range map[string]string{"t1": "went_back undo_asked", "t2": "went_back resubmitted", "t3": "", "live": "went_back extended"} {
		if got := r.kindsAfter(id, map[bool]int{true: 1, false: 2}[id == "live"]); got != want {
			t.Errorf("%s has the rows %q, want %q", id, got, want)
		}
	}
	r.logged("whether step a was undone meanwhile is not known")
	for range 40 {
		for _, c := range r.bus.take() {
			r.answer(c, 0)
		}
		r.now = r.now.Add(time.Second)
		r.cycle()
	}
	r.state("t1", core.StateUndone)
	r.state("t2", core.StateProcessed)
	r.state("t3", core.StateError)
	if notes := strings.Join(r.bus.list, "\n"); !strings.Contains(notes, "undo t1/b/0") || !strings.Contains(notes, "undo t1/a/0") {
		t.Errorf("t1 is undone, but not every step was: %s", notes)
	}
}

// meddled is a store in which something happens right before a takeover.
type meddled struct {
	*sim.MemStore
	takeovers int
	before    func(n int)
}

func (m *meddled) TakeOver(ctx context.Context, p int, c core.Claim) (core.PartitionState, error) {
	m.takeovers++
	m.before(m.takeovers)
	return m.MemStore.TakeOver(ctx, p, c)
}

// Also right before the second takeover.
func TestTakeoverOvertakenBeforeTheSecond(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	store := &meddled{MemStore: r.store, before: func(n int) {
		if n == 2 {
			r.steal(0)
		}
	}}
	r.cfg.Node = "n2"
	shard := scheduler.NewShard(r.cfg, store, r.bus, slog.New(slog.DiscardHandler), chance("n2"), func(scheduler.PublishedMail) {}, func(scheduler.ProbedMail) {})
	again := func(context.Context) (scheduler.Ground, error) {
		return scheduler.Ground{Stream: "stream-1", At: r.now}, nil
	}
	if _, err := shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1", At: r.now.Add(-time.Second), Again: again}); !errors.Is(err, core.ErrOvertaken) {
		t.Fatalf("adopted: %v", err)
	}
}

// An owner that does not know that it was overtaken reads a task that only its successor knows, or one with which that has
// gone on. It gives up, before the database forgets what it read and takes this owner's commits again.
func TestTaskOfASuccessor(t *testing.T) {
	for _, known := range []bool{false, true} {
		r := newRig(t, scheduler.Config{})
		if known {
			r.tasks(0, order("t1"))
			r.finish()
		}
		standby := r.store.Copy()
		successor := r.newShard("n2")
		if _, err := successor.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1"}); err != nil {
			t.Fatal(err)
		}
		mail := scheduler.Mail{Controls: []scheduler.ControlMail{{Pos: 9, At: r.now, Control: core.Control{Kind: core.EventCancel, ID: "t1", Type: "order"}}}}
		if known {
			mail.Controls[0].Control.Kind = core.EventUndo
		}
		if _, err := successor.RunCycle(t.Context(), r.now, &mail, false); err != nil {
			t.Fatal(err)
		}
		r.store.BeforeCommit = func(*core.Batch) error {
			r.store.Replace(standby)
			return nil
		}
		r.control(core.Control{Kind: core.EventUndo, ID: "t1", Type: "order", Actor: "olga"})
		if _, err := r.try(false); err != nil {
			t.Fatalf("commit cycle: %v", err)
		}
		if _, ok := r.shard.Owns(0); ok {
			t.Error("it still owns the partition")
		}
	}
}

// kindsAfter are the kinds of a task's journal rows behind the first n.
func (r *rig) kindsAfter(id string, n int) string {
	r.t.Helper()
	saved, err := r.store.LoadIDs(r.t.Context(), core.AsOf{Partition: 0}, []string{id})
	if err != nil || len(saved) != 1 {
		r.t.Fatalf("task %s: %v", id, err)
	}
	var kinds []string
	for _, j := range saved[0].Journal[n:] {
		kinds = append(kinds, string(j.Kind))
	}
	return strings.Join(kinds, " ")
}

// A node that stands still between its look outside the database and its takeover looks again after it: meanwhile others
// owned the partition and read on, and the database lost that.
func TestTakeoverAfterAnOldLook(t *testing.T) {
	for name, c := range map[string]struct {
		old  func(lost core.Evidence) core.Evidence // what the first look found
		late time.Duration                          // how old it was
		back bool
	}{
		"the first look tells that it went back": {old: func(lost core.Evidence) core.Evidence { return lost }, back: true},
		"the second look tells":                  {old: func(core.Evidence) core.Evidence { return core.Evidence{} }, late: time.Second, back: true},
		"it is not old":                          {old: func(core.Evidence) core.Evidence { return core.Evidence{} }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{})
			r.flush()
			standby := r.store.Copy()
			r.tasks(0, order("t1"))
			r.cycle()
			lost := core.Evidence{Epoch: 1, Commit: r.store.Partition(0).LastCommit}
			r.store.Replace(standby)
			r.start("n2")
			looks := 0
			again := func(context.Context) (scheduler.Ground, error) {
				looks++
				return scheduler.Ground{Stream: "stream-1", End: 1, Evidence: lost, At: r.now}, nil
			}
			from, err := r.shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1", Evidence: c.old(lost), At: r.now.Add(-c.late), Again: again})
			if err != nil {
				t.Fatal(err)
			}
			st := r.store.Partition(0)
			if !c.back {
				if looks != 0 || st.Epoch != 2 {
					t.Errorf("%d looks, %+v", looks, st)
				}
				return
			}
			if looks != 1 || st.WentBackAt == 0 || st.WentBackUntil != 1 || from.Epoch != st.Epoch {
				t.Fatalf("%d looks, owns %+v, stored %+v", looks, from, st)
			}
			r.logged("ALERT: the database went back")
			r.pos = from.Cursor
			r.tasks(0, order("t1"))
			r.cycle()
			if got := r.kindsAfter("t1", 0); got != "went_back" {
				t.Errorf("t1 has the rows %q, want went_back", got)
			}
		})
	}
}

// What is looked at after the first takeover is of another database if the row is not as that left it.
func TestTakeoverOvertakenWhileItLooks(t *testing.T) {
	for name, meddle := range map[string]func(r *rig, standby *sim.MemStore){
		"by another node": func(r *rig, _ *sim.MemStore) { r.steal(0) },
		"by the database": func(r *rig, standby *sim.MemStore) { r.store.Replace(standby) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{})
			standby := r.store.Copy()
			r.start("n2")
			again := func(context.Context) (scheduler.Ground, error) {
				meddle(r, standby)
				st := r.store.Partition(0)
				return scheduler.Ground{Stream: "stream-1", At: r.now, Evidence: core.Evidence{Epoch: st.Epoch, Commit: st.LastCommit}}, nil
			}
			_, err := r.shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1", At: r.now.Add(-time.Second), Again: again})
			if !errors.Is(err, core.ErrOvertaken) {
				t.Fatalf("adopted: %v", err)
			}
			if _, ok := r.shard.Owns(0); ok {
				t.Error("it owns the partition")
			}
			if st := r.store.Partition(0); st.WentBackAt != 0 {
				t.Errorf("what a successor recorded counts as lost: %+v", st)
			}
		})
	}
}

// The stream loses a message that its owner has in its mail already, and is read again from its beginning. Then the
// database goes back behind all that, and knows nothing of it: neither of the task, which has run, nor that its message is
// lost. Its submitter submits it again, and it is cancelled: what ran is undone.
//
// covers: A4
func TestStreamWasCutBeforeTheDatabaseWentBack(t *testing.T) {
	for _, how := range []string{"by evidence", "by a former owner's", "by a second look", "heard later"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, scheduler.Config{})
			standby := r.store.Copy()
			r.tasks(0, order("t1"))
			r.cycle()
			r.flush()
			r.shard.Rewound(0, scheduler.ErrRewound)
			r.shard.Drop(0)
			if from := r.adopt(0); from.Cursor != 0 {
				t.Fatalf("it reads from %d", from.Cursor)
			}
			r.answer(r.bus.take()[0], 0)
			r.cycle()
			r.start("n2") // carries on what it finds
			if _, err := r.shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1", Evidence: r.bus.evidence[len(r.bus.evidence)-1]}); err != nil {
				t.Fatal(err)
			}
			known := r.bus.evidence[len(r.bus.evidence)-1]
			if known.Rewound != 2 || known.Epoch != 3 {
				t.Fatalf("recorded %+v", known)
			}
			r.bus.take()
			r.store.Replace(standby)
			r.start("n3")
			former := known
			former.Former = true
			g := scheduler.Ground{Stream: "stream-1", At: r.now}
			switch how {
			case "by evidence":
				g.Evidence = known
			case "by a former owner's":
				g.Former = former
			case "by a second look":
				g.At = r.now.Add(-time.Minute)
				g.Again = func(context.Context) (scheduler.Ground, error) {
					return scheduler.Ground{Stream: "stream-1", At: r.now, Evidence: known}, nil
				}
			case "heard later": // first of something older
				g.Evidence = core.Evidence{Epoch: known.Epoch, Commit: known.Commit}
			}
			if _, err := r.shard.Adopt(t.Context(), r.now, 0, g); err != nil {
				t.Fatal(err)
			}
			if how == "heard later" {
				if st := r.store.Partition(0); st.WentBackUntil == core.ReadNoMore || !r.shard.Doubt(former) {
					t.Fatalf("it does not count: %+v", st)
				}
				r.shard.Drop(0)
				r.adopt(0)
			}
			if r.shard.Doubt(former) {
				t.Error("it counts once more")
			}
			if st := r.store.Partition(0); st.WentBackUntil != core.ReadNoMore {
				t.Fatalf("stored %+v", st)
			}
			r.pos = 1
			r.tasks(0, core.Submission{Type: "order", ID: "t1", Input: order("t1").Input, At: r.now})
			r.cycle()
			r.control(core.Control{Kind: core.EventCancel, ID: "t1", Type: "order", Actor: "olga"})
			r.cycle()
			for range 40 {
				for _, c := range r.bus.take() {
					r.answer(c, 0)
				}
				r.now = r.now.Add(time.Second)
				r.cycle()
			}
			r.state("t1", core.StateUndone)
			if notes := strings.Join(r.bus.list, "\n"); !strings.Contains(notes, "undo t1/b/0") || !strings.Contains(notes, "undo t1/a/0") {
				t.Errorf("t1 is undone, and what ran was not: %s", notes)
			}
		})
	}
}

// What a person found at a service before the database went back may have changed since: in the time that is lost the same
// request let the step be done. Read again it changes nothing, nor does a copy of it that is stored later; one from after
// that counts.
//
// covers: W4, A4
func TestFoundBeforeTheDatabaseWentBack(t *testing.T) {
	r := inError(t, 1, scheduler.Config{})
	found := func(asked, stored core.Instant, want core.State) {
		t.Helper()
		r.pos++
		r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Pos: r.pos, At: r.now, Stored: stored,
			Control: core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga", Found: core.ProbeAbsent, Asked: asked}})
		r.cycle()
		r.state("t1", want)
	}
	asked := r.now
	r.now = r.now.Add(time.Hour)
	r.start("n2")
	r.adoptLess(r.pos)
	found(0, asked, core.StateError)
	r.logged("the database went back since its sender looked")
	r.now = r.now.Add(time.Hour)
	found(asked, r.now, core.StateError)
	found(r.now.Add(time.Hour), asked, core.StateError) // by another clock
	found(0, r.now, core.StateProcessing)
}

// TestOperationAfterTheDatabaseWentBack: an operation that someone asks for right after the database went back, which may have
// been about what is not there any more, is carried out a minute later: its messages are sent until each task has an outcome.
func TestOperationAfterTheDatabaseWentBack(t *testing.T) {
	r := inError(t, 1, scheduler.Config{})
	r.now = r.now.Add(time.Hour)
	r.start("n2")
	r.adoptLess(r.pos)
	created := r.now.Add(time.Second)
	r.tasks(0, core.Submission{Type: "strict", ID: "t2", Input: []byte(`{}`)})
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, core.CodeRefused)
	}
	r.cycle()
	t2 := r.state("t2", core.StateError)
	ask := func(after time.Duration, want core.State) {
		t.Helper()
		r.pos++
		r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Pos: r.pos, At: r.now, Stored: created.Add(after),
			Control: core.Control{Kind: core.EventUndo, Numbers: []int64{t2.Number}, Seqs: []int64{t2.Seq}, Actor: "operation/x", Asked: created}})
		r.cycle()
		r.state("t2", want)
	}
	ask(time.Second, core.StateError)
	ask(2*time.Minute, core.StateUndone)
}
