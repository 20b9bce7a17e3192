package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// pause replaces the pauses, as the next cycle hears of it.
func (r *rig) pause(all ...core.Pause) { r.mail.Pauses = &all }

// left runs cycles until the shard wants none now, and returns the tasks whose commands left.
func (r *rig) left() (ids []string) {
	r.t.Helper()
	for range 1000 {
		r.cycle()
		for _, c := range r.bus.take() {
			r.out = append(r.out, c)
			ids = append(ids, c.Task)
		}
		if next := r.shard.NextWake(); next == 0 || next > r.now {
			return ids
		}
	}
	r.t.Fatal("cycles without end")
	return nil
}

func (r *rig) leaves(want ...string) {
	r.t.Helper()
	if got := r.left(); !slices.Equal(got, want) {
		r.t.Fatalf("sent %v, want %v", got, want)
	}
}

// What each kind of pause holds, and that lifting it lets it go: by type, by step, by agent, by label, everything.
//
// covers: OP19
func TestPauseHolds(t *testing.T) {
	gold := core.Label{Key: "tier", Value: "gold"}
	for name, c := range map[string]struct {
		pause core.Pause
		holds []string // types take turns when they are let go
	}{
		"type":                     {core.Pause{Type: "order"}, []string{"o1", "o2"}},
		"step":                     {core.Pause{Type: "order", Step: "a"}, []string{"o1", "o2"}},
		"another step":             {core.Pause{Type: "order", Step: "b"}, nil},
		"another type's step":      {core.Pause{Type: "third", Step: "a"}, nil},
		"agent":                    {core.Pause{Agent: "agent.a"}, []string{"o1", "x1", "o2", "x2"}},
		"another agent":            {core.Pause{Agent: "agent.z"}, nil},
		"agent of a type":          {core.Pause{Type: "other", Agent: "agent.a"}, []string{"x1", "x2"}},
		"label":                    {core.Pause{Label: gold}, []string{"o2", "x2"}},
		"label of a type":          {core.Pause{Type: "order", Label: gold}, []string{"o2"}},
		"another value of the key": {core.Pause{Label: core.Label{Key: "tier", Value: "silver"}}, nil},
		"everything":               {core.Pause{}, []string{"o1", "x1", "o2", "x2"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{})
			r.store.AddPlan(orderPlan("other", 1, "a"))
			r.pause(c.pause)
			all := []core.Submission{{Type: "order", ID: "o1"}, {Type: "order", ID: "o2", Labels: []core.Label{{Key: "k", Value: "v"}, gold}}, {Type: "other", ID: "x1"}, {Type: "other", ID: "x2", Labels: []core.Label{gold}}}
			r.tasks(0, all...)
			var go1 []string
			for _, s := range all {
				if !slices.Contains(c.holds, s.ID) {
					go1 = append(go1, s.ID)
				}
			}
			r.leaves(go1...)
			for _, id := range c.holds {
				if task := r.state(id, core.StatePending); task.WaitsFor != "agent.a" || task.LockedBy != "" {
					t.Errorf("parked %+v", task)
				}
			}
			r.leaves()
			r.pause()
			r.leaves(c.holds...)
		})
	}
}

// A task that has begun is held at its next step, and its result is kept; an undo is never held.
//
// covers: OP19
func TestPauseBetweenSteps(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(2)...)
	r.cycle()
	cmds := r.bus.take()
	r.answer(cmds[1], 0)
	r.cycle()
	r.answer(r.one(), core.CodeRefused) // step b of t2
	r.answer(cmds[0], 0)
	r.pause(core.Pause{})
	r.leaves("t2") // the undo of its step a
	if task := r.state("t1", core.StatePending); task.WaitsFor != "agent.b" {
		t.Fatalf("parked %+v", task)
	}
	r.pause()
	r.cycle()
	if c := r.one(); c.Task != "t1" || c.Step != "b" || string(c.Results[0].Result) != `"a"` {
		t.Fatalf("sent %+v", c)
	}
}

