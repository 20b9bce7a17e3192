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

// due is an order with a deadline so far from the rig's beginning.
func due(id string, after time.Duration) core.Submission {
	sub := order(id)
	sub.CompleteBy = began.Add(after)
	return sub
}

// ids are the tasks of some commands, in order.
func ids(cmds []core.Command) string {
	var all []string
	for _, c := range cmds {
		all = append(all, c.Task)
	}
	return strings.Join(all, " ")
}

// TestFinishFirst: room goes to what has begun, by deadline, and then to what has not, by deadline.
func TestFinishFirst(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, due("t1", 30*time.Second), due("t2", 40*time.Second), due("t3", 50*time.Second), due("t4", 20*time.Second))
	r.cycle()
	var claimed []core.Command
	next := r.one() // t1 at a
	for range 3 {
		r.answer(next, 0)
		r.cycle()
		cmds := r.bus.take()
		next = cmds[slices.IndexFunc(cmds, func(c core.Command) bool { return c.Step == "a" })]
		claimed = append(claimed, next)
		if b := slices.IndexFunc(cmds, func(c core.Command) bool { return c.Step == "b" }); b >= 0 {
			r.answer(cmds[b], 0) // b is free again
		}
	}
	if got := ids(claimed); got != "t4 t2 t3" {
		t.Errorf("claimed %s", got)
	}
}

// TestBegunGoesFirst: of two tasks that wait for an agent, the one that has begun is claimed, also with the later deadline.
func TestBegunGoesFirst(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	p := orderPlan("late", 1, "b")
	r.store.AddPlan(p)
	r.tasks(0, due("t1", 50*time.Second))
	r.cycle()
	first := r.one()
	r.tasks(0, core.Submission{Type: "late", ID: "x", CompleteBy: began.Add(time.Minute)})
	r.cycle()
	atB := r.one()
	r.tasks(0, core.Submission{Type: "late", ID: "new", CompleteBy: began.Add(10 * time.Second)}) // parked at b, not begun
	r.answer(first, 0)                                                                            // t1 is parked at b, and has begun
	r.cycle()
	r.state("t1", core.StatePending)
	r.state("new", core.StatePending)
	r.bus.take()
	r.answer(atB, 0)
	r.cycle()
	if c := r.one(); c.Task != "t1" {
		t.Errorf("claimed %s, want t1, which has begun", c.Task)
	}
}

// TestHopelessGoesLast: what cannot make its deadline any more is claimed after all others, and claimed at last.
func TestHopelessGoesLast(t *testing.T) {
	left := 5 * time.Second
	r := newRig(t, scheduler.Config{AgentWindow: 1, Left: func(*core.Plan, *core.Task) time.Duration { return left }})
	r.store.AddPlan(orderPlan("single", 1, "a"))
	sub := func(id string, after time.Duration) core.Submission {
		return core.Submission{Type: "single", ID: id, CompleteBy: began.Add(after)}
	}
	r.tasks(0, sub("t1", time.Minute), sub("hopeless", 4*time.Second), sub("t3", 20*time.Second))
	r.cycle()
	for _, want := range []string{"t1", "t3"} {
		c := r.one()
		if c.Task != want {
			t.Fatalf("claimed %s, want %s", c.Task, want)
		}
		r.answer(c, 0)
		r.cycle()
	}
	if c := r.one(); c.Task != "hopeless" {
		t.Errorf("claimed last %s, want the one that cannot make it", c.Task)
	}
	r.state("t3", core.StateProcessed)
}

// TestNewDoNotOvertake: a new task waits behind those that are parked, and no task is forgotten.
func TestNewDoNotOvertake(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 4})
	r.store.AddPlan(orderPlan("single", 1, "a"))
	sub := func(i int) core.Submission {
		return core.Submission{Type: "single", ID: fmt.Sprintf("t%d", i), CompleteBy: began.Add(time.Minute + time.Duration(i)*time.Second)}
	}
	for i := range 8 { // four are parked
		r.tasks(0, sub(i))
	}
	r.cycle()
	out := r.bus.take()
	r.tasks(0, sub(8), sub(9))
	r.cycle()
	r.bus.hold = true // not even a confirmation comes
	for _, c := range out {
		r.answer(c, 0)
	}
	r.cycle()
	if got := ids(r.bus.take()); got != "t4 t5 t6 t7" {
		t.Errorf("claimed %s, want those that were parked first", got)
	}
}

