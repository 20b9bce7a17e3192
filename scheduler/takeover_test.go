package scheduler_test

import (
	"context"
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

// A successor sends the commands that are out again, with the same attempt and
// number, and an answer to either copy counts, once.
//
// covers: S38, I19, I24
func TestTakeoverResends(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	first := r.one()
	r.answer(first, core.CodeAgentError)
	r.cycle()
	r.now = r.shard.NextWake()
	r.cycle()
	second := r.one()
	r.start("n2")
	if from := r.adopt(0); from.Epoch != 2 || from.Resumed != 1 {
		t.Fatalf("adopted %+v", from)
	}
	again := r.one()
	if again.Seq != second.Seq || again.Attempt != 2 || again.Key() != second.Key() || again.CompleteBy != second.CompleteBy {
		t.Fatalf("sent again as %+v, was %+v", again, second)
	}
	r.answer(second, 0)
	r.answer(again, 0)
	r.answer(first, 0)
	r.cycle()
	if r.shard.Stats.Stale != 2 {
		t.Fatalf("%d stale replies, want 2", r.shard.Stats.Stale)
	}
	if c := r.one(); c.Step != "b" || len(c.Results) != 1 || c.Results[0].Step != "a" {
		t.Fatalf("then %+v", c)
	}
}

// Waits are in memory only: a successor rebuilds them.
//
// covers: S38, inv11
func TestTakeoverRebuildsWaits(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.answer(r.one(), core.CodeAgentError)
	r.cycle()
	at := r.shard.NextWake()
	r.start("n2")
	r.adopt(0)
	if got := r.shard.NextWake(); got != at || at == 0 {
		t.Fatalf("wakes at %d, want %d", got, at)
	}
	r.now = at
	r.cycle()
	if c := r.one(); c.Attempt != 2 {
		t.Fatalf("then %+v", c)
	}
}

// A command whose time is over is not sent again: the supervisor will ask.
//
// covers: S11
func TestTakeoverSendsNothingLate(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	c := r.one()
	r.now = c.CompleteBy
	r.start("n2")
	if from := r.adopt(0); from.Resumed != 1 || len(r.bus.take()) > 0 {
		t.Fatalf("adopted %+v", from)
	}
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{c.Number}, Actor: "supervisor"})
	r.cycle()
	r.now = r.shard.NextWake()
	r.cycle()
	if c := r.one(); c.Attempt != 2 {
		t.Fatalf("then %+v", c)
	}
}

// What ended after publishedThrough is published again. Numbers that were spent on
// nothing, or whose task was resumed, do not hold it back.
//
// covers: inv10
func TestTakeoverRepublishes(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bus.hold = true
	for _, id := range []string{"t1", "t2", "t3", "t4"} { // ends 1 to 4
		r.tasks(0, core.Submission{Type: "later", ID: id})
	}
	r.cycle()
	r.store.AddPlan(orderPlan("later", 1, "a"))
	r.mail.PlansChanged = true
	r.control(core.Control{Kind: core.EventResubmit, ID: "t2", Actor: "olga"})                         // 2 is a hole
	r.control(core.Control{Kind: core.EventResolve, ID: "t4", As: core.StateProcessed, Actor: "olga"}) // 4 too; 5 is published
	r.cycle()
	r.tasks(0, core.Submission{Type: "later", ID: "t5"})
	r.cycle()
	r.bus.hold = false
	r.news()
	r.start("n2")
	r.adopt(0)
	r.expect("publish t1 error 1", "publish t3 error 3", "publish t4 processed 5", "do t2/a/0 try 1", "do t5/a/0 try 1")
	r.flush()
	if st := r.store.Partition(0); st.Told != 5 || st.NextEnd != 6 {
		t.Fatalf("published up to %d of %d", st.Told, st.NextEnd-1)
	}
	r.start("n3")
	r.adopt(0)
	r.expect("commit 0", "do t2/a/0 try 1", "do t5/a/0 try 1")
}

