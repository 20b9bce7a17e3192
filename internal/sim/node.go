package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// node is one scheduler process: the real scheduler, whose committers and placement the world drives in the place of
// its goroutines. Its life ends with a crash; what was on its way to an earlier life is lost.
type node struct {
	w          *World
	name       string
	clock      *clock
	life       int
	sched      *scheduler.Scheduler
	loops      []*loop
	place      activity      // its placement
	judge      activity      // and its breakers
	claim      activity      // and its limits
	inFlight   int           // that it may have of a partition
	limitsRead bool          // in this life: nothing is taken over before
	feeds      map[int]*feed // of partitions whose replies it hears
	thaw       core.Instant  // until when it stands still
	freezes    int64         // how often it has stood still, each time for longer than its lease

	heard []core.Pause // the pauses that it knows of, now

	view      []string     // the live nodes, as a late lease has it
	viewUntil core.Instant // and until when
	twin      bool         // another node had its name first
}

// activity is what a goroutine of a process does: one call at a time.
type activity struct {
	n    *node
	call *proc
	busy bool
}

// run does something until it has ended, and then what follows.
func (a *activity) run(body, then func()) {
	n, life := a.n, a.n.life
	a.busy = true
	p := n.w.start(func() {
		body()
		if n.life == life {
			a.busy, a.call = false, nil
			then()
		}
	})
	if n.life == life && a.busy {
		a.call = p
	}
}

// loop is the goroutine of one committer: it calls Step when Due says so.
type loop struct {
	activity
	c     *scheduler.Committer
	known []core.Pause   // what its node had heard when the step under way began
	shut  []core.Breaker // likewise
	began core.Instant   // that step
	awake bool           // it is about to look whether a step is due
	alarm int            // the number of the newest alarm
}

// lifeWord names this life of the process among all of them, where another has its name, too.
func (n *node) lifeWord() string {
	if n.twin {
		return fmt.Sprintf("twin%d", n.life)
	}
	return fmt.Sprint(n.life)
}

// restart is a crash and a new life that owns nothing.
func (n *node) restart() {
	w := n.w
	n.life++
	calls := []*proc{n.place.call, n.judge.call, n.claim.call}
	for _, l := range n.loops {
		calls = append(calls, l.call)
	}
	n.feeds, n.thaw, n.place, n.judge, n.claim, n.loops = map[int]*feed{}, 0, activity{n: n}, activity{n: n}, activity{n: n}, nil
	n.viewUntil, n.limitsRead = 0, false
	if w.load != nil {
		n.sched = w.load.scheduler(n)
	} else {
		n.sched = scheduler.New(n.config(), nodeStore{w.tables(), n}, &nodeBus{w, n, n.life}, nodeWires{n}, nil, w.cfg.Log)
	}
	n.hearPauses()
	n.sched.SetWishes(w.wishes)
	for _, c := range n.sched.Committers() {
		n.loops = append(n.loops, &loop{activity: activity{n: n}, c: c})
	}
	for _, call := range calls {
		w.kill(call)
	}
	n.watchBreakers()
	n.watchLimits()
}

// config has small bounds, so that windows fill and batches split, and short times.
func (n *node) config() scheduler.RunConfig {
	w := n.w
	target := time.Duration(-1)
	if w.rand.IntN(2) == 0 {
		target = 5*time.Millisecond + w.upTo(20*time.Millisecond)
	}
	n.inFlight = 4 + w.rand.IntN(28)
	return scheduler.RunConfig{
		Config: scheduler.Config{
			Node: n.name, InFlight: n.inFlight, AgentWindow: 2 + w.rand.IntN(6), BatchMax: 1 + w.rand.IntN(12),
			PublishRetry: 100 * time.Millisecond, PlansRetry: 50 * time.Millisecond,
			Genuine: genuine, Now: n.now, Report: n.report, Expressions: w.expressions(), CheckSignal: checkSignal, Leased: n.leased,
			KeyOf: KeyOf, TenantLabel: "tenant", Weights: scheduler.Weights{Tenants: map[string]int{"a": 3}}, Hears: n.hears(),
		},
		Partitions: w.cfg.Partitions, Shards: 2, DrainMax: 1 + w.upTo(500*time.Millisecond), HandoverMax: 1 + w.upTo(500*time.Millisecond),
		Limits:    scheduler.LimitConfig{Store: nodeStore{w.tables(), n}, Life: n.lifeWord()},
		Breakers:  scheduler.BreakerConfig{Store: nodeStore{w.tables(), n}, Policy: breakerPolicy},
		CommitGap: w.upTo(20*time.Millisecond) - 10*time.Millisecond, CycleTarget: target, FlushEvery: 10*time.Millisecond + w.upTo(30*time.Millisecond),
		Rand: w.rand.Float64,
	}
}

// roundsMost is far more rounds than a node's shards need at one instant.
const roundsMost = 10_000

