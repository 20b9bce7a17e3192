package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

func (r *rig) sentTasks() []string {
	var ids []string
	for _, c := range r.bus.take() {
		ids = append(ids, c.Task)
	}
	return ids
}

// Tasks of an agent whose window is full are parked, outside memory; others go
// on; the parked ones are taken up, oldest first, when there is room.
//
// covers: E13, S23, I6, I14, inv11
func TestWindowParks(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 4})
	r.store.AddPlan(orderPlan("other", 1, "c"))
	r.tasks(0, orders(7)...)
	r.tasks(0, core.Submission{Type: "other", ID: "free"})
	r.cycle()
	cmds := r.bus.take()
	var ids []string
	for _, c := range cmds {
		ids = append(ids, c.Task)
	}
	if !slices.Equal(ids, []string{"t1", "t2", "t3", "t4", "free"}) {
		t.Fatalf("sent %v", ids)
	}
	if n := r.shard.Load(0); n != 5 {
		t.Fatalf("load %d, want the parked ones out of flight", n)
	}
	if task := r.state("t5", core.StatePending); task.WaitsFor != "agent.a" || task.LockedBy != "" {
		t.Fatalf("parked %+v", task)
	}
	r.answer(cmds[0], 0)
	r.cycle() // t1 leaves agent a only now: room for one in this very cycle
	if ids := r.sentTasks(); !slices.Equal(ids, []string{"t1", "t5"}) {
		t.Fatalf("sent %v", ids)
	}
	r.answer(cmds[1], 0)
	r.answer(cmds[2], 0)
	r.cycle()
	if ids := r.sentTasks(); !slices.Equal(ids, []string{"t2", "t3", "t6", "t7"}) {
		t.Fatalf("sent %v", ids)
	}
}

// A task between two steps parks too when the next agent is full, and its
// result is kept.
//
// covers: I14
func TestWindowParksBetweenSteps(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, orders(2)...)
	r.cycle()
	r.answer(r.one(), 0) // t1 goes to b, t2 to a
	r.cycle()
	cmds := r.bus.take()
	if len(cmds) != 2 {
		t.Fatalf("sent %+v", cmds)
	}
	r.answer(cmds[1], 0) // t2: a is done, b is full
	r.cycle()
	if task := r.state("t2", core.StatePending); task.WaitsFor != "agent.b" {
		t.Fatalf("parked %+v", task)
	}
	r.answer(cmds[0], 0)
	r.cycle()
	if c := r.one(); c.Task != "t2" || c.Step != "b" || string(c.Results[0].Result) != `"a"` {
		t.Fatalf("sent %+v", c)
	}
}

// A batch that is full when there is room for parked tasks must not forget
// them: nothing else may come to remind the shard.
//
// covers: inv11
func TestParkedTasksAreNotForgotten(t *testing.T) {
	for _, batch := range []int{1, 2, 3, 5} {
		r := newRig(t, scheduler.Config{AgentWindow: 2, BatchMax: batch})
		r.store.AddPlan(orderPlan("single", 1, "a"))
		var subs []core.Submission
		for i := range 9 {
			subs = append(subs, core.Submission{Type: "single", ID: fmt.Sprintf("t%d", i)})
		}
		r.tasks(0, subs...)
		r.bus.hold = true // not even a confirmation
		r.cycle()
		r.finish()
		for _, s := range subs {
			r.state(s.ID, core.StateProcessed)
		}
	}
}

// A task that is parked, and the room for it that comes in the same round: its
// row is not committed when the store is asked for parked tasks, and nothing
// else may come to remind the shard of it.
//
// covers: inv11
func TestParkedInTheRoundThatMakesRoom(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, orders(1)...) // goes on to b
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	atB := r.one()
	r.tasks(0, order("t2")) // waits at a
	r.cycle()
	atA := r.one()
	r.bus.hold = true // not even a confirmation comes after this cycle
	r.answer(atA, 0)  // wants to b, which is full
	r.answer(atB, 0)  // and makes room there
	r.cycle()
	if ids := r.sentTasks(); !slices.Equal(ids, []string{"t2"}) {
		t.Fatalf("sent %v, want the parked task", ids)
	}
}

