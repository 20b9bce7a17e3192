package scheduler_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// shut replaces the breakers that are not closed, as the next cycle hears of it.
func (r *rig) shut(all ...core.Breaker) { r.mail.Breakers = &all }

func openBreaker(agent string, until core.Instant, revision int64) core.Breaker {
	return core.Breaker{Agent: agent, State: core.BreakerOpen, Since: began, Until: until, Openings: 1, Revision: revision}
}

// orderBy is an order with a deadline of its own.
func orderBy(id string, by core.Instant) core.Submission {
	return core.Submission{Type: "order", ID: id, CompleteBy: by}
}

// An open breaker parks what would begin at its agent, new or between two attempts, and nothing else; when its time is over one
// command leaves, and the next only when that was answered; when it is closed all do.
//
// covers: S43, D8
func TestBreakerParks(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	late, until := r.now.Add(time.Hour), r.now.Add(5*time.Second)
	r.tasks(0, orderBy("t1", late), orderBy("t2", late))
	r.leaves("t1", "t2")
	r.answer(r.out[0], core.CodeAgentError)
	r.answer(r.out[1], 0)
	r.shut(openBreaker("agent.a", until, 1))
	r.tasks(0, orderBy("t3", late), orderBy("t4", late))
	r.leaves("t2") // its step b
	r.now = r.now.Add(2 * time.Second)
	r.leaves() // t1 is past its backoff
	for _, id := range []string{"t1", "t3", "t4"} {
		if task := r.state(id, core.StatePending); task.WaitsFor != "agent.a" {
			t.Errorf("%s waits for %q", id, task.WaitsFor)
		}
	}
	r.now = until - 1 // what is recorded outside the database is
	r.leaves()
	if next := r.shard.NextWake(); next != until {
		t.Fatalf("wakes at %d, want the begin of the trial, %d", next, until)
	}
	r.now = until
	r.leaves("t1")
	if c := r.out[3]; c.Attempt != 2 {
		t.Errorf("attempt %d of the first in trial, want 2: the wait spends none", c.Attempt)
	}
	r.answer(r.out[3], 0)
	r.leaves("t1", "t3") // step b of t1, and the next of the trial
	r.leaves()
	r.shut(core.Breaker{Agent: "agent.a", State: core.BreakerTrial, Stage: 2, Revision: 2})
	r.leaves("t4")
	r.tasks(0, orderBy("t5", late), orderBy("t6", late), orderBy("t7", late))
	r.leaves("t5", "t6") // four are out
	r.shut()
	r.leaves("t7")
}

// A task that cannot wait until the breaker's trial is undone at once: one that comes, and those that are parked already.
func TestBreakerGivesUp(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	soon, late := r.now.Add(30*time.Second), r.now.Add(time.Hour)
	r.tasks(0, orderBy("t1", late), orderBy("t2", soon), orderBy("t3", late))
	r.leaves("t1")
	r.state("t2", core.StatePending)
	r.shut(openBreaker("agent.a", r.now.Add(time.Minute), 1))
	r.tasks(0, orderBy("t4", soon), orderBy("t5", late))
	r.leaves()
	for id, want := range map[string]core.State{"t2": core.StateUndone, "t3": core.StatePending, "t4": core.StateUndone, "t5": core.StatePending} {
		r.state(id, want)
	}
	r.shut(openBreaker("agent.a", r.now.Add(2*time.Hour), 2)) // opened again, for longer
	r.leaves()
	r.state("t3", core.StateUndone)
	r.state("t5", core.StateUndone)
}

// However many cannot wait, and however few fit into a commit, all of them are undone at once.
func TestBreakerGivesUpMany(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1, BatchMax: 2})
	r.tasks(0, orderBy("t0", r.now.Add(time.Hour)))
	r.leaves("t0")
	for i := range 7 {
		r.tasks(0, orderBy(fmt.Sprint("t", i+1), r.now.Add(30*time.Second)))
	}
	r.leaves()
	r.shut(openBreaker("agent.a", r.now.Add(time.Minute), 1))
	r.leaves()
	for i := range 7 {
		r.state(fmt.Sprint("t", i+1), core.StateUndone)
	}
}