// hears is what a shard asks in each of its rounds. One that goes round without end is ended here.
func (n *node) hears() func() int64 {
	rounds, at := 0, core.Instant(0)
	return func() int64 {
		if rounds++; at != n.w.now {
			rounds, at = 0, n.w.now
		}
		if rounds > roundsMost {
			n.w.wrong(-1, "", "a shard of %s goes round without end", n.name)
			panic(errKilled)
		}
		return 1
	}
}

// now is what the process reads: one that stands still reads what arrives when it wakes.
func (n *node) now() core.Instant { return max(n.w.now, n.thaw).Add(n.clock.skew) }

// frozen is for how much longer the process stands still.
func (n *node) frozen() time.Duration { return max(0, n.thaw.Sub(n.w.now)) }

// leased is scheduler.Config.Leased: others take its partitions over while it stands still.
func (n *node) leased() int64 {
	if n.frozen() > 0 {
		return 2*n.freezes - 1
	}
	return 2 * n.freezes
}

// report takes what the scheduler could not do. Only faults, and what moves under it, may be the cause.
func (n *node) report(what scheduler.Trouble, err error) {
	if err == nil || errors.Is(err, errFault) {
		return
	}
	switch what {
	case scheduler.TroubleTakeover:
		if n.w.backs == 0 && !n.w.during(n.w.refusing) && !isMoved(err) {
			n.w.wrong(-1, "", "node %s cannot take over: %v", n.name, err)
		}
	case scheduler.TroubleCycle:
		n.w.wrong(-1, "", "node %s: %v", n.name, err)
	}
}

// isMoved reports whether an error says that a stream or the ownership is not what it was.
func isMoved(err error) bool {
	return slices.ContainsFunc([]error{errOtherStream, scheduler.ErrRewound, scheduler.ErrControlRewound, core.ErrOvertaken},
		func(is error) bool { return errors.Is(err, is) })
}

// loopOf is the loop that a partition falls to.
func (n *node) loopOf(p int) *loop { return n.loops[p%len(n.loops)] }

// shardOf is the shard that a partition falls to.
func (n *node) shardOf(p int) *scheduler.Shard { return n.loopOf(p).c.Shard() }

// wake makes the loop look soon whether a step is due; in the storm it may be slow.
func (l *loop) wake() {
	if l.awake || l.busy {
		return
	}
	l.awake = true
	l.n.after(l.n.w.delay(), func() {
		l.awake = false
		l.look()
	})
}

// look takes a step that is due, or sets the alarm for it.
func (l *loop) look() {
	if l.busy {
		return
	}
	l.alarm++
	wait := l.n.frozen()
	if wait == 0 {
		due := l.c.Due()
		if due == 0 {
			return
		}
		if wait = max(0, due.Sub(l.n.now())); wait == 0 {
			l.run(l.step, l.between)
			return
		}
	}
	alarm := l.alarm
	l.n.after(wait, func() {
		if l.alarm == alarm {
			l.look() // a clock may have been set back
		}
	})
}

// step is one step of the committer.
func (l *loop) step() {
	if l.n.w.fault(PlansReread) {
		l.c.Inbox().PlansChanged()
	}
	l.known, l.shut, l.began = l.n.heard, l.n.sched.Breakers(), l.n.w.now
	if err := l.c.Step(context.Background(), context.Background()); err != nil {
		l.n.w.wrong(-1, "", "node %s: %v", l.n.name, err)
	}
	if l.n.w.load == nil { // they look at every task
		l.n.checkMemory(l)
		l.n.checkWakers(l)
	}
}

// between is what happens between two steps: readers go on where there is room again.
func (l *loop) between() {
	if l.n.w.load != nil {
		l.n.pumpByAge()
	}
	for p := range l.n.w.cfg.Partitions {
		l.n.pump(p)
	}
	if due := l.c.Due(); due != 0 && due <= l.n.now() {
		l.wake()
	} else {
		l.look()
	}
}

// reassign lets the placement look once, by the live nodes as this process sees them.
func (n *node) reassign(live []string) {
	if n.place.busy || n.frozen() > 0 || !n.limitsRead {
		return
	}
	n.sched.SetLive(live)
	n.place.run(func() { n.sched.Reassign(context.Background(), n.now().Time()) }, func() {
		for _, l := range n.loops {
			l.wake()
		}
	})
}

// isolate lets the node see no other node for a while, so that it takes everything over.
func (n *node) isolate() {
	n.view, n.viewUntil = []string{n.name}, n.w.now.Add(n.w.upTo(300*time.Millisecond))
	n.reassign(n.view)
}

// lose asks the node to give up a partition that it holds under an epoch.
func (n *node) lose(p int, epoch int64, why error) {
	n.loopOf(p).c.Lose(p, epoch, why)
	n.loopOf(p).wake()
}

// after makes something happen in this life.
func (n *node) after(d time.Duration, do func()) {
	life := n.life
	n.w.after(d, func() {
		if n.life == life {
			do()
		}
	})
}
