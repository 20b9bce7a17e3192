package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// pair is a rig with a second shard, which owns partition 1 and turns together with the
// first.
type pair struct {
	*rig
	shards [2]*scheduler.Shard
}

func newPair(t *testing.T, cfg scheduler.Config) *pair {
	t.Helper()
	r := &pair{rig: newRig(t, cfg)}
	r.shards = [2]*scheduler.Shard{r.shard, r.newShard("second")}
	r.shard = r.shards[1]
	r.adopt(1)
	r.shard = r.shards[0]
	r.news()
	return r
}

// together is one turn of both, with all the mail there is.
func (r *pair) together() (parts [2]scheduler.Part) {
	for i := range parts {
		parts[i] = scheduler.Part{Shard: r.shards[i], Mail: &scheduler.Mail{}}
	}
	for _, m := range r.mail.Told {
		parts[m.Partition].Mail.Told = append(parts[m.Partition].Mail.Told, m)
	}
	for _, m := range r.mail.Replies {
		parts[m.Reply.Partition].Mail.Replies = append(parts[m.Reply.Partition].Mail.Replies, m)
	}
	for _, m := range r.mail.Tasks {
		parts[m.Partition].Mail.Tasks = append(parts[m.Partition].Mail.Tasks, m)
	}
	*r.mail = scheduler.Mail{}
	r.crew.Turn(r.t.Context(), r.now, &parts[0], &parts[1])
	return parts
}

// well is a turn of both without an error.
func (r *pair) well() {
	r.t.Helper()
	for _, p := range r.together() {
		if p.Err != nil {
			r.t.Fatal(p.Err)
		}
	}
}

// finishAll answers whatever is out until nothing more leaves.
func (r *pair) finishAll() {
	r.t.Helper()
	r.finishBy(r.well)
}

func (r *pair) want(state core.State, p int, ids ...string) {
	r.t.Helper()
	want(r.t, r.store, state, p, ids...)
}

