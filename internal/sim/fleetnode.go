package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/members"
	"duly.dev/duly/scheduler"
)

// errCut is what a node hears that NATS does not answer.
var errCut = errors.New("NATS does not answer")

// fleetNode is one process of the fleet.
type fleetNode struct {
	f     *Fleet
	name  string
	life  int
	up    bool
	cut   bool // off from NATS
	calls map[*proc]bool

	sched   *scheduler.Scheduler
	loops   []*fleetLoop
	members *members.Members
	placing bool
	again   bool
	hears   map[int]bool // partitions whose replies it listens to
	claimed bool
}

// fleetLease is a key of the bucket of live nodes.
type fleetLease struct {
	n       *fleetNode
	life    int
	renewed int
}

func fleetName(i int) string { return fmt.Sprintf("node-%03d", i) }

// FleetNames are the names of the first n nodes of a fleet.
func FleetNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fleetName(i)
	}
	return names
}

func newFleetNode(f *Fleet, i int) *fleetNode {
	return &fleetNode{f: f, name: fleetName(i), calls: map[*proc]bool{}}
}

// do runs something of this life as a process of its own.
func (n *fleetNode) do(body func()) {
	var p *proc
	over := false
	p = n.f.w.start(func() {
		defer func() {
			over = true
			delete(n.calls, p)
		}()
		body()
	})
	if !over {
		n.calls[p] = true
	}
}

// after makes something happen in this life.
func (n *fleetNode) after(d time.Duration, do func()) {
	life := n.life
	n.f.w.after(d, func() {
		if n.life == life {
			do()
		}
	})
}

// start begins a life, as a node does: the lease comes first.
func (n *fleetNode) start() {
	f := n.f
	n.life++
	n.up, n.placing, n.again, n.claimed, n.hears, n.loops = true, false, false, false, map[int]bool{}, nil
	n.sched = scheduler.New(scheduler.RunConfig{
		Config:     scheduler.Config{Node: n.name, Now: func() core.Instant { return f.w.now }, Report: n.report},
		Partitions: f.cfg.Partitions, Rand: f.w.rand.Float64,
	}, fleetStore{f.w.Store, n}, fleetBus{n: n}, fleetWires{n, n.life}, nil, f.w.cfg.Log)
	for _, c := range n.sched.Committers() {
		n.loops = append(n.loops, &fleetLoop{n: n, c: c})
	}
	n.do(n.keepLease)
}

// report takes what the scheduler could not do: only that NATS is away may be the cause, or a successor.
func (n *fleetNode) report(what scheduler.Trouble, err error) {
	if err != nil && !errors.Is(err, errCut) && !errors.Is(err, core.ErrOvertaken) {
		n.f.broken("%s: %s: %v", n.name, what, err)
	}
}

// keepLease renews the lease for as long as the node lives, as internal/node does.
func (n *fleetNode) keepLease() {
	f := n.f
	for {
		held := n.renew()
		if held && !n.claimed {
			n.claimed = true
			n.watch()
			n.after(f.w.upTo(fleetTick), n.tick)
		}
		wait := f.cfg.Lease / 3
		if !held {
			wait = f.cfg.Lease / 20
		}
		f.w.wait(wait)
	}
}

// renew takes or renews the lease.
func (n *fleetNode) renew() bool {
	f := n.f
	if n.request("lease", natsRequest) != nil {
		return false
	}
	l := f.leases[n.name]
	if l != nil && l.life != n.life {
		return false // of an earlier life: it ends soon
	}
	if l == nil {
		l = &fleetLease{n: n, life: n.life}
		f.leases[n.name] = l
		f.lives()
	}
	l.renewed++
	renewed := l.renewed
	f.w.after(f.cfg.Lease, func() {
		if l.renewed == renewed && f.leases[n.name] == l {
			f.leaseEnds(n.name)
		}
	})
	f.tell(n.name, true)
	return true
}

// leaseEnds ends a lease. While the server is away nothing hears of it: it is gone when it is back.
func (f *Fleet) leaseEnds(name string) {
	delete(f.leases, name)
	f.lives()
	f.tell(name, false)
}

// tell tells all who watch the leases.
func (f *Fleet) tell(name string, put bool) {
	if f.down {
		return
	}
	heard := 0
	for _, o := range f.nodes {
		if o.members == nil || !o.connected() {
			continue
		}
		heard++
		o.after(f.w.upTo(2*time.Millisecond), func() {
			o.members.Hear(name, put)
			o.news()
		})
	}
	f.deliver("lease deliveries", heard)
}