// The submitter of a task hears of its end from the successor of an owner that died
// between the commit and the telling.
//
// covers: S25, T6, inv10
func TestTakeoverNotifiesTheSubmitterAgain(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AfterCommit = func(*core.Batch, core.CommitResult) error { return errCut }
	sub := core.Submission{Type: "later", ID: "t1", ReplyTo: "inbox.of.one"} // of no plan: it ends in error at once
	r.tasks(0, sub)
	if _, err := r.try(false); err == nil {
		t.Fatal("no error")
	}
	r.store.AfterCommit = nil
	r.news()
	r.start("n2")
	r.adopt(0)
	r.expect("publish t1 error 1", "notify inbox.of.one error")
	r.flush()
	r.news()
	r.start("n3")
	r.adopt(0)
	if list := r.news(); slices.Contains(list, "notify inbox.of.one error") {
		t.Errorf("%q: it was published, and publishedThrough says so", list)
	}
}

// An end number that was spent last, with nothing to publish under it or after it,
// does not hold publishedThrough back either.
func TestTakeoverPassesASpentEndNumber(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bus.hold = true
	r.tasks(0, core.Submission{Type: "later", ID: "t1"})
	r.cycle()
	r.store.AddPlan(orderPlan("later", 1, "a"))
	r.mail.PlansChanged = true
	r.control(core.Control{Kind: core.EventResubmit, ID: "t1", Actor: "olga"})
	r.cycle()
	r.start("n2")
	r.adopt(0)
	if n := r.shard.Load(0); n != 1 {
		t.Fatalf("load %d, want the one task in flight", n)
	}
	r.flush()
	if st := r.store.Partition(0); st.Told != 1 || st.NextEnd != 2 {
		t.Fatalf("published up to %d of %d", st.Told, st.NextEnd-1)
	}
}

// Many tasks take several pages.
//
// covers: inv10
func TestTakeoverInPages(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	const n = 2003
	for i := range n {
		r.tasks(0, order(fmt.Sprintf("t%d", i)), core.Submission{Type: "unknown", ID: fmt.Sprintf("u%d", i)})
	}
	r.bus.hold = true
	r.cycle()
	r.bus.hold = false
	r.bus.take()
	r.start("n2")
	if from := r.adopt(0); from.Resumed != n || len(r.bus.take()) != n || r.shard.Stats.Republished != 1000 {
		t.Fatalf("adopted %+v, retold %d", from, r.shard.Stats.Republished)
	}
	for r.shard.Stats.Republished < n { // a page follows when the one before is published
		r.cycle()
	}
	if r.cycle(); r.shard.Load(0) != n {
		t.Fatalf("load %d, want %d: all endings are published", r.shard.Load(0), n)
	}
}

// Parked tasks are not loaded at a takeover; they are loaded in its first cycle.
//
// covers: S23
func TestTakeoverLeavesParkedTasks(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, orders(3)...)
	r.cycle()
	r.one()
	r.start("n2")
	if from := r.adopt(0); from.Resumed != 1 {
		t.Fatalf("adopted %+v", from)
	}
	r.finish()
	for _, id := range []string{"t1", "t2", "t3"} {
		r.state(id, core.StateProcessed)
	}
}

// A stream with another identity is an alert and a fresh start.
func TestOtherStream(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.control(core.Control{Kind: core.EventCancel, ID: "t9", Type: "order"})
	r.cycle()
	r.flush()
	r.start("n2")
	from, err := r.shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-2/control-2"})
	if err != nil || from.Cursor != 0 || from.ControlCursor != 0 {
		t.Fatalf("adopted %+v, %v", from, err)
	}
	r.logged("ALERT")
	if st := r.store.Partition(0); st.Stream != "stream-2/control-2" || st.Cursor != 0 || st.ControlCursor != 0 {
		t.Fatalf("stored %+v", st)
	}
	r.pos = 0
	r.news()
	r.tasks(0, order("t2"))
	r.cycle()
	r.expect("commit 1", "notify private.t2 received", "do t2/a/0 try 1", "ack 1")
}

