package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// leftLimits are those of which places are left behind.
var leftLimits = map[string]core.Limit{"limit": {Agent: "agent.a", Concurrent: 3, Revision: 1}, "keys": perKey("agent.a", 3, 0)}

// ofEach plays a test with each kind of limit.
func ofEach(t *testing.T, nodes int, limits map[string]core.Limit, play func(*testing.T, *limitRig)) {
	for name, l := range limits {
		t.Run(name, func(t *testing.T) { play(t, newLimitRig(t, nodes, l)) })
	}
}

// want checks how many do commands of the limited agent are out.
func (r *limitRig) want(n int, when string) {
	r.t.Helper()
	out := map[string]bool{} // what is sent again is one
	for _, c := range r.out {
		if c.Step == "a" {
			out[fmt.Sprint(c.Partition, " ", c.Number)] = true
		}
	}
	if len(out) != n {
		r.t.Fatalf("%d do commands are out %s, want %d", len(out), when, n)
	}
}

// finishAll answers what is out, as its partitions' owners now are asked.
func (r *limitRig) finishAll(owner map[int]int) {
	for _, c := range r.out {
		n, ok := owner[c.Partition]
		if !ok {
			n = c.Partition
		}
		r.nodes[n].sched.Committers()[0].Inbox().Reply(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy), Result: []byte("1")})
	}
	r.out = nil
}

// The places of a node that is dead are free when its successor has counted the commands that it goes on with, and these have
// ended: long before the node's own grant would end.
// covers: L6
func TestDeadNodesPlaces(t *testing.T) {
	ofEach(t, 3, leftLimits, func(_ *testing.T, r *limitRig) {
		r.submit(0, 6)
		r.run(time.Second)
		r.want(3, "before the node dies")
		r.nodes[0].dead = true
		r.submit(2, 3)
		r.run(2 * time.Second)
		r.want(3, "while no one has taken the partition over")
		r.adopt(1, 0)
		r.run(time.Second)
		r.want(3, "when its successor has taken over")
		for range 2 {
			r.finishAll(map[int]int{0: 1})
			r.run(3 * time.Second)
			r.want(3, "when the places of the dead node's commands are free")
		}
	})
}

// Between a takeover and the new owner's first claim nothing of the former owner's is free: what it had out is counted nowhere
// else.
func TestPlacesOfATakeover(t *testing.T) {
	ofEach(t, 3, leftLimits, func(_ *testing.T, r *limitRig) {
		r.submit(0, 3)
		r.run(time.Second)
		r.nodes[0].dead = true
		r.adopt(1, 0)
		r.nodes[1].dead = true // it stands still
		r.submit(2, 3)
		r.run(3 * time.Second)
		r.want(3, "before they are counted")
	})
}