// The window counts tasks between two attempts at the agent they wait for, and
// lets go of tasks that end or are undone.
//
// covers: I6
func TestWindowIsGivenBack(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, orders(2)...)
	r.cycle()
	r.answer(r.one(), core.CodeAgentError)
	r.cycle()
	if ids := r.sentTasks(); len(ids) > 0 {
		t.Fatalf("sent %v while t1 waits for its next try there", ids)
	}
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Actor: "olga"})
	r.cycle()
	undo := r.one() // it is at the agent as well
	if !undo.Undo || undo.Task != "t1" {
		t.Fatalf("sent %+v", undo)
	}
	r.answer(undo, 0)
	r.cycle()
	if ids := r.sentTasks(); !slices.Equal(ids, []string{"t2"}) {
		t.Fatalf("sent %v", ids)
	}
}

// A duplicate gives its place back as well.
func TestWindowIsGivenBackByADuplicate(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, order("t1"))
	r.cycle()
	r.finish()
	r.tasks(0, order("t1"))
	r.cycle()
	r.tasks(0, order("t2"))
	r.cycle()
	if ids := r.sentTasks(); !slices.Equal(ids, []string{"t2"}) {
		t.Fatalf("sent %v", ids)
	}
}

// A command that is answered before it leaves, by a sender that knew its number,
// does not leave any more.
func TestAnsweredBeforeItLeaves(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	first := r.one()
	next := first
	next.Seq++
	r.answer(first, 0)
	r.answer(next, 0)
	r.cycle()
	if ids := r.sentTasks(); len(ids) > 0 {
		t.Fatalf("sent %v", ids)
	}
	r.state("t1", core.StateProcessed)
}

// A command without a listener is no attempt: the task waits, and
// tries again.
//
// covers: E8
func TestUnserved(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.unserved(r.one())
	r.unserved(core.Command{Partition: 0, Number: 99, Seq: 1})
	r.unserved(core.Command{Partition: 7, Number: 1, Seq: 1})
	r.cycle()
	at := r.shard.NextWake()
	if at == 0 || at > r.now.Add(time.Second) {
		t.Fatalf("wakes at %d, now %d", at, r.now)
	}
	r.now = at
	r.cycle()
	if c := r.one(); c.Attempt != 1 {
		t.Fatalf("attempt %d", c.Attempt)
	}
}

// Tasks that wait for agents that are away leave the rest of their partition to others, however many come and whenever those that
// wait end. When an agent is there again all go on.
func TestAgentsAwayFillNoPartition(t *testing.T) {
	const inFlight, most = 32, 8
	r := newRig(t, scheduler.Config{InFlight: inFlight, AgentWindow: inFlight / 2})
	for _, name := range []string{"x", "y", "z"} {
		r.store.AddPlan(orderPlan(name, 1, name))
	}
	r.mail.PlansChanged = true
	there, all := false, []string(nil)
	cycles := func() {
		t.Helper()
		for range 10 {
			r.cycle()
			for _, c := range r.bus.take() {
				if there || c.Agent == "agent.z" {
					r.answer(c, 0)
				} else {
					r.unserved(c)
				}
			}
		}
		if n := r.shard.Load(0); n > most && !there {
			t.Fatalf("%d of %d tasks that may be in flight wait for agents that are away", n, inFlight)
		}
	}
	submit := func(n int, until core.Instant) {
		for range n {
			for _, kind := range []string{"x", "y"} {
				all = append(all, fmt.Sprint(kind, len(all)))
				r.tasks(0, core.Submission{Type: kind, ID: all[len(all)-1], Input: []byte(`{}`), CompleteBy: until})
				cycles()
			}
		}
	}
	submit(20, r.now.Add(10*time.Minute))
	early := len(all)
	submit(20, r.now.Add(2*time.Hour))
	r.tasks(0, core.Submission{Type: "z", ID: "other", Input: []byte(`{}`)})
	cycles()
	r.state("other", core.StateProcessed)
	for range 30 { // all that wait end at once, and others wait in their place
		r.now = max(r.now.Add(time.Minute), r.shard.NextWake())
		cycles()
	}
	there = true
	for range 100 {
		r.now = max(r.now+1, r.shard.NextWake())
		cycles()
	}
	for i, id := range all {
		want := core.StateProcessed
		if i < early {
			want = core.StateUndone
		}
		r.state(id, want)
	}
}