// A step between two attempts is held as well, without its attempts: the next one is what it would have been.
func TestPauseBetweenTries(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.answer(r.one(), core.CodeAgentError)
	r.cycle()
	r.pause(core.Pause{Agent: "agent.a"})
	r.now = r.now.Add(2 * time.Second) // past the backoff
	r.leaves()
	r.state("t1", core.StatePending)
	r.pause()
	r.cycle()
	if c := r.one(); c.Attempt != 2 {
		t.Fatalf("attempt %d, want 2", c.Attempt)
	}
}

// A pause lifts itself when its time is over: the shard wants a cycle then, and lets go of what it held.
//
// covers: OP19
func TestPauseEnds(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	until := r.now.Add(time.Minute)
	r.pause(core.Pause{Type: "order", Until: until}, core.Pause{Type: "order", Until: until.Add(-30 * time.Second)}, core.Pause{Until: r.now})
	r.tasks(0, core.Submission{Type: "order", ID: "t1", CompleteBy: until.Add(time.Hour)})
	r.leaves()
	r.now = r.now.Add(5 * time.Second) // what is recorded outside the database is
	r.leaves()
	if next := r.shard.NextWake(); next != until.Add(-30*time.Second) {
		t.Fatalf("wakes at %d, want the end of the first pause", next)
	}
	r.now = until - 1
	r.leaves()
	if next := r.shard.NextWake(); next != until {
		t.Fatalf("wakes at %d, want %d", next, until)
	}
	r.now = until
	r.leaves("t1")
}

// A task that is held until its deadline is undone when the supervisor asks, as any that is parked.
//
// covers: OP19
func TestHeldUntilItsDeadline(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.pause(core.Pause{Agent: "agent.b"})
	r.tasks(0, core.Submission{Type: "order", ID: "t1", CompleteBy: r.now.Add(10 * time.Second)})
	r.cycle()
	r.answer(r.one(), 0)
	r.leaves()
	task := r.state("t1", core.StatePending)
	r.now = r.now.Add(10 * time.Second)
	r.control(core.Control{Kind: core.EventOverdue, Actor: "supervisor", Numbers: []int64{task.Number}})
	r.cycle()
	if c := r.one(); !c.Undo || c.Step != "a" {
		t.Fatalf("sent %+v, want the undo of a", c)
	}
	r.state("t1", core.StateUndoing)
}

// Tasks that wait for room at an agent are not kept from it by those that a pause holds, also one that came to the agent
// when its place had been passed; and each that is held is read once, not in every cycle.
//
// covers: OP19
func TestHeldTasksAreOutOfTheWay(t *testing.T) {
	const held, window = 700, 4
	r := newRig(t, scheduler.Config{AgentWindow: window, InFlight: 1 << 20})
	r.store.AddPlan(orderPlan("slow", 1, "a"))
	r.store.AddPlan(orderPlan("quick", 1, "z", "a"))
	r.tasks(0, core.Submission{Type: "quick", ID: "q"}) // comes to agent a last, with the lowest number
	r.cycle()
	quick := r.one()
	r.pause(core.Pause{Type: "slow"})
	var subs []core.Submission
	for i := range held {
		subs = append(subs, core.Submission{Type: "slow", ID: fmt.Sprintf("s%d", i)})
	}
	r.tasks(0, subs...)
	r.tasks(0, orders(2*window)...)
	r.cycle()
	cmds := r.bus.take()
	if len(cmds) != window {
		t.Fatalf("%d commands left, want %d", len(cmds), window)
	}
	r.answer(cmds[0], 0)
	r.answer(cmds[1], 0)
	r.leaves("t1", "t2", "t5", "t6") // the first two to agent b
	r.state("t7", core.StatePending)
	r.answer(quick, 0)
	r.leaves()
	r.state("q", core.StatePending)
	r.answer(cmds[2], 0)
	r.leaves("t3", "q")
	r.answer(cmds[3], 0)
	r.leaves("t4", "t7")
	if n := r.store.NumbersRead; n > 4 {
		t.Errorf("%d tasks were read, and four have left; %d are held", n, held)
	}
	r.pause(core.Pause{Type: "slow", Step: "a"}) // another that holds the same
	r.leaves()
	r.pause()
	for _, c := range r.out { // some are answered already
		r.answer(c, 0)
	}
	for r.cycle(); len(r.bus.sent) > 0; r.cycle() {
		for _, c := range r.bus.take() {
			r.answer(c, 0)
		}
	}
	for _, s := range subs {
		r.state(s.ID, core.StateProcessed)
	}
}