// watch begins a watch of the leases: first all that there are.
func (n *fleetNode) watch() {
	f := n.f
	if n.members == nil {
		n.members = members.New(f.cfg.Lease, func() time.Time { return f.w.now.Time() })
		n.after(f.cfg.Lease/3, n.lookAtWatch)
	} else {
		n.members.Restart()
	}
	f.count("NATS requests", 1)
	for name := range f.leases {
		n.members.Hear(name, true)
	}
	f.deliver("lease deliveries", len(f.leases))
	n.members.All()
	n.news()
}

// lookAtWatch is every third of a lease.
func (n *fleetNode) lookAtWatch() {
	n.after(n.f.cfg.Lease/3, n.lookAtWatch)
	if n.members.Mute(n.connected()) {
		n.watch()
	} else {
		n.members.Prune()
	}
	n.news()
}

// news hands the live nodes to the scheduler when they have changed.
func (n *fleetNode) news() {
	if live, changed := n.members.Take(); changed {
		n.sched.SetLive(live)
		n.look()
	}
}

// tick and look are keepPlaced of the scheduler.
func (n *fleetNode) tick() {
	n.after(fleetTick, n.tick)
	n.look()
}

func (n *fleetNode) look() {
	if n.placing {
		n.again = true
		return
	}
	n.placing, n.again = true, false
	n.do(func() {
		n.sched.Reassign(context.Background(), n.f.w.now.Time())
		n.placing = false
		for _, l := range n.loops {
			l.wake()
		}
		if n.again {
			n.after(0, n.look)
		}
	})
}

// die ends the life as kill -9 does: the lease ends by itself.
func (n *fleetNode) die() {
	n.life++
	n.up, n.members = false, nil
	for p := range n.calls {
		n.f.w.kill(p)
	}
	clear(n.calls)
	for p, r := range n.f.reads {
		if r != nil && r.n == n {
			n.f.unreads(p)
		}
	}
}

// stop ends the life in order.
func (n *fleetNode) stop(then func()) {
	for _, l := range n.loops {
		l.c.Stop()
		l.wake()
	}
	var wait func()
	wait = func() {
		for _, l := range n.loops {
			if !l.c.Stopped() {
				n.after(20*time.Millisecond, wait)
				return
			}
		}
		if f := n.f; f.leases[n.name] != nil {
			f.leaseEnds(n.name)
		}
		n.die()
		then()
	}
	wait()
}

// cutOff takes NATS from a node for a while: what it reads comes no more.
func (n *fleetNode) cutOff(d time.Duration) {
	n.cut = true
	n.deaf()
	n.after(d, func() {
		n.cut = false
		n.hearAgain()
	})
}

// deaf and hearAgain are a connection that is gone and is there again: its consumers go on.
func (n *fleetNode) deaf() {
	for p, r := range n.f.reads {
		if r != nil && r.n == n {
			n.f.gapBegins(p)
		}
	}
}

func (n *fleetNode) hearAgain() {
	for p, r := range n.f.reads {
		if r != nil && r.n == n {
			n.f.gap(p)
		}
	}
}

// away takes NATS from all nodes. Leases end meanwhile, and nothing tells so.
func (f *Fleet) away() {
	f.down = true
	for _, n := range f.nodes {
		n.deaf()
	}
	f.w.after(fleetStay, func() {
		f.down = false
		for _, n := range f.nodes {
			n.hearAgain()
		}
	})
}

func (n *fleetNode) connected() bool { return n.up && !n.cut && !n.f.down }

// request asks NATS for something. One that waits for the connection goes when it is back.
func (n *fleetNode) request(what string, cost time.Duration) error {
	w := n.f.w
	for waited := time.Duration(0); !n.connected(); waited += 50 * time.Millisecond {
		if waited >= natsPatience {
			return errCut
		}
		w.wait(50 * time.Millisecond)
	}
	n.f.count("NATS requests", 1)
	n.f.count("of these: "+what, 1)
	n.f.nats.ask(cost)
	return nil
}

// fleetLoop is the goroutine of one committer.
type fleetLoop struct {
	n     *fleetNode
	c     *scheduler.Committer
	busy  bool
	alarm int
}

func (l *fleetLoop) wake() {
	if l.busy {
		return
	}
	l.alarm++
	due := l.c.Due()
	if due == 0 {
		return
	}
	alarm := l.alarm
	l.n.after(max(0, due.Sub(l.n.f.w.now)), func() {
		if l.alarm == alarm && !l.busy {
			l.step()
		}
	})
}

func (l *fleetLoop) step() {
	l.busy = true
	l.n.do(func() {
		if err := l.c.Step(context.Background(), context.Background()); err != nil {
			l.n.f.broken("%s: %v", l.n.name, err)
		}
		l.busy = false
		l.wake()
	})
}