// Each stream has a cursor of its own: one that was lost does not make the other be read
// again.
//
// covers: A5, A7, inv1
func TestOtherStreamOfTwo(t *testing.T) {
	for _, c := range []struct {
		stored, now    string
		tasks, control uint64
		kept           string
		alert          string
	}{
		{"t1/c1", "t1/c1", 7, 5, "t1/c1", ""},
		{"t1/c1", "t2/c1", 0, 5, "t2/c1", "the task stream is read again"},
		{"t1/c1", "t1/c2", 7, 0, "t1/c2", "the control stream is read again"},
		{"", "t1/c1", 0, 0, "t1/c1", ""},
	} {
		r := newRig(t, scheduler.Config{})
		cursor, control := uint64(7), uint64(5)
		if c.stored == "" {
			cursor, control = 0, 0
		}
		r.store.SetStream(0, c.stored, cursor, control)
		r.start("n2")
		r.logs.Reset()
		from, err := r.shard.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: c.now})
		if err != nil || from.Cursor != c.tasks || from.ControlCursor != c.control || from.Stream != c.now {
			t.Errorf("%q, now %q: adopted %+v, %v", c.stored, c.now, from, err)
		}
		if st := r.store.Partition(0); st.Stream != c.kept || st.Cursor != c.tasks || st.ControlCursor != c.control {
			t.Errorf("%q, now %q: stored %+v", c.stored, c.now, st)
		}
		if n, logs := strings.Count(r.logs.String(), "ALERT"), r.logs.String(); c.alert == "" && n != 0 || c.alert != "" && !strings.Contains(logs, c.alert) {
			t.Errorf("%q, now %q: %s", c.stored, c.now, logs)
		}
	}
}

// A task whose plan is gone from the store cannot go on; it ends in error when
// the supervisor asks about it, and the others are none the worse.
//
// covers: S38
func TestTakeoverWithoutThePlan(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(orderPlan("refund", 1, "a"))
	r.tasks(0, core.Submission{Type: "refund", ID: "t1"}, order("t2"))
	r.cycle()
	r.bus.take()
	r.store.RemovePlan("refund")
	r.start("n2")
	r.adopt(0)
	if c := r.one(); c.Task != "t2" {
		t.Fatalf("sent again: %+v", c)
	}
	r.logged("ALERT")
	r.now = r.now.Add(time.Minute)
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1}, Actor: "supervisor"})
	r.cycle()
	r.state("t1", core.StateError)
}

// slowTakeOver lets time pass before a takeover.
type slowTakeOver struct {
	*sim.MemStore
	pass func()
}

func (s slowTakeOver) TakeOver(ctx context.Context, p int, c core.Claim) (core.PartitionState, error) {
	s.pass()
	return s.MemStore.TakeOver(ctx, p, c)
}

// A node that stands still before it takes a partition over counts on the retries that
// the former owner has sent meanwhile: no undo leaves while one may be at work.
func TestTakeoverAfterStandingStill(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(waitingPlan)
	r.tasks(0, core.Submission{Type: "waiting", ID: "t1", At: r.now})
	r.cycle()
	r.unserved(r.one())
	r.cycle() // it waits for its agent, and is retried
	n2 := &rig{t: t, store: r.store, bus: &bus{}, mail: &scheduler.Mail{}, now: r.now, pos: r.pos, cfg: r.cfg}
	n2.cfg.Node, n2.cfg.Now = "n2", n2.clock
	store := slowTakeOver{r.store, func() { n2.now = n2.now.Add(time.Minute) }}
	log := slog.New(slog.DiscardHandler)
	n2.shard = scheduler.NewShard(n2.cfg, store, n2.bus, log, chance("n2"), func(m scheduler.PublishedMail) { n2.mail.Published = append(n2.mail.Published, m) }, func(scheduler.ProbedMail) {})
	n2.adopt(0)
	n2.bus.take()
	n2.control(core.Control{Kind: core.EventUndo, ID: "t1", Type: "waiting"})
	n2.cycle()
	for _, c := range n2.bus.take() {
		if c.Undo {
			t.Fatalf("an undo left while a retry of the former owner may be at work: %+v", c)
		}
	}
	n2.state("t1", core.StateUndoing)
}

// cursorStore may not say whose the partitions are.
type cursorStore struct {
	*sim.MemStore
	err *error
}

func (s cursorStore) CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	if *s.err != nil {
		return nil, *s.err
	}
	return s.MemStore.CursorsOf(ctx, partitions, owner)
}

// waitingPlan gives a task an hour, and its retries little time between them.
var waitingPlan = core.Plan{Name: "waiting", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
	{Name: "a", Agent: "agent.a", Undoable: true, Backoff: 10 * time.Millisecond, BackoffCap: 10 * time.Millisecond},
}}