// What shards that turn together write is one commit; the endings they tell are handed
// over together, and so are their commands.
func TestTogetherIsOneCommit(t *testing.T) {
	r := newPair(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.tasks(1, order("u1"))
	r.well()
	r.expect("commit 2", "notify private.t1 received", "notify private.u1 received", "do t1/a/0 try 1", "do u1/a/0 try 1", "ack 1", "ack 2")
	for range 2 {
		for _, c := range r.bus.take() {
			r.answer(c, 0)
		}
		r.news()
		tells, sends := r.bus.tells, r.bus.sends
		r.well()
		if got := r.news(); got[0] != "commit 2" || r.bus.tells-tells+r.bus.sends-sends != 1 {
			t.Errorf("%d tellings and %d sendings in\n%s", r.bus.tells-tells, r.bus.sends-sends, strings.Join(got, "\n"))
		}
	}
	r.want(core.StateProcessed, 0, "t1")
	r.want(core.StateProcessed, 1, "u1")
	r.well() // the confirmations
	for p, s := range r.shards {
		if got := s.Load(p); got != 0 {
			t.Errorf("load of partition %d after all was told: %d", p, got)
		}
	}
}

// A shard whose mail is more than a batch goes on when the other is done.
func TestTogetherInRounds(t *testing.T) {
	r := newPair(t, scheduler.Config{BatchMax: 2})
	r.tasks(0, order("t1"), order("t2"), order("t3"), order("t4"), order("t5"))
	r.tasks(1, order("u1"))
	r.well()
	commits := slices.DeleteFunc(slices.Clone(r.news()), func(line string) bool { return !strings.HasPrefix(line, "commit") })
	if want := []string{"commit 3", "commit 2", "commit 1"}; !slices.Equal(commits, want) {
		t.Errorf("%q, want %q", commits, want)
	}
	r.finishAll()
	r.want(core.StateProcessed, 0, "t1", "t5")
	r.want(core.StateProcessed, 1, "u1")
}

// A row that the database refuses is found as if its shard had been alone.
//
// covers: inv12
func TestTogetherWithARefusedRow(t *testing.T) {
	for _, bad := range []string{"t2", "u3"} {
		r := newPair(t, scheduler.Config{})
		r.refuse(false, bad)
		r.tasks(0, order("t1"), order("t2"), order("t3"))
		r.tasks(1, order("u1"), order("u2"), order("u3"))
		r.well()
		r.finishAll()
		for p, ids := range [][]string{{"t1", "t2", "t3"}, {"u1", "u2", "u3"}} {
			for _, id := range ids {
				want := core.StateProcessed
				if id == bad {
					want = core.StateError
				}
				r.want(want, p, id)
			}
			if got := r.shards[p].Load(p); got != 0 {
				t.Errorf("load %d of partition %d", got, p)
			}
		}
	}
}

// What is too much in one commit of several shards is committed shard by shard, and
// what is too much for one in parts.
func TestTogetherTooLarge(t *testing.T) {
	for most := 1; most <= 5; most++ {
		r := newPair(t, scheduler.Config{})
		r.tooLarge(most)
		r.tasks(0, order("t1"), order("t2"), order("t3"))
		r.tasks(1, order("u1"), order("u2"), order("u3"))
		r.well()
		r.finishAll()
		for p, ids := range [][]string{{"t1", "t2", "t3"}, {"u1", "u2", "u3"}} {
			for _, id := range ids {
				r.want(core.StateProcessed, p, id)
			}
			if got := r.shards[p].Stats.Poisoned; got != 0 {
				t.Errorf("%d at a time: %d poisoned", most, got)
			}
		}
	}
}

// A partition that is fenced in a common commit is dropped by its shard, and nothing of
// it leaves; the other shard has nothing to do with it.
//
// covers: inv4
func TestTogetherWithAFencedPartition(t *testing.T) {
	for stolen := range 2 {
		r := newPair(t, scheduler.Config{})
		r.steal(stolen)
		r.tasks(0, order("t0"))
		r.tasks(1, order("t1"))
		parts := r.together()
		other := 1 - stolen
		if parts[0].Err != nil || parts[1].Err != nil || !slices.Equal(parts[stolen].Turned.Lost, []int{stolen}) || len(parts[other].Turned.Lost) > 0 {
			t.Fatalf("turned %+v", parts)
		}
		r.expect(fmt.Sprintf("commit 2 fenced [%d]", stolen), fmt.Sprintf("notify private.t%d received", other), fmt.Sprintf("do t%d/a/0 try 1", other), fmt.Sprintf("ack %d", other+1))
		r.finishAll()
		r.want(core.StateProcessed, other, fmt.Sprintf("t%d", other))
	}
}

// Of a common commit that failed nobody knows whose fault it was, nor whether it came
// about: both shards drop what they have, and nothing leaves. A shard that had nothing to
// write stays as it is.
//
// covers: inv3
func TestTogetherWithAFailedCommit(t *testing.T) {
	for _, idle := range []bool{false, true} {
		r := newPair(t, scheduler.Config{})
		r.store.BeforeCommit = func(*core.Batch) error { return errCut }
		r.tasks(0, order("t1"))
		if !idle {
			r.tasks(1, order("u1"))
		}
		parts := r.together()
		r.expect()
		for p, part := range parts {
			failed := p == 0 || !idle
			if _, owns := r.shards[p].Owns(p); owns == failed || (part.Err != nil) != failed || (len(part.Turned.Lost) == 1) != failed {
				t.Errorf("idle %v: partition %d: turned %+v", idle, p, part)
			}
		}
	}
}

// A submission that repeats one shard's task is known among those of both.
//
// covers: inv9
func TestTogetherWithADuplicate(t *testing.T) {
	for again := range 2 {
		r := newPair(t, scheduler.Config{})
		id := fmt.Sprintf("old%d", again)
		r.tasks(again, order(id))
		r.well()
		r.finishAll()
		r.news()
		r.tasks(0, order("t0"))
		r.tasks(1, order("t1"))
		r.tasks(again, order(id))
		r.well()
		told := r.news()
		for _, line := range []string{"commit 3", "notify private." + id + " processed", "notify private.t0 received", "notify private.t1 received"} {
			if !slices.Contains(told, line) {
				t.Errorf("no %q in %q", line, told)
			}
		}
		if r.shards[again].Stats.Duplicates != 1 || r.shards[1-again].Stats.Duplicates != 0 {
			t.Errorf("duplicates %d and %d", r.shards[0].Stats.Duplicates, r.shards[1].Stats.Duplicates)
		}
		r.finishAll()
		r.want(core.StateProcessed, 0, "t0")
		r.want(core.StateProcessed, 1, "t1")
	}
}

// A refusal that cannot be stored is the failure of the shard whose it is.
//
// covers: inv2
func TestTogetherWithARefusalThatIsLost(t *testing.T) {
	for bad := range 2 {
		r := newPair(t, scheduler.Config{})
		r.tasks(bad, order("again"))
		r.well()
		r.sentTasks()
		r.bus.refuseErr = errCut
		other := order("again")
		other.Input = []byte(`{"of":"else"}`)
		r.tasks(bad, other, order("more"))
		r.tasks(1-bad, order("good"))
		parts := r.together()
		if parts[bad].Err == nil || parts[1-bad].Err != nil {
			t.Fatalf("turned %+v", parts)
		}
		if ids := r.sentTasks(); !slices.Equal(ids, []string{"good"}) {
			t.Errorf("commands of %q left", ids)
		}
		if told := r.news(); slices.Contains(told, "ack 2") || !slices.Contains(told, "ack 3") {
			t.Errorf("the wrong one acknowledged: %q", told)
		}
	}
}

// mixed makes the cluster count the commits that wrote tasks, and among them those of
// both committers.
func mixed(c *cluster) func() (commits, both int) {
	var mu sync.Mutex
	var commits, both int
	c.store.AfterCommit = func(b *core.Batch, _ core.CommitResult) error {
		mu.Lock()
		defer mu.Unlock()
		of := map[int]bool{}
		for i := range b.Writes {
			of[b.Writes[i].Task.Partition%2] = true
		}
		if len(of) > 0 {
			commits++
		}
		if len(of) > 1 {
			both++
		}
		return nil
	}
	return func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return commits, both
	}
}