// TestHeldForBegun: while many begun tasks wait for an agent, no new one of the plan begins; when they have gone, it does,
// with nothing else to remind the shard.
func TestHeldForBegun(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 2})
	r.tasks(0, orders(4)...)
	r.cycle()
	var atB []core.Command
	for range 2 { // all four pass a; two are at b, two wait there
		for _, c := range r.bus.take() {
			if c.Step == "a" {
				r.answer(c, 0)
			} else {
				atB = append(atB, c)
			}
		}
		r.cycle()
	}
	atB = append(atB, r.bus.take()...)
	r.tasks(0, order("new"))
	r.cycle()
	if got := r.bus.take(); len(got) > 0 {
		t.Fatalf("%s leaves while two that have begun wait", ids(got))
	}
	if task := r.state("new", core.StatePending); task.WaitsFor != "agent.a" {
		t.Fatalf("it waits for %s", task.WaitsFor)
	}
	r.bus.hold = true
	if ids(atB) != "t1 t2" {
		t.Fatalf("at b are %s, want t1 t2", ids(atB))
	}
	for _, c := range atB {
		r.answer(c, 0)
	}
	r.cycle()
	for i := 0; i < 3 && r.shard.NextWake() != 0 && r.shard.NextWake() <= r.now; i++ {
		r.cycle()
	}
	if got := r.bus.take(); !slices.ContainsFunc(got, func(c core.Command) bool { return c.Task == "new" && c.Step == "a" }) {
		t.Errorf("%s left, want the new one too", ids(got))
	}
}

// TestKeysOfHeldForBegun: the free places of keys go to tasks that can use them, not to those that have to wait for begun ones of
// another agent, whether these come before the places or after them.
//
// covers: L4
func TestKeysOfHeldForBegun(t *testing.T) {
	for _, held := range []string{"before", "after"} {
		t.Run(held, func(t *testing.T) {
			r := newRig(t, scheduler.Config{AgentWindow: 2, KeyOf: keyByInput})
			r.store.AddPlan(orderPlan("single", 1, "a"))
			limit, late := perKey("agent.a", 1, 0), r.now.Add(time.Hour)
			r.tasks(0, core.Submission{Type: "order", ID: "begun", Input: []byte("begun"), CompleteBy: late})
			r.leaves("begun")
			r.mail.Limits = &[]core.Limit{limit}
			var keys, want []string
			for i := range 8 { // more than one look at those that are held
				key, free := fmt.Sprint(i), fmt.Sprint("free", i)
				keys, want = append(keys, key), append(want, free)
				r.tasks(0, core.Submission{Type: "order", ID: "held" + key, Input: []byte(key), CompleteBy: late},
					core.Submission{Type: "single", ID: free, Input: []byte(key), CompleteBy: late.Add(time.Minute)})
			}
			r.shut(openBreaker("agent.a", r.now.Add(time.Minute), 1), openBreaker("agent.b", r.now.Add(time.Minute), 1))
			r.leaves()
			if held == "after" {
				r.grantedKeys(limit, keys...)
				r.leaves()
			}
			r.answer(r.out[0], 0) // it is parked at b
			r.leaves()
			if held == "before" {
				r.grantedKeys(limit, keys...)
				r.leaves()
			}
			r.shut(openBreaker("agent.b", r.now.Add(time.Minute), 1))
			var got []string
			for done := 1; ; done++ {
				if got = append(got, r.left()...); len(r.out) == done {
					break
				}
				r.answer(r.out[done], 0)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("sent %v, want %v", got, want)
			}
			r.shut()
			if got = r.left(); !slices.Contains(got, "begun") || !slices.ContainsFunc(got, func(id string) bool { return strings.HasPrefix(id, "held") }) {
				t.Errorf("sent %v, want also what was held", got)
			}
		})
	}
}

// TestOrderAfterTakeover: a new owner reads the order of what is parked from the store, also of more than a page.
func TestOrderAfterTakeover(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.store.AddPlan(orderPlan("single", 1, "a"))
	const n = 600
	for i := range n {
		r.tasks(0, core.Submission{Type: "single", ID: fmt.Sprintf("t%d", i), CompleteBy: began.Add(time.Hour - time.Duration(i)*time.Second)})
	}
	r.cycle()
	out := r.one()
	r.start("n2")
	r.adopt(0)
	again := r.one()
	if again.Task != out.Task {
		t.Fatalf("%s is sent again, want %s", again.Task, out.Task)
	}
	next := again
	for range 3 { // it reads a page at each look
		r.answer(next, 0)
		r.cycle()
		next = r.one()
	}
	if next.Task != fmt.Sprintf("t%d", n-1) {
		t.Errorf("claimed %s, want the one with the first deadline", next.Task)
	}
}

// TestParkedOrderIsBounded: of more parked tasks than are remembered none is forgotten.
func TestParkedOrderIsBounded(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 500, BatchMax: 20000, InFlight: 100000})
	r.store.AddPlan(orderPlan("single", 1, "a"))
	const n = 9500
	var subs []core.Submission
	for i := range n {
		subs = append(subs, core.Submission{Type: "single", ID: fmt.Sprintf("t%d", i)})
	}
	r.tasks(0, subs...)
	r.cycle()
	r.finish()
	for _, s := range subs {
		r.state(s.ID, core.StateProcessed)
	}
}