// Tasks without end that come to an agent below the place that a look has passed are not lost, however many they are.
func TestManyBehind(t *testing.T) {
	const many = 4096 + 10
	r := newRig(t, scheduler.Config{AgentWindow: 1, InFlight: 1 << 20})
	r.store.AddPlan(orderPlan("slow", 1, "a"))
	r.store.AddPlan(orderPlan("quick", 1, "z", "a"))
	r.cfg.AgentWindow = many // of the next shard, so that all can be at agent z
	var quick []core.Submission
	for i := range many {
		quick = append(quick, core.Submission{Type: "quick", ID: fmt.Sprintf("q%d", i)})
	}
	r.steal(0)
	r.start("n2")
	r.adopt(0)
	r.tasks(0, quick...)
	r.cycle()
	atZ := r.bus.take()
	r.pause(core.Pause{Type: "slow"})
	r.tasks(0, core.Submission{Type: "slow", ID: "s"})
	r.left()
	var fill []core.Submission
	for i := range many {
		fill = append(fill, core.Submission{Type: "order", ID: fmt.Sprintf("t%d", i)})
	}
	r.tasks(0, append(fill, core.Submission{Type: "order", ID: "last"})...)
	r.cycle()
	atA := r.bus.take()
	const some = many/4 + 1 // room that is worth a look
	for _, c := range atA[:some] {
		r.answer(c, 0)
	}
	r.left() // s is passed, and last goes to agent a
	var more []core.Submission
	for i := range some {
		more = append(more, core.Submission{Type: "order", ID: fmt.Sprintf("m%d", i)})
	}
	r.tasks(0, more...) // it is full again
	r.left()
	r.out = nil
	for _, c := range atZ {
		r.answer(c, 0)
	}
	r.leaves()
	for _, c := range atA[some:] {
		r.answer(c, 0)
	}
	sent := map[string]bool{}
	for _, id := range r.left() {
		sent[id] = true
	}
	for _, s := range quick[:many-some-1] { // m and last are at the agent as well
		if !sent[s.ID] {
			t.Fatalf("task %s was not taken up; %d tasks were", s.ID, len(sent))
		}
	}
}

// A retry of a step that waits for its agent does not leave while a pause holds the step, not even when the agent is there
// again, and does when the pause is lifted.
//
// covers: OP19
func TestPauseOfAStepThatWaitsForItsAgent(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(orderPlan("other", 1, "a"))
	r.tasks(0, order("t1"), core.Submission{Type: "other", ID: "x"})
	r.cycle()
	cmds := r.bus.take()
	r.unserved(cmds[0])
	r.cycle()
	r.pause(core.Pause{Type: "order"})
	r.answer(cmds[1], 0) // the agent is there again
	r.leaves()
	for range 20 {
		r.now = max(r.now+1, r.shard.NextWake())
		r.leaves()
	}
	r.pause()
	for range 20 {
		r.now = max(r.now+1, r.shard.NextWake())
		if ids := r.left(); len(ids) > 0 {
			if !slices.Equal(ids, []string{"t1"}) {
				t.Fatalf("sent %v", ids)
			}
			return
		}
	}
	t.Fatal("the retry does not leave when the pause is lifted")
}