// A breaker that the store has no more, because the database went back, holds nothing back any more.
func TestBreakerThatIsGone(t *testing.T) {
	r := newLimitRig(t, 1)
	sched := scheduler.New(scheduler.RunConfig{
		Config: scheduler.Config{Node: "n", Now: func() core.Instant { return r.now }}, Partitions: 1, Shards: 1, Rand: chance("x"),
		Breakers: scheduler.BreakerConfig{Store: r.store, Policy: core.BreakerPolicy{SharePct: 50, CallsMin: 3, Window: 10 * time.Second, OpenFor: time.Second, OpenMax: time.Minute}},
	}, limitStore{r.store, r}, &bus{}, nil, nil, slog.New(slog.DiscardHandler))
	before := r.store.Copy()
	if ok, err := r.store.PutBreaker(t.Context(), openBreaker("agent.a", r.now.Add(time.Minute), 1)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	turn := func(want int) {
		t.Helper()
		if err := sched.BreakerTurn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if is := sched.Breakers(); len(is) != want {
			t.Errorf("shards are told %+v, want %d", is, want)
		}
	}
	turn(1)
	r.store.Replace(before)
	turn(0)
}

// An undo is never kept back.
func TestBreakerLetsUndoThrough(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.leaves("t1")
	r.answer(r.out[0], 0)
	r.leaves("t1")
	r.shut(openBreaker("agent.a", r.now.Add(time.Hour), 1), openBreaker("agent.b", r.now.Add(time.Hour), 1))
	r.answer(r.out[1], core.CodeRefused)
	r.leaves("t1")
	if c := r.out[2]; !c.Undo || c.Step != "a" {
		t.Fatalf("sent %+v, want the undo of a", c)
	}
}

// What a trial has out is given back, however it ends: answered, silent, waiting for an agent, its partition let go.
func TestTrialGivesBack(t *testing.T) {
	trial := core.Breaker{Agent: "agent.a", State: core.BreakerTrial, Revision: 2}
	for name, end := range map[string]func(*rig, core.Command){
		"done":    func(r *rig, c core.Command) { r.answer(c, 0) },
		"failed":  func(r *rig, c core.Command) { r.answer(c, core.CodeAgentError) },
		"refused": func(r *rig, c core.Command) { r.answer(c, core.CodeRefused) },
		"silent": func(r *rig, c core.Command) {
			r.now = c.CompleteBy
			r.control(core.Control{Kind: core.EventOverdue, Actor: "supervisor", Numbers: []int64{c.Number}})
		},
		"partition let go": func(r *rig, _ core.Command) {
			r.shard.Drop(0)
			r.adopt(0)
			r.leaves("t1") // sent again, and tried again
			r.answer(r.out[1], 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{})
			r.shut(trial)
			late := r.now.Add(time.Hour)
			r.tasks(0, orderBy("t1", late), orderBy("t2", late))
			r.leaves("t1")
			end(r, r.out[0])
			next := r.left()
			for _, id := range next {
				if id == "t2" {
					return
				}
			}
			t.Fatalf("sent %v, want t2 among them", next)
		})
	}
	r := newRig(t, scheduler.Config{})
	r.shut(trial)
	r.tasks(0, orderBy("t1", r.now.Add(time.Hour)), orderBy("t2", r.now.Add(time.Hour)))
	r.leaves("t1")
	r.unserved(r.out[0])
	r.leaves() // it waits for an agent, and is still the one that is tried
	r.state("t2", core.StatePending)
}

// The shard counts each call once, for the agent: done, refused, failed and silent; not those that no agent took.
func TestCallsAreCounted(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(5)...)
	r.left()
	r.answer(r.out[0], 0)
	r.answer(r.out[1], core.CodeRefused)
	r.answer(r.out[2], core.CodeAgentError)
	r.unserved(r.out[3])
	r.answer(r.out[4], core.CodeTooMany)
	r.left()
	counted := func() (all []string) {
		r.shard.Calls(func(agent string, revision int64, calls, trial core.Calls) {
			all = append(all, fmt.Sprint(agent, revision, calls, trial))
		})
		return all
	}
	if got := fmt.Sprint(counted()); got != "[agent.a0 {2 1} {0 0}]" {
		t.Errorf("counted %s", got)
	}
	if again := counted(); len(again) != 0 {
		t.Errorf("counted again: %v", again)
	}
	c := r.out[len(r.out)-1] // a later attempt, or step b
	r.now = c.CompleteBy
	r.control(core.Control{Kind: core.EventOverdue, Actor: "supervisor", Numbers: []int64{c.Number}})
	r.shut(core.Breaker{Agent: c.Step, Revision: 1})
	r.cycle()
	if got := counted(); len(got) != 1 {
		t.Errorf("a silent one is counted %v", got)
	}
}

// A call that the task's deadline cut short is no failure of its agent: it may have had a millisecond.
func TestCutCallsAreNotCounted(t *testing.T) {
	for _, short := range []bool{false, true} {
		r := newRig(t, scheduler.Config{})
		by := r.now.Add(time.Hour)
		if short {
			by = r.now.Add(time.Millisecond)
		}
		r.tasks(0, orderBy("t1", by))
		r.leaves("t1")
		c := r.out[0]
		r.now = c.CompleteBy
		r.control(core.Control{Kind: core.EventOverdue, Actor: "supervisor", Numbers: []int64{c.Number}})
		r.cycle()
		var failed int64
		r.shard.Calls(func(_ string, _ int64, calls, _ core.Calls) { failed += calls.Failed })
		if (failed == 0) != short {
			t.Errorf("cut short %v: %d failures are counted", short, failed)
		}
	}
}

