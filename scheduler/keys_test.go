package scheduler_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// keyByInput is the key of a task whose input is one; tasks without input have none. For another expression it is that.
func keyByInput(expression string, t *core.Task) (string, error) {
	if expression != "input" {
		return expression, nil
	}
	if len(t.Input) == 0 {
		return "", errors.New("it has no input")
	}
	return string(t.Input), nil
}

func perKey(agent string, concurrent int, rateMilli int64) core.Limit {
	return core.Limit{Agent: agent, Key: "input", KeyConcurrent: concurrent, KeyRateMilli: rateMilli, Revision: 1}
}

// keyed gives a node so many orders of a key.
func (r *limitRig) keyed(node int, key string, n int) { r.t.Helper(); r.keyedOf("order", node, key, n) }

// keyedOf gives a node so many tasks of a type and a key.
func (r *limitRig) keyedOf(kind string, node int, key string, n int) {
	r.t.Helper()
	in := r.nodes[node].sched.Committers()[0].Inbox()
	var subs []core.Submission
	for range n {
		r.nodes[node].pos++
		s := core.Submission{Type: kind, ID: fmt.Sprint("n", node, "-", r.nodes[node].pos), CompleteBy: r.now.Add(time.Hour)}
		if key != "" {
			s.Input = []byte(key)
		}
		subs = append(subs, s)
	}
	in.OpenGate(node, 1<<20)
	in.Tasks(scheduler.TaskMail{Partition: node, Pos: r.nodes[node].pos, Submissions: subs, Ack: func() {}})
}

// at counts the do commands that are out at agent.a, by key.
func (r *limitRig) at() map[string]int {
	keys := map[string]int{}
	for _, c := range r.out {
		if c.Step == "a" {
			keys[string(c.Input)]++
		}
	}
	return keys
}

// finish answers all commands, in small parts, until nothing is left to do, and calls check on the way.
func (r *limitRig) finish(n int, check func(at map[string]int)) {
	r.t.Helper()
	for answered := 0; answered < 2*n; {
		for range min(len(r.out), 7) {
			r.answer()
			answered++
		}
		r.run(100 * time.Millisecond)
		check(r.at())
		if r.now > began.Add(50*time.Minute) {
			r.t.Fatalf("%d of %d commands are answered; out are %v", answered, 2*n, r.at())
		}
	}
	r.run(5 * time.Second)
	for i, node := range r.nodes {
		if keys := node.shard().Keys("agent.a"); len(keys) > 0 {
			r.t.Fatalf("the shard of node %d keeps %v in mind, which are not in use any more", i, keys)
		}
		if n := node.sched.KeysHeld(); n > 0 {
			r.t.Fatalf("node %d keeps %d keys in mind, which are not in use any more", i, n)
		}
	}
	if left := r.store.KeysGranted("agent.a"); len(left) > 0 {
		r.t.Fatalf("%v have grants, and are not in use any more", left)
	}
}

// Each key has its places, over all nodes; tasks of a key that has none let others go first, and are all done in the end.
func TestKeysOverNodes(t *testing.T) {
	r := newLimitRig(t, 3, perKey("agent.a", 2, 0))
	for i := range 3 {
		r.keyed(i, `"busy"`, 20)
		r.keyed(i, fmt.Sprint(i), 1)
		r.keyed(i, `"other"`, 5)
	}
	r.run(time.Second)
	if at := r.at(); !maps.Equal(at, map[string]int{`"busy"`: 2, `"other"`: 2, "0": 1, "1": 1, "2": 1}) {
		t.Fatalf("out are %v, want two of a key, or what there is", at)
	}
	r.finish(78, func(at map[string]int) {
		for key, n := range at {
			if n > 2 {
				t.Fatalf("%d of key %s are out, the limit is 2", n, key)
			}
		}
	})
}

// Tasks for which the expression fails are of one key.
func TestKeyFails(t *testing.T) {
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0))
	r.keyed(0, "", 4)
	r.keyed(0, "7", 4)
	r.run(time.Second)
	if at := r.at(); !maps.Equal(at, map[string]int{"": 1, "7": 1}) {
		t.Fatalf("out are %v, want one of each", at)
	}
	r.finish(8, func(map[string]int) {})
}

// A rate of a key is one over all nodes, and no key has that of another.
func TestRateOfKeys(t *testing.T) {
	r := newLimitRig(t, 3, perKey("agent.a", 0, 5000))
	for i := range 3 {
		r.keyed(i, "1", 100)
		r.keyed(i, "2", 100)
	}
	r.run(time.Second)
	before := r.at()
	r.run(10 * time.Second)
	after := r.at()
	for _, key := range []string{"1", "2"} {
		if n := after[key] - before[key]; n < 40 || n > 56 || before[key] > 14 {
			t.Fatalf("of key %s %d left in the first second, %d in the next ten; its rate is 5 a second", key, before[key], n)
		}
	}
}