// Committers turn together, twice as often as each would alone; not when there is
// enough for a full commit, not in a flood, and not if commits need not be few.
func TestCommittersTurnTogether(t *testing.T) {
	for _, tc := range []struct {
		name     string
		each     int // submissions to each committer
		gap      time.Duration
		flood    bool
		together bool
	}{
		{"a few", 30, time.Second, false, true},
		{"almost too many", 499, time.Second, false, true},
		{"too many", 500, time.Second, false, false},
		{"in a flood", 30, time.Second, true, false},
		{"without gaps", 30, -1, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.answer = -1
				var flood atomic.Bool
				n := c.run("a", func(cfg *scheduler.RunConfig) {
					cfg.CommitGap, cfg.FloodGap, cfg.Flooded, cfg.DrainMax = tc.gap, time.Second, flood.Load, -1
				})
				c.setLive("a")
				pass(time.Second)
				flood.Store(tc.flood)
				c.submit(0, many(8, "first")...) // what all rest after
				pass(50 * time.Millisecond)
				look := mixed(c)
				for p := range 2 {
					c.submit(p, many(tc.each, "then")...)
				}
				pass(100 * time.Millisecond)
				if commits, _ := look(); commits > 0 && tc.gap > 0 && !tc.flood {
					t.Errorf("%d commits in a tenth of a gap", commits)
				}
				pass(500 * time.Millisecond)
				if commits, both := look(); tc.together && (commits != 1 || both != 1) {
					t.Errorf("%d commits after half a gap, %d of both; want one", commits, both)
				}
				pass(2 * time.Second)
				c.want(core.StateProcessing, 0, "then0", fmt.Sprint("then", tc.each-1))
				c.want(core.StateProcessing, 1, "then0", fmt.Sprint("then", tc.each-1))
				if _, both := look(); !tc.together && both > 0 {
					t.Errorf("%d commits of both", both)
				}
				c.end(n)
			})
		})
	}
}