// A partition is counted when all that it has out is claimed, however many turns of claims that takes.
func TestCountedWhenAllIsClaimed(t *testing.T) {
	const many = 2*core.ClaimsMax + 10
	r := newLimitRig(t, 2, perKey("agent.a", 1, 0))
	for i := range many {
		r.keyed(0, fmt.Sprint(i), 1)
	}
	r.run(time.Second)
	r.want(many, "of as many keys")
	r.nodes[0].dead = true
	r.adopt(1, 0)
	n := r.nodes[1]
	r.work(n)
	for turns := 1; ; turns++ {
		r.turn(n)
		all, err := r.store.Counted(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		claimed := 0
		for i := range many {
			for _, g := range r.store.GrantsOfKey("agent.a", fmt.Sprint(i)) {
				if strings.HasPrefix(g.Holder, "n1/") && g.Places == 1 {
					claimed++
				}
			}
		}
		if all[0].Counted == all[0].Epoch {
			if claimed != many {
				t.Fatalf("counted after %d turns, when %d of %d commands are claimed", turns, claimed, many)
			}
			return
		}
		if turns > 10 {
			t.Fatalf("not counted after %d turns; %d of %d commands are claimed", turns, claimed, many)
		}
	}
}

// A shard records again which partitions it counts: a database failover may lose that without a takeover.
//
// covers: L6
func TestCountedAgain(t *testing.T) {
	ofEach(t, 1, leftLimits, func(t *testing.T, r *limitRig) {
		r.submit(0, 1)
		r.run(time.Second)
		counted := func() core.Counting {
			all, err := r.store.Counted(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return all[0]
		}
		was := counted()
		if err := r.store.CountPlaces(t.Context(), "before", []core.Counting{was}); err != nil {
			t.Fatal(err)
		}
		r.run(6 * time.Second)
		if is := counted(); is != was || is.Counted != is.Epoch {
			t.Errorf("it is counted as %+v, want %+v", is, was)
		}
	})
}

// A node that lets a partition go uses the places of what it had out there as soon as the next owner counts them, not only
// when these commands are over.
func TestPlacesOfAPartitionThatMoves(t *testing.T) {
	ofEach(t, 2, leftLimits, func(_ *testing.T, r *limitRig) {
		r.submit(0, 3)
		r.run(time.Second)
		r.adopt(0, 2)
		r.adopt(1, 0)
		r.nodes[0].shard().Drop(0)
		r.run(2 * time.Second)
		r.finishAll(map[int]int{0: 1})
		r.tasksOf(0, 2, 3)
		r.run(2 * time.Second)
		r.want(3, "at the node that let the others go")
	})
}

// The places of what a node has left behind are the next owner's when that counts it: the node has none of them before it has
// claimed again.
func TestPlacesGoWithTheirCommands(t *testing.T) {
	ofEach(t, 2, leftLimits, func(_ *testing.T, r *limitRig) {
		r.adopt(0, 2)
		r.submit(0, 3)
		r.run(time.Second)
		r.nodes[0].shard().Drop(0)
		r.tasksOf(0, 2, 3)
		r.work(r.nodes[0])
		r.while = func(int) { // before the node asks who counts them
			r.adopt(1, 0)
			r.work(r.nodes[1])
			r.turn(r.nodes[1])
		}
		r.turn(r.nodes[0])
		r.work(r.nodes[0])
		r.want(3, "when the next owner counts them")
		r.finishAll(map[int]int{0: 1})
		r.run(2 * time.Second)
		r.want(3, "when they have ended")
	})
}

// What a node has left behind of a partition is over when the longest of its commands is, whatever else it had out there.
func TestGoneKeepsItsPlaceBesideShorterOnes(t *testing.T) {
	for range 4 { // the commands are left behind in any order
		r := newLimitRig(t, 1, core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1}, core.Limit{Agent: "agent.b", Concurrent: 8, Revision: 1})
		long, short := orderPlan("long", 1, "a"), orderPlan("short", 1, "b")
		long.Steps[0].CompleteBy = time.Minute
		r.store.AddPlan(long)
		r.store.AddPlan(short)
		r.keyedOf("long", 0, "", 1)
		r.keyedOf("short", 0, "", 8)
		r.run(time.Second)
		if len(r.out) != 9 {
			t.Fatalf("%d commands are out, want 9", len(r.out))
		}
		n := r.nodes[0]
		n.shard().Drop(0)
		r.adopt(0, 1)
		in := n.sched.Committers()[0].Inbox()
		in.OpenGate(1, 100)
		in.Tasks(scheduler.TaskMail{Partition: 1, Pos: 1, Submissions: []core.Submission{{Type: "long", ID: "next", CompleteBy: r.now.Add(time.Hour)}}, Ack: func() {}})
		if left := r.run(50 * time.Second); left != 0 {
			t.Fatalf("%d commands left while the one that is gone may be at work", left)
		}
		if left := r.run(20 * time.Second); left != 1 {
			t.Fatalf("%d commands left when it is over, want 1", left)
		}
	}
}

// A grant from before a takeover is not used after it, whether it was taken or is in the mail: others may have it by now.
func TestGrantOfAnEarlierTerm(t *testing.T) {
	for name, l := range leftLimits {
		for _, mailed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in the mail %v", name, mailed), func(t *testing.T) {
				r := newLimitRig(t, 2, l)
				n := r.nodes[0]
				r.submit(0, 3)
				r.work(n)
				r.turn(n)
				if !mailed {
					r.work(n)
					r.want(3, "at the first owner")
					r.finishAll(nil)
					r.work(n)
				}
				n.dead = true
				r.out = nil
				r.adopt(1, 0)
				r.submit(1, 6)
				r.run(time.Second)
				r.want(3, "at the new owner")
				n.shard().Drop(0)
				r.adopt(0, 2)
				r.tasksOf(0, 2, 3)
				r.work(n)
				r.want(3, "when the former owner has another partition")
			})
		}
	}
}

