package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// limitRig are nodes with real schedulers, whose committers and turns the test drives.
type limitRig struct {
	t     *testing.T
	store *sim.MemStore
	now   core.Instant
	nodes []*limitNode
	out   []core.Command
	fails string      // agents whose grants cannot be claimed
	lost  bool        // the answer to the next claim does not come
	plans bool        // no plan is stored any more
	loads bool        // takeovers fail when they have loaded what is out
	while func(n int) // what happens between a claim of so many grants and its answer; nil: nothing
}

type limitNode struct {
	sched *scheduler.Scheduler
	bus   *bus
	pos   uint64
	dead  bool
}

func newLimitRig(t *testing.T, nodes int, limits ...core.Limit) *limitRig {
	r := &limitRig{t: t, store: sim.NewMemStore(), now: began}
	r.store.AddPlan(orderPlan("order", 1, "a", "b"))
	r.store.SetLimits(limits...)
	for i := range nodes {
		n := &limitNode{bus: &bus{}}
		n.sched = scheduler.New(scheduler.RunConfig{
			Config:     scheduler.Config{Node: fmt.Sprint("n", i), Admission: scheduler.NewAdmission(0, -1), KeyOf: keyByInput, Now: func() core.Instant { return r.now }},
			Partitions: nodes, Shards: 1, Rand: chance("x"), CommitGap: -1, CycleTarget: -1,
			Limits: scheduler.LimitConfig{Store: claimStore{r.store, r}, Life: "1"},
		}, limitStore{r.store, r}, n.bus, nil, nil, slog.New(slog.DiscardHandler))
		r.nodes = append(r.nodes, n)
		r.turn(n)
		if _, err := n.shard().Adopt(t.Context(), r.now, i, scheduler.Ground{Stream: "stream-1"}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// limitStore is a scheduler.RunStore.
type limitStore struct {
	*sim.MemStore
	r *limitRig
}

// Plans may have lost all.
func (s limitStore) Plans(ctx context.Context) ([]core.Plan, error) {
	if s.r.plans {
		return nil, nil
	}
	return s.MemStore.Plans(ctx)
}

// Fresh is read last by a takeover.
func (s limitStore) Fresh(ctx context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error) {
	if s.r.loads {
		return nil, errCut
	}
	return s.MemStore.Fresh(ctx, as, from, after, last)
}

func (limitStore) Purge(context.Context, int, int64, core.Instant, core.Instant, int) (int, error) {
	return 0, errors.New("not here")
}

// claimStore is the store of limits, of which claims fail or take a while.
type claimStore struct {
	*sim.MemStore
	r *limitRig
}

// ClaimGrants implements scheduler.LimitStore.
func (s claimStore) ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error) {
	if agent == s.r.fails {
		return nil, errCut
	}
	all, err := s.MemStore.ClaimGrants(ctx, agent, now, mine)
	if do := s.r.while; do != nil {
		s.r.while = nil
		do(len(mine))
	}
	if s.r.lost {
		s.r.lost = false
		return nil, errCut
	}
	return all, err
}

func (n *limitNode) shard() *scheduler.Shard { return n.sched.Committers()[0].Shard() }

func (r *limitRig) turn(n *limitNode) {
	r.t.Helper()
	if err := n.sched.LimitTurn(r.t.Context()); err != nil && !errors.Is(err, errCut) {
		r.t.Fatal(err)
	}
}

// run lets all nodes work and take turns for a while, without answering anything.
func (r *limitRig) run(d time.Duration) (left int) {
	r.t.Helper()
	for until := r.now.Add(d); r.now < until; r.now = r.now.Add(50 * time.Millisecond) {
		for _, n := range r.nodes {
			if !n.dead {
				r.turn(n)
				left += r.work(n)
			}
		}
	}
	return left
}

// work lets a node do what is due now.
func (r *limitRig) work(n *limitNode) (left int) {
	r.t.Helper()
	c := n.sched.Committers()[0]
	for range 50 {
		if due := c.Due(); due == 0 || due > r.now {
			break
		}
		if err := c.Step(r.t.Context(), r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
	all := n.bus.take()
	r.out = append(r.out, all...)
	return len(all)
}

// submit gives a node so many orders.
func (r *limitRig) submit(node, n int) { r.t.Helper(); r.keyed(node, "", n) }

// answer answers the oldest command that is out.
func (r *limitRig) answer() {
	c := r.out[0]
	r.out = r.out[1:]
	r.nodes[c.Partition].sched.Committers()[0].Inbox().Reply(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy), Result: []byte("1")})
}

// The places of a limit are shared out over all nodes, and never more are taken; who has none gets one when others end.
func TestLimitOverNodes(t *testing.T) {
	r := newLimitRig(t, 3, core.Limit{Agent: "agent.a", Concurrent: 6, Revision: 1})
	r.submit(0, 20)
	r.run(time.Second)
	if len(r.out) != 6 {
		t.Fatalf("%d commands are out, want 6: one node alone has all places", len(r.out))
	}
	r.submit(1, 20)
	r.submit(2, 20)
	r.run(time.Second)
	if len(r.out) != 6 {
		t.Fatalf("%d commands are out, want 6", len(r.out))
	}
	taken := func() (at [3]int) {
		for _, c := range r.out {
			if c.Step == "a" {
				at[c.Partition]++
			}
		}
		return at
	}
	for range 200 {
		r.answer()
		r.run(100 * time.Millisecond)
		at := taken()
		if all := at[0] + at[1] + at[2]; all > 6 {
			t.Fatalf("%v do commands are out, the limit is 6", at)
		}
		if at == [3]int{2, 2, 2} {
			return
		}
	}
	t.Fatalf("out are %v, want two at each node", taken())
}

// A rate is shared out likewise.
func TestRateOverNodes(t *testing.T) {
	r := newLimitRig(t, 3, core.Limit{Agent: "agent.a", RateMilli: 20_000, Revision: 1})
	for i := range 3 {
		r.submit(i, 200)
	}
	first := r.run(time.Second)
	if left := r.run(10 * time.Second); left < 180 || left > 215 || first > 35 {
		t.Fatalf("%d do commands left in the first second, %d in the next ten; the rate is 20 a second", first, left)
	}
}

// A clock that is set back stops no rate until it has caught up, of an agent or of a key.
func TestRateAfterClockIsSetBack(t *testing.T) {
	ofEach(t, 1, map[string]core.Limit{"limit": {Agent: "agent.a", RateMilli: 20_000, Revision: 1}, "keys": perKey("agent.a", 0, 20_000)}, func(t *testing.T, r *limitRig) {
		r.submit(0, 400)
		r.run(time.Second)
		r.now = r.now.Add(-time.Minute)
		if left := r.run(10 * time.Second); left < 180 || left > 215 {
			t.Fatalf("%d do commands left in ten seconds after the clock was set back; the rate is 20 a second", left)
		}
	})
}

// A grant that is not renewed ends: a node that cannot reach the store sends nothing more, before others may have its places.
func TestGrantEnds(t *testing.T) {
	r := newLimitRig(t, 1, core.Limit{Agent: "agent.a", Concurrent: 3, Revision: 1})
	r.submit(0, 10)
	r.run(time.Second)
	for range 3 {
		r.answer()
	}
	r.out = nil
	n := r.nodes[0]
	grant := r.store.GrantsOf("agent.a")[0]
	r.now = grant.Until.Add(-time.Second)
	c := n.sched.Committers()[0]
	for range 20 {
		if err := c.Step(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, cmd := range n.bus.take() {
		if cmd.Step == "a" {
			t.Fatalf("%s of %s leaves, and may be at work after the grant has ended", cmd.Step, cmd.Task)
		}
	}
}

// A claim may be stored though its answer is lost: what it took is given back when nothing is wanted any more.
//
// covers: L6
func TestClaimWhoseAnswerIsLost(t *testing.T) {
	ofEach(t, 3, map[string]core.Limit{"limit": {Agent: "agent.a", Concurrent: 1, Revision: 1}, "keys": perKey("agent.a", 1, 0)}, func(t *testing.T, r *limitRig) {
		r.nodes[2].dead = true
		r.submit(0, 1)
		r.lost = true
		for range 100 {
			if r.work(r.nodes[0]); r.lost {
				r.turn(r.nodes[0])
			}
		}
		if r.lost || len(r.out) > 0 {
			t.Fatalf("the claim has not been made, or %d commands are out", len(r.out))
		}
		r.nodes[0].shard().Drop(0)
		r.adopt(0, 2)
		r.work(r.nodes[0])
		r.submit(1, 1)
		if left := r.run(3 * time.Second); left != 1 {
			t.Fatalf("%d commands left, want 1; granted are %v %v", left, r.store.GrantsOf("agent.a"), r.store.GrantsOfKey("agent.a", ""))
		}
	})
}

// A limit that is forgotten holds nothing, one that is lowered counts when commands end, and one that is raised at once.
func TestLimitChanges(t *testing.T) {
	r := newLimitRig(t, 1, core.Limit{Agent: "agent.a", Concurrent: 4, Revision: 1})
	r.submit(0, 40)
	r.run(time.Second)
	r.store.SetLimits(core.Limit{Agent: "agent.a", Concurrent: 2, Revision: 2})
	r.run(time.Second)
	for range 3 {
		r.answer()
	}
	r.run(2 * time.Second)
	at := func() (n int) {
		for _, c := range r.out {
			if c.Step == "a" {
				n++
			}
		}
		return n
	}
	if n := at(); n != 2 {
		t.Fatalf("%d do commands are out, want 2", n)
	}
	r.store.SetLimits(core.Limit{Agent: "agent.a", Concurrent: 7, Revision: 3})
	r.run(2 * time.Second)
	if n := at(); n != 7 {
		t.Fatalf("%d do commands are out, want 7", n)
	}
	r.store.SetLimits()
	r.run(2 * time.Second)
	if n := at(); n != 37 {
		t.Fatalf("%d do commands are out, want all that are left", n)
	}
}

// A command of a task that goes to another node keeps its place until it is over: it may be at work, and its new owner takes
// one for it as well.
func TestGoneKeepsItsPlace(t *testing.T) {
	r := newLimitRig(t, 1, core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1})
	r.submit(0, 1)
	r.gone(nil, 4*time.Second)
}

// gone lets the partition go whose one command is out, and checks that a task of another, with an input, begins when that is
// over, within a time, and not before.
func (r *limitRig) gone(input []byte, within time.Duration) {
	r.t.Helper()
	if left := r.run(time.Second); left != 1 {
		r.t.Fatalf("%d commands left, want 1", left)
	}
	n := r.nodes[0]
	n.shard().Drop(0)
	over := r.now.Add(12 * time.Second) // complete-by and grace
	r.adopt(0, 1)
	in := n.sched.Committers()[0].Inbox()
	in.OpenGate(1, 100)
	in.Tasks(scheduler.TaskMail{Partition: 1, Pos: 1, Submissions: []core.Submission{{Type: "order", ID: "next", Input: input, CompleteBy: r.now.Add(time.Hour)}}, Ack: func() {}})
	if left := r.run(over.Sub(r.now) - time.Second); left != 0 {
		r.t.Fatalf("%d commands left while the one that is gone may be at work", left)
	}
	if left := r.run(within); left != 1 {
		r.t.Fatalf("%d commands left when it is over, want 1", left)
	}
}

// adopt has a node take another partition over.
func (r *limitRig) adopt(node, partition int) {
	r.t.Helper()
	if _, err := r.nodes[node].shard().Adopt(r.t.Context(), r.now, partition, scheduler.Ground{Stream: "stream-1"}); err != nil {
		r.t.Fatal(err)
	}
}

// A partition that is let go starts nothing that is parked: its places are others' as soon as what is out is answered.
func TestDrainStartsNothing(t *testing.T) {
	for name, l := range map[string]core.Limit{"limit": {Agent: "agent.a", Concurrent: 2, Revision: 1}, "keys": perKey("agent.a", 2, 0)} {
		t.Run(name, func(t *testing.T) {
			r := newLimitRig(t, 1, l)
			r.submit(0, 20)
			r.run(time.Second)
			r.nodes[0].shard().StartNoMore(0)
			for len(r.out) > 0 {
				r.answer()
				if r.run(100 * time.Millisecond); len(r.out) > 2 || slices.ContainsFunc(r.out, func(c core.Command) bool { return c.Step == "a" && c.Number > 2 }) {
					t.Fatalf("the partition is let go, and %v are out", r.out)
				}
			}
			r.run(5 * time.Second)
			for _, g := range append(r.store.GrantsOf("agent.a"), r.store.GrantsOfKey("agent.a", "")...) {
				if g.Places > 0 {
					t.Fatalf("the node keeps %v", g)
				}
			}
		})
	}
}

// Partitions of a committer have turns in a limit's places: one with much to do does not keep another from going on.
func TestPartitionsTakeTurns(t *testing.T) {
	r := newLimitRig(t, 1, core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1})
	n := r.nodes[0]
	r.adopt(0, 1)
	r.submit(0, 50)
	in := n.sched.Committers()[0].Inbox()
	in.OpenGate(1, 100)
	var subs []core.Submission
	for i := range 3 {
		subs = append(subs, core.Submission{Type: "order", ID: fmt.Sprint("other-", i), CompleteBy: r.now.Add(time.Hour)})
	}
	in.Tasks(scheduler.TaskMail{Partition: 1, Pos: 1, Submissions: subs, Ack: func() {}})
	others := 0
	for range 8 {
		r.run(time.Second)
		for _, c := range r.out {
			if c.Step == "a" && c.Partition == 1 {
				others++
			}
			in.Reply(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy), Result: []byte("1")})
		}
		r.out = nil
	}
	if others != 3 {
		t.Fatalf("%d of 3 tasks of the other partition are at work in eight turns", others)
	}
}