// A common turn that leaves nearly as much behind as it found does not keep up: committers turn
// each by itself for a while, each after a whole gap, and then try again.
func TestCommittersTurnApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		n := c.run("a", func(cfg *scheduler.RunConfig) { cfg.CommitGap, cfg.DrainMax = 40*time.Millisecond, -1 })
		c.setLive("a")
		pass(time.Second)
		look, sent := mixed(c), 0
		both := func(each int) {
			sent++
			for p := range 2 {
				c.submit(p, many(each, fmt.Sprint("t", sent, "-"))...)
			}
		}
		gathered := func(each int) (common int) { // what comes while all rest
			_, before := look()
			sent++
			c.submit(0, many(8, fmt.Sprint("t", sent, "-"))...)
			pass(10 * time.Millisecond)
			both(each)
			pass(40 * time.Millisecond)
			_, after := look()
			return after - before
		}
		c.store.slow.Store(int64(50 * time.Millisecond))
		both(30)
		pass(20 * time.Millisecond)
		both(200) // before the commit of the others is over
		pass(40 * time.Millisecond)
		c.store.slow.Store(0)
		pass(50 * time.Millisecond)
		if commits, common := look(); commits < 3 || common > 1 {
			t.Errorf("%d commits, %d of both; want one of both at most, and one of each", commits, common)
		}
		if gathered(250) != 0 {
			t.Error("together too soon")
		}
		pass(time.Second)
		if gathered(250) != 1 {
			t.Error("not together again")
		}
		c.end(n)
	})
}

// apart makes the committers of a cluster turn apart for most of a second, and gives a
// look at when it commits tasks from then on.
func (c *cluster) apart() (commits func() []time.Time) {
	c.store.slow.Store(int64(50 * time.Millisecond))
	for i := range 2 {
		for p := range 2 {
			c.submit(p, many(200, fmt.Sprint("long", i, "-"))...)
		}
		pass(20 * time.Millisecond)
	}
	pass(80 * time.Millisecond)
	c.store.slow.Store(0)
	pass(200 * time.Millisecond)
	return commitTimes(c)
}

// Committers that turn apart take turns: each begins in the middle of the other's gap,
// also if both began at once. Who is the only one with work waits for nobody.
func TestCommittersTakeTurns(t *testing.T) {
	const gap = 40 * time.Millisecond
	run := func(t *testing.T, test func(t *testing.T, c *cluster)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.answer = -1
			n := c.run("a", func(cfg *scheduler.RunConfig) { cfg.CommitGap, cfg.DrainMax = gap, -1 })
			c.setLive("a")
			pass(time.Second)
			test(t, c)
			c.end(n)
		})
	}
	t.Run("both have work", func(t *testing.T) {
		run(t, func(t *testing.T, c *cluster) {
			commits := c.apart()
			for i := range 40 {
				for p := range 2 {
					c.submit(p, many(10, fmt.Sprint("t", i, "-"))...)
				}
				pass(gap / 4)
			}
			all := commits()
			if len(all) < 16 {
				t.Fatalf("%d commits", len(all))
			}
			for i := len(all) / 2; i < len(all); i++ {
				if d := all[i].Sub(all[i-1]).Round(time.Millisecond); d != gap/2 {
					t.Errorf("a commit %v after the one before, want %v", d, gap/2)
				}
			}
		})
	})
	t.Run("one has work", func(t *testing.T) {
		run(t, func(t *testing.T, c *cluster) {
			commits := c.apart()
			for i := range 6 {
				c.submit(1, many(10, fmt.Sprint("first", i, "-"))...)
				pass(gap / 4)
				c.submit(1, many(10, fmt.Sprint("second", i, "-"))...)
				pass(2*gap + gap/8)
			}
			all := commits()
			if len(all) != 12 {
				t.Fatalf("%d commits, want 12", len(all))
			}
			for i := 1; i < len(all); i += 2 {
				if d := all[i].Sub(all[i-1]).Round(time.Millisecond); d != gap {
					t.Errorf("a commit %v after the one before, want %v", d, gap)
				}
			}
		})
	})
}