// A retry leaves without a commit of its own, so it leaves only when the owner has just
// made sure that it is the owner; that it did so before a commit that was slow does not
// count.
func TestRetryAfterASlowCommitIsProven(t *testing.T) {
	for _, is := range []struct{ stolen, unknown bool }{{}, {stolen: true}, {stolen: true, unknown: true}} {
		r := newRig(t, scheduler.Config{})
		var failed error
		log := slog.New(slog.NewTextHandler(&r.logs, nil))
		r.shard = scheduler.NewShard(r.cfg, cursorStore{r.store, &failed}, r.bus, log, chance("n1"), func(scheduler.PublishedMail) {}, func(scheduler.ProbedMail) {})
		r.adopt(0)
		r.store.AddPlan(waitingPlan)
		r.adopt(1)
		r.tasks(0, core.Submission{Type: "waiting", ID: "t1", At: r.now})
		r.cycle()
		r.unserved(r.one())
		r.cycle()
		r.now = r.now.Add(100 * time.Millisecond)
		r.cycle() // proven
		r.unserved(r.one())
		r.cycle()
		done := r.store.AfterCommit
		r.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error {
			if is.stolen {
				r.steal(0) // as soon as it has committed
			}
			if is.unknown {
				failed = errCut
			}
			r.now = r.now.Add(5 * time.Second)
			return done(b, res)
		}
		r.now = r.now.Add(100 * time.Millisecond)
		r.tasks(1, order("t2"))
		r.cycle()
		retried := slices.ContainsFunc(r.bus.take(), func(c core.Command) bool { return c.Task == "t1" })
		if retried == is.stolen {
			t.Errorf("%+v: the retry left: %v", is, retried)
		}
	}
}

// After the clock was set back no retry leaves by what the store had confirmed before.
func TestRetryAfterTheClockWasSetBackIsProven(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(waitingPlan)
	waits := func(id string) {
		r.tasks(0, core.Submission{Type: "waiting", ID: id, At: r.now})
		r.cycle()
		r.unserved(r.one())
		r.cycle()
	}
	retried := func() bool {
		r.now = r.now.Add(100 * time.Millisecond)
		r.cycle()
		return len(r.bus.take()) > 0
	}
	waits("t1")
	if !retried() {
		t.Fatal("nothing is tried again")
	}
	r.now = r.now.Add(-time.Minute)
	waits("t2")
	r.steal(0)
	if retried() {
		t.Error("a retry leaves of a partition that is lost")
	}
}

// laterStore lets something happen before it says which tasks are active.
type laterStore struct {
	*sim.MemStore
	before func()
}

func (s laterStore) LoadActive(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Saved, error) {
	s.before()
	return s.MemStore.LoadActive(ctx, as, after, limit)
}

// A node that stands still while it takes over finds the tasks of its successor.
// It must not send their commands: the successor does not know that they are in
// two pairs of hands then, and would not wait for both before it undoes.
//
// covers: inv7
func TestOvertakenWhileTakingOver(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	late := &bus{}
	store := laterStore{r.store, func() {
		r.start("n3")
		r.adopt(0)
		r.tasks(0, order("t1"))
		r.cycle()
		r.one()
	}}
	n2 := scheduler.NewShard(scheduler.Config{Node: "n2", Now: r.clock}, store, late, slog.New(slog.DiscardHandler), chance("n2"), func(scheduler.PublishedMail) {}, func(scheduler.ProbedMail) {})
	if _, err := n2.Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1"}); err == nil {
		t.Error("it has taken over a partition that is another's")
	}
	if sent := late.take(); len(sent) > 0 {
		t.Errorf("it sends what its successor has sent: %+v", sent)
	}
	if _, owns := n2.Owns(0); owns {
		t.Error("it thinks that the partition is its own")
	}
}

// TestBranchesAfterATakeover: of two branches that could not begin under the former owner, the one for which there is no room
// after the other has begun waits for it, and begins when there is.
//
// covers: L4
func TestBranchesAfterATakeover(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 2})
	r.store.AddPlan(orderPlan("single", 1, "b"))
	for _, beside := range []string{"a", "c"} {
		p := orderPlan("wide"+beside, 1, beside, "b")
		p.Steps[1].After = nil
		r.store.AddPlan(p)
	}
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "single", ID: "t1"})
	r.leaves("t1")
	r.pause(core.Pause{Agent: "agent.b"})
	r.tasks(0, core.Submission{Type: "widea", ID: "t2"}, core.Submission{Type: "widec", ID: "t3"})
	r.leaves("t2", "t3")
	r.start("n2") // it has not heard of the pause
	r.adopt(0)
	r.leaves("t1", "t2", "t3", "t2")
	r.answer(r.out[3], 0) // b's window has room again
	r.leaves("t3")
}
