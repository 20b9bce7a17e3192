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
	w     *World
	name  string
	life  int
	shard *scheduler.Shard
	mail  scheduler.Mail
	feeds map[int]*feed
	awake bool // a turn is about to be
}

// feed is the consumer of one partition under one epoch.
type feed struct {
	epoch         int64
	next, control int // indexes into the streams
}

// restart is a crash and a new life that owns nothing.
func (n *node) restart() {
	n.life++
	n.mail, n.feeds, n.awake = scheduler.Mail{}, map[int]*feed{}, false
	life := n.life
	posted := func(m scheduler.ToldMail) {
		if n.life == life {
			n.mail.Told = append(n.mail.Told, m)
			n.wake()
		}
	}
	// Small bounds, so that windows fill and batches split.
	cfg := scheduler.Config{
		Node: n.name, InFlight: 64, AgentWindow: 2 + n.w.rand.IntN(6), BatchMax: 1 + n.w.rand.IntN(12),
		TellRetry: 100 * time.Millisecond, PlansRetry: 50 * time.Millisecond,
	}
	n.shard = scheduler.NewShard(cfg, faultyStore{n.w.Store, n.w}, &nodeBus{n.w, n, life}, n.w.cfg.Log, n.w.rand.Float64, posted)
}

// adopt takes a partition over. Every other consumer of it is gone with that;
// what they have in their mail already stays there.
func (n *node) adopt(p int) {
	if n.feeds[p] != nil {
		n.lose(p)
		n.shard.Drop(p)
	}
	n.feeds[p] = &feed{} // it hears replies from here on
	from, err := n.shard.Adopt(context.Background(), n.w.now, p, "stream")
	if err != nil {
		n.lose(p)
		n.shard.Drop(p)
		if !errors.Is(err, errFault) {
			n.w.wrong(p, "", "node %s cannot adopt partition %d: %v", n.name, p, err)
		}
		return
	}
	n.feeds[p] = &feed{epoch: from.Epoch, next: int(from.Cursor), control: int(from.ControlCursor)}
	n.pump(p)
	n.wake()
}

// lose stops what brings a partition's mail and throws away what lies here.
func (n *node) lose(p int) {
	delete(n.feeds, p)
	n.mail.Tasks = slices.DeleteFunc(n.mail.Tasks, func(m scheduler.TaskMail) bool { return m.Partition == p })
	n.mail.Controls = slices.DeleteFunc(n.mail.Controls, func(m scheduler.ControlMail) bool { return m.Partition == p })
}

// pump brings what the streams have for a partition, in order. A consumer that
// notices a lost delivery begins again at the committed cursor.
func (n *node) pump(p int) {
	f := n.feeds[p]
	st := n.w.Store.Partition(p)
	if f == nil || f.epoch != st.Epoch {
		return
	}
	if n.w.fault(0.05) {
		f.next, f.control = int(st.Cursor), int(st.ControlCursor)
	}
	for ; f.next < len(n.w.stream); f.next++ {
		if m := n.w.stream[f.next]; m.partition == p {
			n.mail.Tasks = append(n.mail.Tasks, scheduler.TaskMail{
				Partition: p, Pos: uint64(f.next + 1), At: n.w.now, Submissions: m.subs, Ack: func() { n.w.acked(m) },
			})
			n.wake()
		}
	}
	for ; f.control < len(n.w.controls); f.control++ {
		if m := n.w.controls[f.control]; m.partition == p {
			n.mail.Controls = append(n.mail.Controls, scheduler.ControlMail{Partition: p, Pos: uint64(f.control + 1), At: n.w.now, Control: m.control})
			n.wake()
		}
	}
}

// wake makes a turn happen soon; in the storm a node may be slow.
func (n *node) wake() { n.wakeIn(n.w.delay()) }

func (n *node) wakeIn(d time.Duration) {
	if n.awake {
		return
	}
	n.awake = true
	life := n.life
	n.w.after(d, func() {
		if n.life == life {
			n.awake = false
			n.turn()
		}
	})
}

func (n *node) turn() {
	mail := n.mail
	n.mail = scheduler.Mail{PlansChanged: n.w.fault(0.1)}
	life := n.life
	turned, err := n.shard.Turn(context.Background(), n.w.now, &mail, n.w.rand.IntN(4) == 0)
	if n.life != life {
		return
	}
	if err != nil && !errors.Is(err, errFault) {
		n.w.wrong(-1, "", "node %s: %v", n.name, err)
	}
	for _, p := range turned.Lost {
		n.lose(p)
	}
	n.rest()
}

// rest arms the next turn without mail: a wake that is due, or a cursor that
// waits for a commit.
func (n *node) rest() {
	if at := n.shard.NextWake(); at != 0 {
		life := n.life
		n.w.after(max(0, at.Sub(n.w.now)), func() {
			if n.life == life && n.shard.NextWake() != 0 && n.shard.NextWake() <= n.w.now {
				n.wakeIn(0)
			}
		})
	}
	if n.shard.Unsaved() {
		n.w.after(20*time.Millisecond, n.wake)
	}
}

// hear brings a reply to every node that listens for the partition.
func (w *World) hear(r core.Reply) {
	for _, n := range w.nodes {
		if n.feeds[r.Partition] != nil {
			n.mail.Replies = append(n.mail.Replies, scheduler.ReplyMail{At: w.now, Reply: r})
			n.wake()
		}
	}
}

// append puts a message on a stream and lets its readers know.
func (w *World) append(stream *[]message, m message) uint64 {
	*stream = append(*stream, m)
	for _, n := range w.nodes {
		if n.feeds[m.partition] != nil {
			w.after(w.delay(), func() { n.pump(m.partition) })
		}
	}
	return uint64(len(*stream))
}