// many are submissions of that name.
func many(n int, name string) []core.Submission {
	subs := make([]core.Submission, n)
	for i := range subs {
		subs[i] = order(fmt.Sprint(name, i))
	}
	return subs
}

// quickly has the first committer do some tasks in little time.
func (c *cluster) quickly() {
	c.t.Helper()
	for _, sub := range many(20, "quick") {
		c.submit(0, sub)
		pass(20 * time.Millisecond)
	}
	pass(400 * time.Millisecond)
	c.want(core.StateProcessed, 0, "quick0", "quick19")
}

// A committer that takes a partition over, drains, or waits for forgetting keeps nobody
// else waiting.
//
// covers: inv11
func TestOneCommitterHoldsNoOtherUp(t *testing.T) {
	t.Run("a takeover", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.setLive("a")
			n := c.run("a", nil)
			pass(time.Second)
			c.store.takes.Store(int64(5 * time.Second))
			c.lost[1](errCut)
			pass(time.Second)
			c.quickly()
			if e := c.store.Partition(1).Epoch; e != 1 {
				t.Errorf("the takeover is over already: epoch %d", e)
			}
			pass(5 * time.Second)
			if e := c.store.Partition(1).Epoch; e != 2 {
				t.Errorf("epoch %d after the takeover", e)
			}
			c.end(n)
		})
	})
	t.Run("forgetting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			n, control := c.forgetting(nil)
			control()
			c.quickly()
			if c.store.Task(1, "none") != nil {
				t.Error("the control did not wait for forgetting")
			}
			pass(time.Minute)
			c.want(core.StateUndone, 1, "none")
			c.end(n)
		})
	})
}

// forgetting is a node that forgets old tasks of its second committer, slowly, and a
// control for that one, which may take such a task up again.
func (c *cluster) forgetting(change func(*scheduler.RunConfig)) (n *node, control func()) {
	c.store.forgets.Store(int64(5 * time.Second))
	c.setLive("a")
	n = c.run("a", func(cfg *scheduler.RunConfig) {
		cfg.Retain.Detail = time.Hour
		if change != nil {
			change(cfg)
		}
	})
	pass(3 * time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.ears[1][0]
	return n, func() {
		in.Control(scheduler.ControlMail{Partition: 1, Pos: 1, Control: core.Control{Kind: core.EventCancel, ID: "none", Type: "order", Actor: "olga"}, Ack: func() {}})
	}
}

// Nothing is taken up again while old tasks are forgotten, also when another committer
// leads the turn.
//
// covers: inv8
func TestForgettingIsWaitedForByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = -1
		n, control := c.forgetting(func(cfg *scheduler.RunConfig) { cfg.CommitGap, cfg.DrainMax = time.Second, -1 })
		c.submit(0, many(8, "first")...) // what all rest after
		pass(20 * time.Millisecond)
		c.submit(0, many(1000, "full")...) // so much that each turns by itself,
		c.submit(1, many(600, "half")...)  // and the second rests when the first does not
		pass(600 * time.Millisecond)
		look := mixed(c)
		control()
		c.submit(0, order("t1"))
		pass(20 * time.Millisecond)
		c.want(core.StateProcessing, 0, "t1")
		if c.store.Task(1, "none") != nil {
			t.Error("the control did not wait for forgetting")
		}
		if commits, _ := look(); commits != 1 {
			t.Errorf("%d commits, want the first committer's", commits)
		}
		pass(time.Minute)
		c.want(core.StateUndone, 1, "none")
		c.end(n)
	})
}