// A committer that had work and has none any more leaves all of a rate to the others.
func TestIdleGivesItsRateBack(t *testing.T) {
	r := newLimitRig(t, 3, core.Limit{Agent: "agent.a", RateMilli: 20_000, Revision: 1})
	for i := range 3 {
		r.submit(i, 4)
	}
	r.run(5 * time.Second)
	for len(r.out) > 0 {
		r.answer()
		r.run(200 * time.Millisecond)
	}
	r.submit(0, 400)
	r.run(3 * time.Second) // until the others have said that they want nothing
	if left := r.run(5 * time.Second); left < 95 || left > 110 {
		t.Fatalf("%d do commands left in five seconds, the rate is 20 a second", left)
	}
}

// A limit whose grants cannot be claimed keeps no other's from being claimed, nor a partition from being counted.
func TestClaimThatFails(t *testing.T) {
	r := newLimitRig(t, 2, core.Limit{Agent: "agent.0", Concurrent: 1, Revision: 1}, core.Limit{Agent: "agent.a", Concurrent: 2, Revision: 1})
	r.store.AddPlan(orderPlan("zero", 1, "0"))
	r.keyedOf("zero", 0, "", 1)
	r.run(time.Second)
	r.fails, r.out = "agent.0", nil
	r.keyedOf("zero", 0, "", 1)
	r.submit(0, 2)
	r.run(time.Second)
	r.want(2, "at another agent")
}