// Commands that wait for their agent and that a pause holds leave the room there to others, and go on when it is lifted.
//
// covers: OP19
func TestPausedWaitersLeaveTheWindow(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 2})
	r.store.AddPlan(orderPlan("other", 1, "a", "b"))
	r.tasks(0, order("o1"), order("o2"))
	r.leaves("o1", "o2")
	for _, c := range r.out {
		r.unserved(c)
	}
	r.tasks(0, core.Submission{Type: "other", ID: "x1", Input: []byte(`{}`)}, core.Submission{Type: "other", ID: "x2", Input: []byte(`{}`)}, core.Submission{Type: "other", ID: "x3", Input: []byte(`{}`)})
	r.leaves()
	paused := core.Pause{Type: "order"}
	r.pause(paused)
	soon := func(want ...string) {
		t.Helper()
		var got []string
		for range 20 {
			if got = append(got, r.left()...); len(got) >= len(want) {
				break
			}
			r.now = max(r.now+1, r.shard.NextWake())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Fatalf("sent %v, want %v", got, want)
		}
	}
	soon("x1", "x2")
	r.pause()
	soon("o1", "o2") // beyond the window, which they had first
	for _, c := range r.out[2:] {
		r.answer(c, 0)
	}
	soon("x1", "x2", "x3") // x3 has its room at a; at b it is full
}

// A new owner reads what is parked again, and holds it by the pauses that it is told.
func TestPauseAfterATakeover(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.pause(core.Pause{Type: "order"})
	r.tasks(0, orders(3)...)
	r.leaves()
	r.start("n2")
	r.pause(core.Pause{Label: core.Label{Key: "no", Value: "task"}}, core.Pause{Type: "order"})
	r.adopt(0)
	r.leaves()
	r.pause()
	r.leaves("t1", "t2", "t3")
}

// A scheduler reads the pauses before it takes anything over, when it is told, and from time to time; while they cannot be
// read, those it knows count.
//
// covers: OP19
func TestPausesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all atomic.Pointer[[]core.Pause]
		var reads atomic.Int64
		set := func(p ...core.Pause) { all.Store(&p) }
		c := newCluster(t)
		n := c.run("n1", func(cfg *scheduler.RunConfig) {
			cfg.Pauses = func(context.Context) ([]core.Pause, error) {
				reads.Add(1)
				if p := all.Load(); p != nil {
					return *p, nil
				}
				return nil, errors.New("not now")
			}
		})
		c.setLive("n1")
		c.submit(0, order("t1"))
		pass(3 * time.Second)
		if c.store.Task(0, "t1") != nil {
			t.Fatal("a task was taken up before the pauses were read")
		}
		set(core.Pause{Type: "order"})
		pass(2 * time.Second)
		c.want(core.StatePending, 0, "t1")
		all.Store(nil) // they cannot be read
		n.s.PausesChanged()
		pass(time.Second)
		c.want(core.StatePending, 0, "t1")
		set()
		n.s.PausesChanged()
		pass(time.Second)
		c.want(core.StateProcessed, 0, "t1")
		set(core.Pause{Type: "order"})
		pass(scheduler.PausesEvery + time.Second) // it is not told
		c.submit(0, order("t2"))
		pass(time.Second)
		c.want(core.StatePending, 0, "t2")
		before := reads.Load()
		pass(time.Minute)
		if n := reads.Load() - before; n < 11 || n > 13 {
			t.Errorf("%d readings in a minute, want one every %v", n, scheduler.PausesEvery)
		}
		c.end(n)
	})
}

// A retry that is held back leaves no trace, also where a row of the same batch says that it is out: what the owner knows is
// what it has committed.
//
// covers: OP19
func TestHeldRetryThatIsOutByARow(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "fork", Version: 1, Steps: []core.Step{
		{Name: "b", Agent: "agent.b", CompleteBy: 5 * time.Second, AttemptsMax: 5},
		{Name: "c", Agent: "agent.c", CompleteBy: 20 * time.Second},
	}})
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "fork", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	for _, c := range r.bus.take() {
		if c.Step == "c" {
			r.unserved(c)
		}
	}
	r.cycle()
	r.pause(core.Pause{Agent: "agent.c"})
	r.now = r.now.Add(5 * time.Second)
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1}, Actor: "supervisor"}) // b is late, and then c is tried again
	for range 3 {
		r.cycle()
		r.now = r.now.Add(time.Second)
	}
	for _, c := range r.bus.take() {
		if c.Step == "c" {
			t.Errorf("sent %+v", c)
		}
		r.answer(c, 0)
	}
	r.cycle()
	task := r.state("t1", core.StateProcessing)
	if task.Steps[0].Status != core.StepDone {
		t.Errorf("%s", r.store.History(0, "t1"))
	}
}