// An agent's limit in all holds beside that of its keys, and a key that waits for it keeps none from going on.
func TestKeysWithinAll(t *testing.T) {
	l := perKey("agent.a", 2, 0)
	l.Concurrent = 3
	r := newLimitRig(t, 2, l)
	for i := range 2 {
		for key := range 6 {
			r.keyed(i, fmt.Sprint(key), 5)
		}
	}
	r.run(time.Second)
	r.finish(60, func(at map[string]int) {
		all := 0
		for key, n := range at {
			if all += n; n > 2 {
				t.Fatalf("%d of key %s are out, the limit is 2", n, key)
			}
		}
		if all > 3 {
			t.Fatalf("%v are out, the limit in all is 3", at)
		}
	})
}

// A command of a task that goes to another node keeps the place of its key until it is over.
func TestGoneKeepsThePlaceOfItsKey(t *testing.T) {
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0))
	r.keyed(0, "1", 1)
	r.gone([]byte("1"), 5*time.Second)
}

// More tasks of a key than stand aside in memory are all done, and do not keep those of others.
func TestManyOfOneKey(t *testing.T) {
	const many = scheduler.AsideMax + 500
	r := newLimitRig(t, 1, perKey("agent.a", 5, 0))
	r.keyed(0, "1", many)
	r.run(time.Second)
	r.keyed(0, "2", 5)
	r.run(time.Second)
	if at := r.at(); !maps.Equal(at, map[string]int{"1": 5, "2": 5}) {
		t.Fatalf("out are %v, want five of each", at)
	}
	c := r.nodes[0].sched.Committers()[0]
	for range 3 {
		if err := c.Step(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if due := c.Due(); due != 0 && due <= r.now {
		t.Fatal("the committer goes round and round while all that waits stands aside")
	}
	r.finish(many+5, func(at map[string]int) {
		if at["1"] > 5 {
			t.Fatalf("%d are out, the limit is 5", at["1"])
		}
	})
}

// Tasks that make way in memory for those of a key that has fewer are done, too.
func TestMakesWayForOtherKeys(t *testing.T) {
	const many = scheduler.AsideMax
	r := newLimitRig(t, 1, perKey("agent.a", 5, 0))
	r.keyed(0, "1", many) // five are out, all others stand aside
	r.run(time.Second)
	r.keyed(0, "2", 20)
	r.run(time.Second)
	if at := r.at(); !maps.Equal(at, map[string]int{"1": 5, "2": 5}) {
		t.Fatalf("out are %v, want five of each", at)
	}
	r.finish(many+20, func(map[string]int) {})
}

// More keys than tasks stand aside in memory have their turns, one as well as another.
func TestManyKeys(t *testing.T) {
	const many = scheduler.AsideMax + 300
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0))
	for range 3 {
		for key := range many {
			r.keyed(0, fmt.Sprint(key), 1)
		}
	}
	r.run(time.Second)
	if at := r.at(); len(at) < scheduler.DefaultAgentWindow {
		t.Fatalf("of %d keys one is out, the agent's window is %d", len(at), scheduler.DefaultAgentWindow)
	}
	for answered := 0; answered < 6*many; {
		for range len(r.out) {
			r.answer()
			answered++
		}
		r.run(100 * time.Millisecond)
		if r.now > began.Add(20*time.Minute) {
			t.Fatalf("%d of %d commands are answered", answered, 6*many)
		}
	}
}

// Keys that come, change and go with the limit count for what waits and for what is out already.
func TestKeysChange(t *testing.T) {
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0))
	r.keyed(0, "1", 10)
	r.keyed(0, "2", 10)
	r.run(time.Second)
	set := func(l ...core.Limit) map[string]int {
		r.store.SetLimits(l...)
		r.run(3 * time.Second)
		return r.at()
	}
	one := perKey("agent.a", 4, 0)
	one.Key, one.Revision = "all", 2
	if at := set(one); at["1"]+at["2"] != 4 {
		t.Fatalf("out are %v, want four", at)
	}
	one.Key, one.KeyConcurrent, one.Concurrent, one.Revision = "", 0, 10, 3
	ten := set(one)
	if ten["1"]+ten["2"] != 10 {
		t.Fatalf("out are %v, want ten", ten)
	}
	one.Key, one.KeyConcurrent, one.Concurrent, one.Revision = "input", 3, 0, 4
	if at := set(one); at["1"] != max(3, ten["1"]) || at["2"] != max(3, ten["2"]) {
		t.Fatalf("out are %v, want three of each, or as many as were out: %v", at, ten)
	}
	answered := len(r.out)
	for range answered {
		r.answer()
	}
	r.run(3 * time.Second)
	if at := r.at(); at["1"] > 3 || at["2"] > 3 || at["1"]+at["2"] == 0 {
		t.Fatalf("out are %v, want at most three of each", at)
	}
	if at := set(); at["1"]+at["2"] != 20-answered {
		t.Fatalf("out are %v, want all that are left", at)
	}
}