// Retries at an agent that is not there use up none of its rate beyond what it allows: when the agent is back its tasks begin.
func TestRetriesKeepToTheRate(t *testing.T) {
	ofEach(t, 1, map[string]core.Limit{"limit": {Agent: "agent.a", RateMilli: 2000, Revision: 1}, "keys": perKey("agent.a", 0, 2000)}, func(t *testing.T, r *limitRig) {
		r.submit(0, 30)
		r.run(16 * time.Second)
		tries := 0
		for range 60 { // no agent takes its commands
			for _, c := range r.out {
				r.nodes[0].sched.Committers()[0].Inbox().Unserved(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy)})
				tries++
			}
			r.out = nil
			r.run(time.Second)
		}
		if most := 2*(16+60) + 10; tries < 10 || tries > most {
			t.Fatalf("%d tries in 76 seconds, want 10 to %d", tries, most)
		}
		r.submit(0, 2)
		if left := r.run(10 * time.Second); left < 15 {
			t.Fatalf("%d commands left in ten seconds, the rate is 2 a second", left)
		}
	})
}

// What a claim comes to whose answer comes when the shard has taken another partition over is not used, and is given back.
func TestTakeoverWhileAClaimIsOut(t *testing.T) {
	r := newLimitRig(t, 3, perKey("agent.a", 1, 0))
	n := r.nodes[0]
	r.keyed(0, "1", 1)
	r.work(n)
	r.while = func(int) {
		n.shard().Drop(0)
		r.adopt(0, 2)
		r.work(n)
	}
	r.turn(n)
	r.nodes[2].dead = true
	r.adopt(1, 0)
	r.run(5 * time.Second)
	if len(r.out) != 1 {
		t.Fatalf("%d commands are out, want that of the new owner; grants: %+v", len(r.out), r.store.GrantsOfKey("agent.a", "1"))
	}
	if left := n.sched.KeysHeld(); left > 0 {
		t.Fatalf("the node keeps %d keys in mind, which it does not use", left)
	}
}

// A partition is not counted by a claim that was made before it was taken over: others may have had the grant since.
func TestCountedByAnEarlierClaim(t *testing.T) {
	r := newLimitRig(t, 3, core.Limit{Agent: "agent.a", Concurrent: 6, Revision: 1})
	one, two := r.nodes[1], r.nodes[2]
	r.submit(0, 3)
	r.submit(1, 3)
	r.run(time.Second)
	r.submit(2, 6)
	r.nodes[0].dead = true
	r.adopt(2, 1)
	one.shard().Drop(1)
	r.work(two)
	r.turn(two)
	r.now = r.now.Add(time.Second)
	one.sched.Committers()[0].Inbox().OpenGate(1, 1) // a cycle is due
	r.work(one)
	r.while = func(int) { // the node counts nothing, and another gets its grant
		r.turn(two)
		r.adopt(1, 0)
		r.work(one)
	}
	r.turn(one)
	r.work(one) // it hears that what it has left behind is counted
	r.turn(one)
	r.now = r.now.Add(200 * time.Millisecond)
	r.turn(two)
	r.work(two)
	r.want(6, "when the partition is taken over")
}

// A partition is not counted while a task whose plan is gone may have commands out.
func TestTaskWithoutItsPlanIsNotCounted(t *testing.T) {
	r := newLimitRig(t, 2, leftLimits["limit"])
	r.submit(0, 3)
	r.run(time.Second)
	r.nodes[0].dead, r.plans = true, true
	r.nodes[1].sched.PlansChanged()
	r.adopt(1, 0)
	r.run(time.Second)
	all, err := r.store.Counted(t.Context())
	if err != nil || all[0].Counted == all[0].Epoch {
		t.Fatalf("the partition is counted: %+v, %v", all, err)
	}
}

// A takeover that fails again and again while it loads what is out counts that once.
func TestTakeoversThatFail(t *testing.T) {
	ofEach(t, 2, leftLimits, func(t *testing.T, r *limitRig) {
		r.submit(0, 3)
		r.run(time.Second)
		n := r.nodes[0]
		n.shard().Drop(0)
		r.loads = true
		for range 20 {
			if _, err := n.shard().Adopt(t.Context(), r.now, 0, scheduler.Ground{Stream: "stream-1"}); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			r.run(time.Second)
		}
		for _, g := range append(r.store.GrantsOf("agent.a"), r.store.GrantsOfKey("agent.a", "")...) {
			if g.Places > 0 {
				t.Errorf("what was out is over, and the node has %+v", g)
			}
		}
	})
}

// A takeover that fails keeps the other partitions of its committer from nothing: their grants are used on.
func TestFailedTakeoverKeepsGrants(t *testing.T) {
	ofEach(t, 2, leftLimits, func(t *testing.T, r *limitRig) {
		n := r.nodes[0]
		r.submit(0, 9)
		r.run(time.Second)
		for range 2 {
			r.loads = true
			if _, err := n.shard().Adopt(t.Context(), r.now, 1, scheduler.Ground{Stream: "stream-1"}); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			r.finishAll(nil)
			r.work(n)
			r.want(3, "after it")
		}
	})
}