// A grant that is in the mail when its limit has other keys is not one of those.
func TestGrantOfFormerKeys(t *testing.T) {
	r := newLimitRig(t, 2, perKey("agent.a", 1, 0))
	r.keyed(0, "other", 1) // by the next expression all tasks are of that key
	r.work(r.nodes[0])
	r.turn(r.nodes[0])
	other := perKey("agent.a", 1, 0)
	other.Key, other.Revision = "other", 2
	r.store.SetLimits(other)
	r.turn(r.nodes[1])
	r.keyed(1, "1", 1)
	r.work(r.nodes[1])
	r.turn(r.nodes[1])
	r.work(r.nodes[1])
	r.want(1, "at one node")
	r.turn(r.nodes[0])
	r.work(r.nodes[0])
	r.want(1, "at both")
	r.nodes[1].dead = true
	r.run(time.Minute)
	r.want(2, "when the grant of the other has ended")
}

// While a committer is at a commit the node keeps one grant of each limit for it, the newest.
func TestGrantsWaitForACommit(t *testing.T) {
	l := perKey("agent.a", 1, 0)
	l.Concurrent = 5
	r := newLimitRig(t, 1, l)
	r.keyed(0, "1", 5)
	r.keyed(0, "2", 5)
	n := r.nodes[0]
	r.work(n)
	for range 100 {
		r.turn(n)
		r.now = r.now.Add(2 * time.Second)
	}
	if n := n.sched.Committers()[0].Inbox().Grants(); n != 3 {
		t.Fatalf("%d grants wait, want one in all and one of each key", n)
	}
	r.run(time.Second)
	r.want(2, "when it has them")
}
