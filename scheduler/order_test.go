package scheduler_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// The order of a cycle is the promise of the program: nothing leaves before the
// commit has returned, and the ack is last.
//
// covers: S3, S18, S25, G5, T6, inv2, inv3
func TestOrderOfACycle(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"), core.Submission{Type: "unknown", ID: "t2", ReplyTo: "private.t2"})
	r.cycle()
	r.expect(
		"commit 2",
		"notify private.t1 received",
		"live t2 error",
		"notify private.t2 error",
		"publish t2 error 1",
		"do t1/a/0 try 1",
		"ack 1",
	)
	r.answer(r.one(), 0)
	r.cycle()
	r.expect("commit 1", "do t1/b/0 try 1")
	r.answer(r.one(), 0)
	r.cycle()
	r.expect("commit 1", "live t1 processed", "notify private.t1 processed", "publish t1 processed 2")
	if n := r.shard.Load(0); n != 1 {
		t.Fatalf("load %d, want the ending that is not published yet", n)
	}
	r.cycle()
	if n := r.shard.Load(0); n != 0 {
		t.Fatalf("load %d of nothing", n)
	}
}

// A command has all that its agent needs: the input, the results of the steps before and its time; an undo also what its do
// has answered.
//
// covers: S5, S39
func TestCommandHoldsAll(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	is := order("t1")
	is.Input = []byte(`{"cents":1999}`)
	r.tasks(0, is)
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	c := r.one()
	if c.Agent != "agent.b" || c.Key() != "t1/b/0" || c.Type != is.Type || c.Attempt != 1 || string(c.Input) != string(is.Input) || c.CompleteBy <= r.now || c.Left <= 0 {
		t.Errorf("do %+v", c)
	}
	if len(c.Results) != 1 || c.Results[0].Step != "a" || string(c.Results[0].Result) != `"a"` {
		t.Errorf("results %+v", c.Results)
	}
	r.answer(c, core.CodeRefused)
	r.cycle()
	c = r.one()
	if !c.Undo || c.Agent != "agent.a" || c.Key() != "t1/a/0" || string(c.Input) != string(is.Input) || string(c.Result) != `"a"` || c.CompleteBy <= r.now {
		t.Errorf("undo %+v", c)
	}
}

// A task whose labels ask for it is told as created, after its commit, and again when its submission is read again; what
// does not ask is not. One that is not created is not told.
//
// covers: I26
func TestCreatedIsTold(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	asks := order("t1")
	asks.ReplyTo, asks.Labels = "", []core.Label{{Key: "tenant", Value: "acme"}, {Key: core.EventsLabel, Value: core.StatusCreated}}
	plain := order("t2")
	plain.ReplyTo, plain.Labels = "", asks.Labels[:1]
	r.store.BeforeCommit = func(*core.Batch) error { return errCut }
	r.tasks(0, asks)
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatalf("commit cycle: %v", err)
	}
	r.expect()
	r.store.BeforeCommit = nil
	r.start("n2")
	r.adopt(0)
	r.news()
	r.tasks(0, asks, plain)
	r.cycle()
	r.expect("commit 2", "publish t1 created 0", "do t1/a/0 try 1", "do t2/a/0 try 1", "ack 2")
	other := asks
	other.Input = []byte(`{"of":"else"}`)
	r.tasks(0, asks, other)
	r.cycle()
	r.expect("refuse t1 409", "publish t1 created 0", "ack 3")
}

// A commit that fails lets nothing leave: no command, no status, no refusal, no
// ack, also none about a submission that rests on what was not committed.
//
// covers: E10, S3, inv2, inv3, inv4
func TestFailedCommitLetsNothingLeave(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.BeforeCommit = func(*core.Batch) error { return errCut }
	other := order("t1")
	other.Input = []byte(`{"of":"else"}`)
	r.tasks(0, order("t1"), order("t1"), other)
	r.control(core.Control{Kind: core.EventCancel, ID: "t9", Type: "order"})
	lost, err := r.try(false)
	if !errors.Is(err, errCut) || !slices.Equal(lost, []int{0}) {
		t.Fatalf("commit cycle: %v, lost %v", err, lost)
	}
	r.expect()
	if _, owns := r.shard.Owns(0); owns {
		t.Fatal("its memory is ahead of the store, yet the partition is kept")
	}
}

// What a submission that came twice in one mail hears waits for the commit of
// the first as well.
//
// covers: inv3, inv9
func TestAnswersAboutUncommittedTasksWait(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	other := order("t1")
	other.Input = []byte(`{"of":"else"}`)
	r.tasks(0, order("t1"), order("t1"), other)
	r.cycle()
	r.expect(
		"commit 1", "notify private.t1 received", "do t1/a/0 try 1", // the round that creates it
		"refuse t1 409", "notify private.t1 received", "notify private.t1 refused", "ack 1",
	)
}

// A crash after the commit loses the effects, never the tasks: the node that takes
// over sends them again.
//
// covers: E3, I5
func TestCrashBetweenCommitAndPublish(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AfterCommit = func(*core.Batch, core.CommitResult) error { return errCut }
	r.tasks(0, order("t1"))
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatalf("commit cycle: %v", err)
	}
	r.expect()
	r.store.AfterCommit = nil
	r.start("n2")
	r.adopt(0)
	r.expect("do t1/a/0 try 1")
}