// What a committer may use is claimed again as soon as it has taken a partition over.
func TestClaimAfterATakeover(t *testing.T) {
	ofEach(t, 2, leftLimits, func(_ *testing.T, r *limitRig) {
		n := r.nodes[0]
		r.submit(0, 9)
		r.run(time.Second)
		r.adopt(0, 1)
		for range 3 {
			if r.work(n); n.sched.AsksForLimitTurn() {
				r.turn(n)
			}
		}
		r.finishAll(map[int]int{1: 0})
		r.work(n)
		r.want(3, "after it")
	})
}

// A retry of a command that waits for its agent does not leave when it may be at work after the end of the grant.
func TestRetryOutlastsNoGrant(t *testing.T) {
	r := newLimitRig(t, 1, core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1})
	r.submit(0, 1)
	r.run(time.Second)
	r.fails = "agent.a"
	until := r.store.GrantsOf("agent.a")[0].Until
	tries := 0
	for range 60 { // no agent takes its command
		for _, c := range r.out {
			if c.CompleteBy > until {
				t.Fatalf("try %d may be at work until %d, the grant ends at %d", tries, c.CompleteBy, until)
			}
			r.nodes[0].sched.Committers()[0].Inbox().Unserved(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy)})
			tries++
		}
		r.out = nil
		r.run(time.Second)
	}
	if tries < 3 {
		t.Fatalf("%d tries", tries)
	}
	r.fails = ""
	if left := r.run(30 * time.Second); left == 0 {
		t.Fatal("it is not tried again when there is a grant again")
	}
}

// Takeovers give a committer no calls of a rate.
func TestTakeoversKeepToTheRate(t *testing.T) {
	ofEach(t, 20, map[string]core.Limit{"limit": {Agent: "agent.a", RateMilli: 100, Revision: 1}, "keys": perKey("agent.a", 0, 100)}, func(t *testing.T, r *limitRig) {
		for _, n := range r.nodes[1:] {
			n.dead = true
		}
		r.submit(0, 50)
		left := r.run(200 * time.Millisecond)
		for i := range 19 {
			r.adopt(0, i+1)
			left += r.run(200 * time.Millisecond)
		}
		if left > 2 {
			t.Fatalf("%d commands left in four seconds, the rate is one in ten seconds", left)
		}
	})
}

// tasksOf gives a node so many orders of a partition.
func (r *limitRig) tasksOf(node, partition, n int) {
	in := r.nodes[node].sched.Committers()[0].Inbox()
	in.OpenGate(partition, 100)
	var subs []core.Submission
	for i := range n {
		subs = append(subs, core.Submission{Type: "order", ID: fmt.Sprint("moved-", partition, "-", i), CompleteBy: r.now.Add(time.Hour)})
	}
	in.Tasks(scheduler.TaskMail{Partition: partition, Pos: 1, Submissions: subs, Ack: func() {}})
}

// A step that waits for its agent gives up its place when the database goes back and a step before it is done again: that one
// may want the same place. Its retry asks for one.
func TestPlaceOfAStepThatWaitsBehindAnother(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	plan := orderPlan("twice", 1, "first", "second")
	for i := range plan.Steps {
		plan.Steps[i].Agent = "agent.a"
	}
	r.store.AddPlan(plan)
	limit := core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1}
	r.bound(limit)
	r.out = nil
	r.tasks(0, core.Submission{Type: "twice", ID: "t1", CompleteBy: r.now.Add(time.Hour), At: r.now})
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	second := r.one()
	r.unserved(second)
	r.cycle()
	r.shard.Drop(0)
	r.adoptLess(r.pos)
	r.granted(limit)
	r.leaves("t1")
	first := r.out[0]
	if first.Step != "first" {
		t.Fatalf("%s leaves, want the step that is to be done again", first.Step)
	}
	r.tasks(0, core.Submission{Type: "order", ID: "t2", CompleteBy: r.now.Add(time.Hour), At: r.now})
	r.cycle()
	r.answer(first, 0)
	order := ""
	for range 20 {
		r.now = r.now.Add(time.Second)
		r.cycle()
		at := 0
		for _, c := range r.bus.take() {
			if c.Agent == "agent.a" {
				at++
				order += " " + c.Task
			}
			r.answer(c, 0)
		}
		if at > 1 {
			t.Fatalf("%d at a time where the limit is 1", at)
		}
	}
	for _, id := range []string{"t1", "t2"} {
		r.state(id, core.StateProcessed)
	}
	if order != " t2 t1" {
		t.Errorf("the place went to%s, want to what was parked, and then to the retry", order)
	}
}
