package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// A pause changes the order only at the agents that it covers: of what is parked elsewhere the high class goes before the
// low, and what has begun before what has not; and so does what it held when it is lifted.
//
// covers: L15
func TestPauseKeepsTheOrder(t *testing.T) {
	classed := func(id, class string) core.Submission {
		s := order(id)
		s.Labels = []core.Label{{Key: core.PriorityLabel, Value: class}}
		return s
	}
	for name, pause := range map[string]core.Pause{"elsewhere": {Agent: "agent.z"}, "here": {Agent: "agent.a"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{AgentWindow: 1})
			if r.tasks(0, order("first")); name == "elsewhere" {
				r.leaves("first")
			}
			r.pause(pause)
			r.tasks(0, classed("low", "low"), classed("high", "high"))
			r.left()
			if name == "elsewhere" {
				r.answer(r.out[0], 0)
				r.leaves("first", "high") // first at b
				return
			}
			r.leaves()
			r.pause()
			r.leaves("high")
		})
	}
}

// The place of a parked task in the order is by its newest row: one whose deadline is moved goes after the others.
func TestOrderAfterAChange(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, order("first"))
	r.leaves("first")
	r.tasks(0, orderBy("early", r.now.Add(time.Hour)), orderBy("late", r.now.Add(2*time.Hour)))
	r.leaves()
	r.control(core.Control{Kind: core.EventExtend, ID: "early", Type: "order", Actor: "olga", Until: r.now.Add(3 * time.Hour)})
	r.leaves()
	r.answer(r.out[0], 0)
	r.leaves("first", "late") // first at b
}

// What waits at a limit with keys goes on when the limit changes, whatever is paused elsewhere.
//
// covers: L4
func TestLimitChangesWhilePaused(t *testing.T) {
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0))
	r.nodes[0].sched.SetPauses([]core.Pause{{Agent: "agent.z"}})
	r.keyed(0, "1", 5)
	r.run(time.Second)
	if at := r.at(); at["1"] != 1 {
		t.Fatalf("out are %v, want one", at)
	}
	wider := perKey("agent.a", 5, 0)
	wider.Revision = 2
	r.store.SetLimits(wider)
	r.run(10 * time.Second)
	if at := r.at(); at["1"] != 5 {
		t.Errorf("out are %v, want all five", at)
	}
}

// A step that waits for its agent keeps its place of the limit, and is tried again by it: the limit does not hold it back.
//
// covers: L4
func TestRetryKeepsItsPlace(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bound(core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1})
	r.tasks(0, orderBy("t1", r.now.Add(time.Hour)), orderBy("t2", r.now.Add(time.Hour)))
	r.leaves("t1")
	r.unserved(r.out[0])
	for range 30 {
		r.now = max(r.now+1, r.shard.NextWake())
		if ids := r.left(); len(ids) > 0 {
			if ids[0] != "t1" {
				t.Fatalf("sent %v", ids)
			}
			return
		}
	}
	t.Error("it is not tried again")
}

// A task that was parked at one agent and is parked at another since has its turn there alone.
func TestParkedElsewhereSince(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.store.AddPlan(orderPlan("hold", 1, "b"))
	last := func() core.Command { return r.out[len(r.out)-1] }
	held := order("h")
	held.Type = "hold"
	r.tasks(0, held)
	r.leaves("h")
	hold := last()
	r.tasks(0, orderBy("x", r.now.Add(time.Hour)))
	r.leaves("x")
	r.answer(last(), 0)
	r.leaves() // it is parked at b
	r.control(core.Control{Kind: core.EventCancel, ID: "x", Type: "order", Actor: "olga"})
	r.leaves("x")
	r.answer(last(), 0)
	r.leaves()
	r.state("x", core.StateUndone)
	r.tasks(0, order("y"))
	r.leaves("y")
	r.tasks(0, orderBy("z", r.now.Add(30*time.Minute)))
	r.control(core.Control{Kind: core.EventResubmit, ID: "x", Type: "order", Actor: "olga", Until: r.now.Add(2 * time.Hour)})
	r.leaves() // both are parked at a
	r.answer(hold, 0)
	r.answer(last(), 0)
	if ids := r.left(); !slices.Contains(ids, "z") || slices.Contains(ids, "x") {
		t.Errorf("%v left, want z and not x, which has more time", ids)
	}
}

// A parked task whose row the database refuses is in error, and has no place in the queue any more: nothing waits for it.
func TestRefusedRowLeavesTheQueue(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, order("first"))
	r.leaves("first")
	r.tasks(0, order("parked"))
	r.leaves()
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Task.ID == "parked" && w.Task.State == core.StatePending }
	r.control(core.Control{Kind: core.EventExtend, ID: "parked", Type: "order", Actor: "olga", Until: r.now.Add(3 * time.Hour)})
	r.leaves()
	is := r.state("parked", core.StateError)
	if at := fmt.Sprintf("slot(0 agent.a).order.known[%d]", is.Number); memoryOf(r.shard).values[at] != "" {
		t.Error("it is in the queue still")
	}
}
