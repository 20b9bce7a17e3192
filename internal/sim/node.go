package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// node is one scheduler process: a shard and what brings its mail. Its life ends
// with a crash; what was on its way to an earlier life is lost.
type node struct {
	w        *World
	name     string
	clock    *clock
	life     int
	shard    *scheduler.Shard
	mail     scheduler.Mail
	feeds    map[int]*feed
	orders   []order
	call     *proc // the turn or adoption under way
	busy     bool
	awake    bool         // it is about to look what there is to do
	thaw     core.Instant // until when it stands still
	inFlight int
}

// feed is the consumer of one partition under one epoch.
type feed struct {
	epoch         int64
	next, control int // indexes into the streams
}

// order asks a node to adopt a partition or, with the epoch of an ownership that
// is over, to forget it.
type order struct {
	partition int
	lost      int64
}

// restart is a crash and a new life that owns nothing.
func (n *node) restart() {
	w := n.w
	n.life++
	call := n.call
	n.mail, n.feeds, n.orders, n.call = scheduler.Mail{}, map[int]*feed{}, nil, nil
	n.busy, n.awake, n.thaw = false, false, 0
	w.kill(call)
	life := n.life
	posted := func(m scheduler.ToldMail) {
		if n.life == life {
			n.mail.Told = append(n.mail.Told, m)
			n.wake()
		}
	}
	// Small bounds, so that windows fill and batches split.
	n.inFlight = 4 + w.rand.IntN(28)
	cfg := scheduler.Config{
		Node: n.name, InFlight: n.inFlight, AgentWindow: 2 + w.rand.IntN(6), BatchMax: 1 + w.rand.IntN(12),
		TellRetry: 100 * time.Millisecond, PlansRetry: 50 * time.Millisecond,
	}
	n.shard = scheduler.NewShard(cfg, nodeStore{w.Store, n}, &nodeBus{w, n, life}, w.cfg.Log, w.rand.Float64, posted)
}

// run lets the node be busy with one thing until it has ended.
func (n *node) run(body func()) {
	n.busy = true
	life := n.life
	p := n.w.start(func() {
		body()
		if n.life == life {
			n.busy, n.call = false, nil
			n.rest()
		}
	})
	if n.life == life && n.busy {
		n.call = p
	}
}

// wake makes the node look soon what there is to do; in the storm it may be slow.
func (n *node) wake() { n.wakeIn(n.w.delay()) }

func (n *node) wakeIn(d time.Duration) {
	if n.awake || n.busy {
		return
	}
	n.awake = true
	life := n.life
	n.w.after(d, func() {
		if n.life == life {
			n.awake = false
			n.look()
		}
	})
}

func (n *node) look() {
	if n.busy {
		return
	}
	if len(n.orders) == 0 {
		n.run(n.turn)
		return
	}
	o := n.orders[0]
	n.orders = n.orders[1:]
	n.run(func() { n.obey(o) })
}

func (n *node) turn() {
	mail := n.mail
	n.mail = scheduler.Mail{PlansChanged: n.w.fault(PlansReread)}
	turned, err := n.shard.Turn(context.Background(), n.clock.now(), &mail, n.w.rand.IntN(4) == 0)
	if err != nil && !errors.Is(err, errFault) {
		n.w.wrong(-1, "", "node %s: %v", n.name, err)
	}
	for _, p := range turned.Lost {
		n.lose(p)
	}
	if err == nil {
		n.checkMemory()
	}
}

// rest is what a node does between two calls: it arms the next one.
func (n *node) rest() {
	for p := range n.w.cfg.Partitions {
		n.pump(p)
	}
	n.arm()
	life := n.life
	if n.shard.Unsaved() {
		n.w.after(20*time.Millisecond, func() {
			if n.life == life {
				n.wake()
			}
		})
	}
	if len(n.orders) > 0 || !n.mail.Empty() {
		n.wake()
	}
}

// arm sets the timer of the next wake; a clock that was set back makes it look
// again.
func (n *node) arm() {
	at, life := n.shard.NextWake(), n.life
	if at == 0 {
		return
	}
	n.w.after(n.clock.until(at), func() {
		switch {
		case n.life != life || n.busy || n.shard.NextWake() != at:
		case at > n.clock.now():
			n.arm()
		default:
			n.wakeIn(0)
		}
	})
}

// adopt asks the node to take a partition over.
func (n *node) adopt(p int) {
	if !slices.Contains(n.orders, order{partition: p}) {
		n.orders = append(n.orders, order{partition: p})
		n.wake()
	}
}

func (n *node) obey(o order) {
	if o.lost != 0 {
		if epoch, ok := n.shard.Owns(o.partition); ok && epoch == o.lost {
			n.shard.Drop(o.partition)
			n.lose(o.partition)
		}
		return
	}
	n.takeOver(o.partition)
}

// takeOver adopts a partition. Every other consumer of it is gone with that;
// what they have in their mail already stays there.
func (n *node) takeOver(p int) {
	w := n.w
	if n.feeds[p] != nil {
		n.lose(p)
		n.shard.Drop(p)
	}
	n.feeds[p] = &feed{} // it hears replies from here on
	from, err := n.shard.Adopt(context.Background(), n.clock.now(), p, w.streamName())
	if err != nil {
		n.lose(p)
		n.shard.Drop(p)
		if !errors.Is(err, errFault) && w.Store.Partition(p).Owner == n.name {
			w.wrong(p, "", "node %s cannot adopt partition %d: %v", n.name, p, err)
		}
		return
	}
	w.tell("", p, "%s has partition %d under epoch %d from %d", n.name, p, from.Epoch, from.Cursor)
	n.feeds[p] = &feed{epoch: from.Epoch, next: int(from.Cursor), control: int(from.ControlCursor)}
	for _, o := range w.nodes {
		if f := o.feeds[p]; o != n && f != nil && f.epoch > 0 && f.epoch < from.Epoch {
			w.note(TwoOwners)
			if w.fault(LostHeard) {
				o.orders = append(o.orders, order{partition: p, lost: f.epoch})
				o.wake()
			}
		}
	}
}

// lose stops what brings a partition's mail and throws away what lies here.
func (n *node) lose(p int) {
	delete(n.feeds, p)
	n.mail.Tasks = slices.DeleteFunc(n.mail.Tasks, func(m scheduler.TaskMail) bool { return m.Partition == p })
	n.mail.Controls = slices.DeleteFunc(n.mail.Controls, func(m scheduler.ControlMail) bool { return m.Partition == p })
}