// What a trial's call comes to when the breaker has been opened again, by another's, is no result of the next trial.
func TestLateAnswerOfATrial(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	late := r.now.Add(time.Hour)
	r.shut(openBreaker("agent.a", r.now, 1)) // its time is over: it is in trial
	r.tasks(0, orderBy("t1", late))
	r.leaves("t1")
	r.shut(openBreaker("agent.a", r.now.Add(10*time.Second), 2))
	r.answer(r.out[0], core.CodeAgentError)
	r.leaves()
	r.now = r.now.Add(10 * time.Second)
	r.leaves("t1") // the next trial
	r.answer(r.out[1], 0)
	r.leaves("t1") // its step b
	var of core.Calls
	r.shard.Calls(func(agent string, revision int64, _, trial core.Calls) {
		if agent == "agent.a" && revision == 2 {
			of.Add(trial)
		}
	})
	if of != (core.Calls{Done: 1}) {
		t.Fatalf("the trial came to %+v, want one success", of)
	}
}

// A call of a trial that is over is not tried again at once at an agent whose breaker is open again.
func TestTryAgainAfterATrial(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	hasty := orderPlan("hasty", 1, "a")
	hasty.Steps[0].AttemptsMax, hasty.Steps[0].Backoff = 9, time.Nanosecond
	r.store.AddPlan(hasty)
	r.mail.PlansChanged = true
	r.shut(core.Breaker{Agent: "agent.a", State: core.BreakerTrial, Revision: 2})
	r.tasks(0, core.Submission{Type: "hasty", ID: "t1", CompleteBy: r.now.Add(time.Hour)})
	r.leaves("t1")
	r.answer(r.out[0], core.CodeAgentError)
	r.leaves("t1") // at once, and still in trial
	r.shut(openBreaker("agent.a", r.now.Add(10*time.Second), 3))
	r.answer(r.out[1], core.CodeAgentError)
	r.leaves()
	r.now = r.now.Add(10 * time.Second)
	r.leaves("t1")
}

// The first call that fails asks for a turn at once, and so does what opens a breaker: until it is open each call is one more
// that fails.
func TestFailingAsksForATurn(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(6)...)
	r.left()
	node, policy := scheduler.NewCounted(), core.BreakerPolicy{SharePct: 50, CallsMin: 3, Window: 10 * time.Second, OpenFor: time.Second, OpenMax: time.Minute}
	for i, x := range []struct {
		code int
		wait time.Duration
		want bool
	}{
		{core.CodeAgentError, 0, true}, {0, 200 * time.Millisecond, false}, {core.CodeAgentError, 200 * time.Millisecond, true},
		{core.CodeAgentError, 50 * time.Millisecond, false}, {core.CodeAgentError, 50 * time.Millisecond, true},
	} {
		r.now = r.now.Add(x.wait)
		r.answer(r.out[i], x.code)
		r.left()
		if got := node.Asks(r.shard, r.now, &policy); got != x.want {
			t.Errorf("call %d, answered %d: a turn is asked for: %v, want %v", i+1, x.code, got, x.want)
		}
	}
}

// When an agent is there again for which many have waited, no more of them are taken up than fill the window twice: the
// others would wait here for a processor until their time is over. What has begun goes on.
func TestParkedTasksComeByTheWindow(t *testing.T) {
	window := scheduler.NewAdmission(4, -1)
	window.Own(1)
	r := newRig(t, scheduler.Config{Admission: window})
	late := r.now.Add(time.Hour)
	r.tasks(0, orderBy("begun", late))
	r.leaves("begun")
	r.shut(openBreaker("agent.a", r.now.Add(time.Minute), 1), openBreaker("agent.b", r.now.Add(time.Minute), 1))
	r.answer(r.out[0], 0) // its step b parks
	for i := range 20 {
		r.tasks(0, orderBy(fmt.Sprint("t", i), late))
	}
	r.leaves()
	r.shut(openBreaker("agent.b", r.now.Add(time.Minute), 1))
	r.cycle()
	r.cycle()
	first := len(r.bus.take())
	if first != 8 || window.TakesUp() != 0 {
		t.Fatalf("%d of 20 are taken up, want 8", first)
	}
	if !r.shard.LacksRoom() { // another shard's tasks may be those whose end makes it
		t.Error("no cycle is asked for when the window has room again")
	}
	r.shut()
	r.leaves("begun")
}