// Branches of one task, and two steps of a task at one agent, wait for places of its key likewise.
func TestBranchesOfAKey(t *testing.T) {
	r := newLimitRig(t, 2, perKey("agent.a", 1, 0))
	p := orderPlan("fork", 1, "a", "b", "c")
	p.Steps[1].Agent, p.Steps[1].After = "agent.a", nil
	p.Steps[2].After = []int{0, 1}
	r.store.AddPlan(p)
	r.keyedOf("fork", 0, "1", 3)
	r.keyedOf("fork", 0, "2", 2)
	r.keyedOf("fork", 1, "1", 3)
	for answered := 0; answered < 24; {
		r.run(200 * time.Millisecond)
		at := map[string]int{}
		for _, c := range r.out {
			if c.Step != "c" {
				at[string(c.Input)]++
			}
		}
		if at["1"] > 1 || at["2"] > 1 {
			t.Fatalf("out are %v, want one of each", at)
		}
		if r.now > began.Add(10*time.Minute) {
			t.Fatalf("%d of 24 commands are answered, out are %v", answered, at)
		}
		for range len(r.out) {
			r.answer()
			answered++
		}
	}
}

// However many keys of one agent are claimed, another agent's grants do not wait for them, and each key has its turn.
//
// covers: L18
func TestManyKeysKeepNoOtherWaiting(t *testing.T) {
	const many = 3*core.ClaimsMax + 100
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0), core.Limit{Agent: "agent.b", Concurrent: 1, Revision: 1})
	for i := range many {
		r.keyed(0, fmt.Sprint(i), 1)
	}
	n := r.nodes[0]
	r.work(n)
	granted := 0
	for turns := 1; granted < many; turns++ {
		if r.turn(n); turns > 5 {
			t.Fatalf("%d keys of %d have a grant after %d turns", granted, many, turns)
		}
		is := len(r.store.KeysGranted("agent.a"))
		if is-granted > core.ClaimsMax {
			t.Fatalf("%d keys are claimed in one turn, the most is %d", is-granted, core.ClaimsMax)
		}
		granted = is
	}
	r.work(n)
	r.answer() // its task is next at the other agent
	r.work(n)
	for i := range many {
		r.keyed(0, fmt.Sprint("more-", i), 1)
	}
	r.work(n)
	if r.turn(n); len(r.store.GrantsOf("agent.b")) == 0 {
		t.Fatal("the other agent waits for its grant")
	}
}

// More keys whose tasks wait than can be claimed in a turn have each a claim in a while, and not one turn after the other.
func TestHungryKeysRest(t *testing.T) {
	const many = core.ClaimsMax + 10
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0))
	n := r.nodes[0]
	for i := range many {
		r.keyed(0, fmt.Sprint(i), 2)
	}
	r.run(time.Second)
	r.want(many, "one of each key")
	asked := 0
	for range 40 {
		n.sched.AsksForLimitTurn()
		r.turn(n)
		for ; asked <= 80 && n.sched.AsksForLimitTurn(); asked++ {
			r.now = r.now.Add(25 * time.Millisecond)
			r.turn(n)
		}
		r.work(n)
		r.now = r.now.Add(n.sched.LimitPause())
	}
	if asked > 80 {
		t.Fatalf("%d turns are asked for before their time, want two of 40 at most", asked)
	}
}

// When a command ends, the next one of its key leaves at once: that of the earliest deadline, of all partitions, and none that
// has just come.
func TestNextOfAKey(t *testing.T) {
	r := newLimitRig(t, 1, perKey("agent.a", 1, 0))
	n := r.nodes[0]
	r.adopt(0, 1)
	in := n.sched.Committers()[0].Inbox()
	pos := map[int]uint64{}
	submit := func(partition int, id string, left time.Duration) {
		in.OpenGate(partition, 100)
		pos[partition]++
		s := core.Submission{Type: "order", ID: id, Input: []byte("1"), CompleteBy: r.now.Add(left)}
		in.Tasks(scheduler.TaskMail{Partition: partition, Pos: pos[partition], Submissions: []core.Submission{s}, Ack: func() {}})
	}
	submit(0, "first", time.Hour)
	r.run(time.Second)
	submit(0, "late", 4*time.Hour)
	submit(1, "early", 2*time.Hour)
	submit(0, "later", 5*time.Hour)
	submit(1, "middle", 3*time.Hour)
	r.run(time.Second)
	for _, want := range []string{"first", "early", "middle", "late", "later"} {
		if len(r.out) != 1 || r.out[0].Task != want {
			t.Fatalf("out is %v, want %s alone", r.out, want)
		}
		c := r.out[0]
		r.out = nil
		in.Reply(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy), Result: []byte("1")})
		submit(0, "after "+want, 9*time.Hour)
		r.work(n) // and no grant comes
		r.out = slices.DeleteFunc(r.out, func(c core.Command) bool { return c.Step != "a" })
	}
}

