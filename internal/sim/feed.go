package sim

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// pump brings what the streams have for a partition, in order. A consumer that
// notices a lost delivery, or one out of order, begins again at the committed
// cursor; a message whose acknowledgement was lost comes again.
func (n *node) pump(p int) {
	f := n.feeds[p]
	if f == nil || f.epoch == 0 || f.blind {
		return
	}
	st := n.w.Store.Partition(p)
	if f.epoch != st.Epoch {
		return
	}
	if n.w.fault(Reread) {
		f.next, f.control = min(f.next, int(st.Cursor)), min(f.control, int(st.ControlCursor))
	}
	if f.next > 0 && n.w.fault(Redelivery) {
		n.deliver(p, n.w.rand.IntN(f.next))
	}
	for ; f.next < len(n.w.stream); f.next++ {
		if n.w.stream[f.next].partition == p && n.room(p) <= 0 {
			n.w.note(HandFull)
			break
		}
		n.deliver(p, f.next)
	}
	for ; f.control < len(n.w.controls); f.control++ {
		if m := n.w.controls[f.control]; m.partition == p {
			pos := uint64(f.control + 1)
			mail := scheduler.ControlMail{Partition: p, Pos: pos, Stored: m.at, At: n.read(), Control: m.control, Ack: func() { n.point() }}
			if m.garbage {
				mail.Control = core.Control{} // and a dead letter by now
			}
			f.lastControl = place{pos, m.at}
			n.mail.Controls = append(n.mail.Controls, mail)
			n.wake()
		}
	}
}

// room is how many submissions the partition may still take: the gate that holds
// the stream back.
func (n *node) room(p int) int {
	room := n.inFlight - n.shardOf(p).Load(p)
	for i := range n.mail.Tasks {
		if n.mail.Tasks[i].Partition == p {
			room -= max(1, len(n.mail.Tasks[i].Submissions))
		}
	}
	return room
}

func (n *node) deliver(p, i int) {
	m := n.w.stream[i]
	if m.partition != p || m.gone {
		return
	}
	if f := n.feeds[p]; uint64(i) >= f.last.pos {
		f.last = place{uint64(i + 1), m.at}
	}
	n.mail.Tasks = append(n.mail.Tasks, scheduler.TaskMail{
		Partition: p, Pos: uint64(i + 1), Stored: m.at, At: n.read(), Submissions: m.subs, Ack: func() { n.w.acked(m); n.point() },
	})
	n.wake()
}

// read is when a process reads what arrives now: one that stands still reads it
// when it wakes.
func (n *node) read() core.Instant { return max(n.w.now, n.thaw).Add(n.clock.skew) }

// hear brings a reply to every node that listens for the partition.
func (w *World) hear(r core.Reply) {
	for _, n := range w.nodes {
		if n.feeds[r.Partition] != nil {
			n.mail.Replies = append(n.mail.Replies, scheduler.ReplyMail{At: n.read(), Reply: r})
			n.wake()
		}
	}
}