// A message is acknowledged when its last task is committed, not before, and
// each message for itself.
//
// covers: I5, I14, D7, D13, inv2
func TestAckOneByOne(t *testing.T) {
	r := newRig(t, scheduler.Config{BatchMax: 2})
	r.tasks(0, orders(3)...)
	r.tasks(0, order("t4"))
	r.tasks(0, order("t5"))
	r.cycle()
	var got []string
	for _, line := range r.news() {
		if strings.HasPrefix(line, "commit") || strings.HasPrefix(line, "ack") {
			got = append(got, line)
		}
	}
	want := []string{"commit 2", "commit 2", "ack 1", "ack 2", "commit 1", "ack 3"}
	if !slices.Equal(got, want) {
		t.Fatalf("happened %q, want %q", got, want)
	}
}

// Refusals are stored before the message that carried them is acknowledged; when
// they cannot be stored it is not.
//
// covers: I15, inv2
func TestRefusalsAreStoredBeforeTheAck(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	bad := core.Status{ID: "bad", Type: "order", Status: core.StatusRefused, Code: 400}
	r.tasks(0)
	r.mail.Tasks[0].Refused = []core.Status{bad}
	r.cycle()
	r.expect("refuse bad 400", "ack 1")

	r.bus.refuseErr = errCut
	r.tasks(0)
	r.mail.Tasks[0].Refused = []core.Status{bad}
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatalf("commit cycle: %v", err)
	}
	r.expect("refuse bad 400")
}

// The cursor in a commit is that of the round before: it covers only what is
// committed and published.
//
// covers: I10, D13, inv2
func TestCursorLagsByOneRound(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	if c := r.store.Partition(0).Cursor; c != 0 {
		t.Fatalf("cursor %d is committed with the tasks it covers", c)
	}
	if !r.shard.Unsaved() {
		t.Fatal("a cursor waits for a commit, and Unsaved does not say so")
	}
	r.answer(r.one(), 0)
	r.cycle()
	if c := r.store.Partition(0).Cursor; c != 1 {
		t.Fatalf("cursor %d, want 1", c)
	}
	if r.shard.Unsaved() {
		t.Fatal("nothing moved, yet something waits for a commit")
	}
}

// Without other work a flush commits the cursors, once.
//
// covers: I10, inv2
func TestFlushCommitsCursors(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0)
	r.flush()
	r.news()
	r.cycle()
	r.expect()
	r.flush()
	r.flush()
	r.expect("commit 0")
	if c := r.store.Partition(0).Cursor; c != 1 || r.shard.Unsaved() {
		t.Fatalf("cursor %d, unsaved %v", c, r.shard.Unsaved())
	}
}

// With a cursor goes when the stream took the message there, for the next owner to
// compare: of the same message, also after a takeover, and of none while a cancel waits.
func TestCursorsKeepWhenTheirMessagesWereStored(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	want := func(tasks, control core.Instant) {
		t.Helper()
		if st := r.store.Partition(0); st.CursorStored != tasks || st.ControlStored != control {
			t.Errorf("stored %d and %d, want %d and %d: %+v", st.CursorStored, st.ControlStored, tasks, control, st)
		}
	}
	r.tasks(0, order("t1"))
	r.mail.Tasks[0].Stored = 41
	r.cycle()
	want(0, 0) // it covers what is published
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Pos: 7, Stored: 42, Control: core.Control{Kind: core.EventExtend, ID: "t1"}})
	r.cycle()
	want(41, 0)
	r.flush()
	want(41, 42)
	r.start("n2")
	if from := r.adopt(0); from.CursorStored != 41 || from.ControlStored != 42 || from.Cursor != 1 || from.ControlCursor != 7 {
		t.Errorf("%+v", from)
	}
	r.tasks(0, order("t2"))
	r.cycle()
	r.flush()
	want(0, 42)
}

// A message at or below the cursor was dealt with by an earlier owner: it is
// acknowledged and has no other effect.
//
// covers: I10
func TestPositionsBelowTheCursor(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	c := r.control(core.Control{Kind: core.EventCancel, ID: "t2", Type: "order"})
	r.cycle()
	r.flush()
	r.start("n2")
	from := r.adopt(0)
	if from.Cursor != 1 || from.ControlCursor != c || from.Resumed != 1 {
		t.Fatalf("adopted from %+v", from)
	}
	r.news()
	r.pos = 0
	r.tasks(0, order("t1"))
	r.control(core.Control{Kind: core.EventCancel, ID: "t1"})
	r.cycle()
	r.expect("ack control 2", "ack 1")
	r.state("t1", core.StateProcessing)
}

// The time that a command has left is what is left of it after the commit: an agent whose
// clock is behind goes by nothing else. One whose time is over does not leave.
func TestTimeLeftAfterASlowCommit(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	after := r.store.AfterCommit
	slow := 3 * time.Second
	r.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error {
		r.now = r.now.Add(slow)
		return after(b, res)
	}
	r.tasks(0, order("t1"))
	r.cycle()
	if c := r.one(); c.Left != c.CompleteBy.Sub(r.now) || c.Left <= 0 {
		t.Errorf("it has %v left by %d, which is in %v", c.Left, c.CompleteBy, c.CompleteBy.Sub(r.now))
	}
	slow = time.Hour
	r.tasks(0, order("t2"))
	r.cycle()
	if sent := r.bus.take(); len(sent) > 0 {
		t.Errorf("commands left whose time is over: %+v", sent)
	}
}