// A branch that waits for a place of its key, while another of its task is at work, gets one, though another node has always
// more to do.
func TestBranchWaitsForItsKey(t *testing.T) {
	r := newLimitRig(t, 2, perKey("agent.a", 1, 0))
	p := orderPlan("fork", 1, "a", "b", "c")
	p.Steps[1].Agent = "agent.a"
	p.Steps[2].After = []int{0}
	r.store.AddPlan(p)
	r.keyed(1, "1", 1000)
	for i := range 8 {
		r.keyedOf("fork", 0, "1", 1)
		begun, over := core.Instant(0), false
		for !over {
			r.run(1500 * time.Millisecond) // the place is another's turn meanwhile
			var kept []core.Command
			for _, c := range r.out {
				switch {
				case c.Step == "c" && c.Partition == 0:
					begun, kept = cmp.Or(begun, r.now), append(kept, c)
					continue
				case c.Step == "b" && c.Partition == 0:
					over = true
				}
				r.nodes[c.Partition].sched.Committers()[0].Inbox().Reply(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy), Result: []byte("1")})
			}
			r.out = kept
			if begun != 0 && r.now > begun.Add(9*time.Second) {
				t.Fatalf("step b of task %d has not begun while c is at work", i)
			}
		}
		for len(r.out) > 0 {
			r.answer()
		}
	}
}

// While something is paused, parked tasks are claimed by number: those of a key that has no place keep no others from going on.
func TestKeysWhilePaused(t *testing.T) {
	r := newLimitRig(t, 2, perKey("agent.a", 1, 0))
	for _, n := range r.nodes {
		n.sched.Committers()[0].Inbox().Pauses([]core.Pause{{Agent: "agent.else"}})
	}
	for i := range 2 {
		r.keyed(i, "1", 30)
		r.keyed(i, "2", 3)
	}
	r.run(time.Second)
	if at := r.at(); !maps.Equal(at, map[string]int{"1": 1, "2": 1}) {
		t.Fatalf("out are %v, want one of each", at)
	}
	loads := r.store.NumbersRead
	r.run(time.Second)
	if n := r.store.NumbersRead - loads; n > 200 {
		t.Fatalf("%d tasks are read in a second in which nothing goes on", n)
	}
	for answered := 0; answered < 2*66; {
		for range len(r.out) {
			r.answer()
			answered++
		}
		r.run(100 * time.Millisecond)
		if at := r.at(); at["1"] > 1 || at["2"] > 1 {
			t.Fatalf("out are %v, want one of each", at)
		}
		if r.now > began.Add(30*time.Minute) {
			t.Fatalf("%d of %d commands are answered, out are %v", answered, 2*66, r.at())
		}
	}
}

// A task takes no place of its key at an agent before its step there is about to begin.
func TestNoPlaceOfAKeyTooSoon(t *testing.T) {
	r := newLimitRig(t, 1, perKey("agent.b", 1, 0))
	r.keyed(0, "1", 1)
	for range 20 {
		r.run(50 * time.Millisecond)
		if keys := r.store.KeysGranted("agent.b"); len(keys) > 0 {
			t.Fatalf("places of the keys %v at b are taken while its only task is at a", keys)
		}
	}
	r.answer()
	r.run(time.Second)
	if len(r.out) != 1 || r.out[0].Step != "b" {
		t.Errorf("%+v is out, want its command at b", r.out)
	}
}

// TestLimitSetAgainBetweenRounds: a limit that is removed and set again between two rounds of a shard is the same to it, and the
// scheduler has forgotten which keys are waited for: it is told again.
func TestLimitSetAgainBetweenRounds(t *testing.T) {
	limit := perKey("agent.a", 1, 0)
	r := newLimitRig(t, 2, limit)
	r.keyed(0, `"k"`, 1)
	r.run(time.Second)
	r.keyed(1, `"k"`, 1)
	r.run(time.Second)
	if at := r.at(); at[`"k"`] != 1 {
		t.Fatalf("out are %v, want one of the key", at)
	}
	r.store.SetLimits()
	r.turn(r.nodes[1])
	r.store.SetLimits(limit)
	r.turn(r.nodes[1])
	r.finish(2, func(at map[string]int) {
		if at[`"k"`] > 1 {
			t.Fatalf("%d of the key are out, the limit is 1", at[`"k"`])
		}
	})
}