// All that waited for an agent have ended, and nothing is known of it since: others go on until its window is full, though no
// answer comes.
func TestWindowFillsAfterWaitersHaveEnded(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 8})
	r.tasks(0, orderBy("t1", r.now.Add(time.Minute)))
	r.leaves("t1")
	r.unserved(r.out[0])
	for _, id := range []string{"t2", "t3", "t4", "t5", "t6"} {
		r.tasks(0, orderBy(id, r.now.Add(time.Hour)))
	}
	r.leaves()
	r.now = r.now.Add(time.Minute)
	r.leaves("t2", "t3", "t4", "t5", "t6")
	r.state("t1", core.StateUndone)
}

// Replies that mean nothing any more change nothing, and never bring a task
// back into memory.
//
// covers: S13, inv9
func TestStaleReplies(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	c := r.one()
	wrong := c
	wrong.Seq++
	late := c
	r.answer(wrong, 0)
	r.now = c.CompleteBy
	r.answer(late, core.CodeAgentError) // at its complete-by it is too late, and says nothing new
	r.answer(core.Command{Partition: 0, Number: 99, Seq: 1}, 0)
	r.answer(core.Command{Partition: 3, Number: 1, Seq: 1}, 0)
	r.news()
	r.cycle()
	r.expect()
	if r.shard.Stats.Stale != 4 {
		t.Fatalf("%d stale", r.shard.Stats.Stale)
	}
	r.now = began
	r.answer(c, 0)
	r.cycle()
	b := r.one()
	r.answer(b, 0)
	r.cycle()
	r.cycle()
	r.answer(b, 0)
	r.store.BeforeCommit = func(*core.Batch) error { t.Error("a late reply is committed"); return nil }
	r.cycle()
	if r.shard.Load(0) != 0 {
		t.Fatal("a late reply brought its task back")
	}
}

// An answer is timed from when its own command left: not from the row of another step, nor from the wait for an agent that was
// not there. Otherwise agents seem to answer at once, or late, and the node's window is narrowed for nothing.
func TestAnswersAreTimedByTheirCommands(t *testing.T) {
	r := newRig(t, scheduler.Config{Hears: func() int64 { return 1 }})
	r.store.AddPlan(core.Plan{Name: "pair", Version: 1, Steps: []core.Step{{Name: "x", Agent: "agent.x"}, {Name: "y", Agent: "agent.y"}}})
	r.mail.PlansChanged = true
	n := 0
	pair := func() []core.Command {
		n++
		r.tasks(0, core.Submission{Type: "pair", ID: fmt.Sprint("t", n), Input: []byte(`{}`)})
		r.cycle()
		cmds := r.bus.take()
		if len(cmds) != 2 {
			t.Fatalf("%d commands left, want 2", len(cmds))
		}
		slices.SortFunc(cmds, func(a, b core.Command) int { return strings.Compare(a.Step, b.Step) })
		return cmds
	}
	answer := func(c core.Command, after time.Duration) (timed, late int) {
		r.now = r.now.Add(after)
		r.answer(c, 0)
		r.cycle()
		return r.shard.Answers()
	}
	for range 100 {
		cmds := pair()
		answer(cmds[0], 400*time.Millisecond)
		answer(cmds[1], time.Millisecond)
	}
	if timed, late := answer(pair()[1], 400*time.Millisecond); timed != 1 || late != 0 {
		t.Errorf("of %d answers that took as long as always %d are late", timed, late)
	}
	cmds := pair()
	answer(cmds[0], 400*time.Millisecond)
	r.unserved(cmds[1])
	r.cycle()
	r.now = max(r.now, r.shard.NextWake()).Add(5 * time.Second)
	r.cycle()
	if timed, late := answer(r.one(), 300*time.Millisecond); timed != 1 || late != 0 {
		t.Errorf("of %d answers to what left when its agent was there again %d are late", timed, late)
	}
}
