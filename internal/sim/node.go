package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// node is one scheduler process: two shards, which turn together or each alone, and what
// brings their mail. Its life ends with a crash; what was on its way to an earlier life
// is lost.
type node struct {
	w        *World
	name     string
	clock    *clock
	life     int
	shards   [2]*scheduler.Shard
	crew     *scheduler.Crew
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

	tasks, controls   int // the streams that these belong to
	last, lastControl place
	blind             bool // a stream has moved, and it has not looked yet
}

// order asks a node to adopt a partition or, with the epoch of an ownership that
// is over, to forget it.
type order struct {
	partition int
	lost      int64
	evidence  core.Evidence // what another owner recorded, if it was that
	why       error         // what its reader found
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
		Genuine: genuine, Now: n.clock.now, IDs: scheduler.NewCommitIDs(w.rand.Float64),
	}
	for i := range n.shards {
		n.shards[i] = scheduler.NewShard(cfg, nodeStore{w.Store, n}, &nodeBus{w, n, life}, w.cfg.Log, w.rand.Float64, posted)
	}
	n.crew = &scheduler.Crew{}
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

// shardOf is the shard that a partition falls to.
func (n *node) shardOf(p int) *scheduler.Shard { return n.shards[p%len(n.shards)] }

// turn is one of both shards together, as a rule, or of one alone.
func (n *node) turn() {
	first, last := 0, len(n.shards)-1
	if n.w.fault(TurnAlone) {
		first = n.w.rand.IntN(len(n.shards))
		last = first
	}
	var parts []*scheduler.Part
	for i := first; i <= last; i++ {
		mail := n.takeMail(i)
		mail.PlansChanged = n.w.fault(PlansReread)
		parts = append(parts, &scheduler.Part{Shard: n.shards[i], Mail: mail, Flush: n.w.rand.IntN(4) == 0})
	}
	n.crew.Turn(context.Background(), n.clock.now(), parts...)
	failed := false
	for _, p := range parts {
		if p.Err != nil && !errors.Is(p.Err, errFault) {
			n.w.wrong(-1, "", "node %s: %v", n.name, p.Err)
		}
		failed = failed || p.Err != nil
		for _, p := range p.Turned.Lost {
			n.lose(p)
		}
	}
	if !failed {
		n.checkMemory()
	}
}

// takeMail takes the mail of one shard.
func (n *node) takeMail(shard int) *scheduler.Mail {
	all, mine := &n.mail, &scheduler.Mail{}
	of := func(p int) bool { return p%len(n.shards) == shard }
	mine.Told, all.Told = part(all.Told, func(m *scheduler.ToldMail) bool { return of(m.Partition) })
	mine.Controls, all.Controls = part(all.Controls, func(m *scheduler.ControlMail) bool { return of(m.Partition) })
	mine.Replies, all.Replies = part(all.Replies, func(m *scheduler.ReplyMail) bool { return of(m.Reply.Partition) })
	mine.Unserved, all.Unserved = part(all.Unserved, func(m *scheduler.ReplyMail) bool { return of(m.Reply.Partition) })
	mine.Tasks, all.Tasks = part(all.Tasks, func(m *scheduler.TaskMail) bool { return of(m.Partition) })
	return mine
}

// part divides a list, and keeps both parts in order.
func part[T any](all []T, mine func(*T) bool) (in, out []T) {
	for i := range all {
		if mine(&all[i]) {
			in = append(in, all[i])
		} else {
			out = append(out, all[i])
		}
	}
	return in, out
}

// rest is what a node does between two calls: it arms the next one.
func (n *node) rest() {
	for p := range n.w.cfg.Partitions {
		n.pump(p)
	}
	n.arm()
	life := n.life
	if n.unsaved() {
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

func (n *node) unsaved() bool {
	return slices.ContainsFunc(n.shards[:], (*scheduler.Shard).Unsaved)
}

// nextWake is when one of the shards next wants a turn; 0: none does.
func (n *node) nextWake() core.Instant {
	next := core.Instant(0)
	for _, s := range n.shards {
		if at := s.NextWake(); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// arm sets the timer of the next wake; a clock that was set back makes it look
// again.
func (n *node) arm() {
	at, life := n.nextWake(), n.life
	if at == 0 {
		return
	}
	n.w.after(n.clock.until(at), func() {
		switch {
		case n.life != life || n.busy || n.nextWake() != at:
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
		if epoch, ok := n.shardOf(o.partition).Owns(o.partition); ok && epoch == o.lost && (!o.evidence.Former || n.shardOf(o.partition).Doubt(o.evidence)) {
			n.shardOf(o.partition).Rewound(o.partition, o.why)
			n.shardOf(o.partition).Drop(o.partition)
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
	if w.during(w.others) {
		return // it cannot see what there is
	}
	if n.feeds[p] != nil {
		n.lose(p)
		n.shardOf(p).Drop(p)
	}
	n.feeds[p] = &feed{} // it hears replies from here on
	backs := w.backs
	from, err := n.shardOf(p).Adopt(context.Background(), n.clock.now(), p,
		scheduler.Ground{Stream: w.streamName(), End: lastOf(w.stream, p), Evidence: w.evidence[p], Former: w.former[p]})
	if err != nil {
		n.lose(p)
		n.shardOf(p).Drop(p)
		if !errors.Is(err, errFault) && w.backs == backs && !w.during(w.refusing) && n.owner(p) {
			w.wrong(p, "", "node %s cannot adopt partition %d: %v", n.name, p, err)
		}
		return
	}
	w.tell("", p, "%s has partition %d under epoch %d from %d", n.name, p, from.Epoch, from.Cursor)
	f := &feed{
		epoch: from.Epoch, next: int(from.Cursor), control: int(from.ControlCursor), tasks: w.taskAge, controls: w.controlAge,
		last: place{from.Cursor, from.CursorStored}, lastControl: place{from.ControlCursor, from.ControlStored},
	}
	why := w.streamsOf(p, f)
	if from.Stream != w.streamName() {
		why = errOtherStream
	}
	if why != nil {
		n.shardOf(p).Rewound(p, why)
		n.lose(p)
		n.shardOf(p).Drop(p)
		n.adopt(p)
		return
	}
	delete(w.astray, p)
	n.feeds[p] = f
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

// owner reports whether SQL says that a partition is this node's and no other's.
func (n *node) owner(p int) bool {
	name := n.w.Store.Partition(p).Owner
	return name == n.name && !slices.ContainsFunc(n.w.nodes, func(o *node) bool { return o != n && o.name == name })
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

// lose stops what brings a partition's mail and throws away what lies here.
func (n *node) lose(p int) {
	delete(n.feeds, p)
	n.mail.Tasks = slices.DeleteFunc(n.mail.Tasks, func(m scheduler.TaskMail) bool { return m.Partition == p })
	n.mail.Controls = slices.DeleteFunc(n.mail.Controls, func(m scheduler.ControlMail) bool { return m.Partition == p })
}
