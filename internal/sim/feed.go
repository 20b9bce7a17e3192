package sim

import (
	"context"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// feed is the subscription and the consumer of one partition under one epoch.
type feed struct {
	in            *scheduler.Inbox
	epoch         int64 // 0: it only hears replies
	reads         bool
	next, control int // indexes into the streams

	tasks, controls   int // the streams that these belong to
	last, lastControl place
	blind             bool // a stream has moved, and it has not looked yet
}

// nodeWires are the connections of one node's partitions.
type nodeWires struct{ n *node }

// Ground implements scheduler.Wires.
func (v nodeWires) Ground(_ context.Context, p int) (scheduler.Ground, error) {
	w := v.n.w
	v.n.point()
	if w.during(w.others) {
		return scheduler.Ground{}, errFault // it cannot see what there is
	}
	return scheduler.Ground{Stream: w.streamName(), End: lastOf(w.stream, p), Evidence: w.evidence[p], Former: w.former[p]}, nil
}

// Listen implements scheduler.Wires.
func (v nodeWires) Listen(p int, in *scheduler.Inbox) (func(), error) {
	f := &feed{in: in}
	v.n.feeds[p] = f
	return func() {
		if v.n.feeds[p] == f {
			delete(v.n.feeds, p)
		}
	}, nil
}

// Read implements scheduler.Wires. Every other consumer of the partition is gone with it; what their nodes have in
// their mail already stays there.
func (v nodeWires) Read(_ context.Context, p int, from scheduler.Adopted, _ *scheduler.Inbox, _ func(error)) (func(), error) {
	n, w, f := v.n, v.n.w, v.n.feeds[p]
	f.next, f.control, f.tasks, f.controls = int(from.Cursor), int(from.ControlCursor), w.taskAge, w.controlAge
	f.last, f.lastControl = place{from.Cursor, from.CursorStored}, place{from.ControlCursor, from.ControlStored}
	if from.Stream != w.streamName() {
		return nil, errOtherStream
	}
	if err := w.streamsOf(p, f); err != nil {
		return nil, err
	}
	w.tell("", p, "%s has partition %d under epoch %d from %d", n.name, p, from.Epoch, from.Cursor)
	if from.Epoch == w.Store.partition(p).Epoch { // else another owner may have its old consumer yet
		delete(w.astray, p)
	}
	f.epoch, f.reads, f.blind = from.Epoch, true, false
	for _, o := range w.nodes {
		if other := o.feeds[p]; o != n && other != nil && other.epoch > 0 && other.epoch < from.Epoch {
			w.note(TwoOwners)
			if w.fault(LostHeard) {
				o.lose(p, other.epoch, nil)
			}
		}
	}
	return func() { f.reads = false }, nil
}

// Evidence implements scheduler.Wires; the world hands evidence over itself.
func (v nodeWires) Evidence(context.Context, func(core.Evidence)) error { return nil }

// pumpByAge brings what the task stream has for all partitions, the oldest first, as far as there is room: the readers of a
// node that wait for it take turns so.
func (n *node) pumpByAge() {
	for {
		first := -1
		for p := range n.w.cfg.Partitions {
			f := n.feeds[p]
			if f == nil || !f.reads || f.blind {
				continue
			}
			for f.next < len(n.w.stream) && n.w.stream[f.next].partition != p {
				f.next++
			}
			if f.next < len(n.w.stream) && (first < 0 || f.next < n.feeds[first].next) && f.in.Admits(p) {
				first = p
			}
		}
		if first < 0 {
			return
		}
		n.deliver(first, n.feeds[first].next)
		n.feeds[first].next++
	}
}

// pump brings what the streams have for a partition, in order. A consumer that notices a lost delivery, or one out of
// order, begins again at the committed cursor; a message whose acknowledgement was lost comes again.
func (n *node) pump(p int) {
	f := n.feeds[p]
	if f == nil || !f.reads || f.blind {
		return
	}
	st := n.w.Store.Partition(p)
	if f.epoch != st.Epoch {
		return
	}
	if n.w.fault(Reread) {
		f.next, f.control = min(f.next, int(st.Cursor)), min(f.control, int(st.ControlCursor))
	}
	if f.next > 0 && n.w.fault(Redelivery) && f.in.Admits(p) {
		n.deliver(p, n.w.rand.IntN(f.next))
	}
	for ; f.next < len(n.w.stream); f.next++ {
		if n.w.stream[f.next].partition == p && !f.in.Admits(p) {
			n.w.note(InFlightFull)
			break
		}
		n.deliver(p, f.next)
	}
	for ; f.control < len(n.w.controls); f.control++ {
		if m := n.w.controls[f.control]; m.partition == p {
			pos := uint64(f.control + 1)
			mail := scheduler.ControlMail{Partition: p, Pos: pos, Stored: m.at, Control: m.control, Ack: func() { n.w.ackedControl(m); n.point() }}
			if m.garbage {
				mail.Control = core.Control{} // and a dead letter by now
			}
			f.lastControl = place{pos, m.at}
			f.in.Control(mail)
			n.loopOf(p).wake()
		}
	}
}

func (n *node) deliver(p, i int) {
	m := n.w.stream[i]
	if m.partition != p || m.gone {
		return
	}
	f := n.feeds[p]
	if uint64(i) >= f.last.pos {
		f.last = place{uint64(i + 1), m.at}
	}
	f.in.Tasks(scheduler.TaskMail{
		Partition: p, Pos: uint64(i + 1), Stored: m.at, Submissions: m.subs, Ack: func() { n.w.acked(m); n.point() },
	})
	n.loopOf(p).wake()
}

// hear brings a reply to every node that listens for the partition.
func (w *World) hear(r core.Reply) {
	for _, n := range w.nodes {
		if w.load != nil {
			w.load.reply(n, func() { n.hear(r) })
		} else {
			n.hear(r)
		}
	}
}

func (n *node) hear(r core.Reply) {
	if f := n.feeds[r.Partition]; f != nil {
		f.in.Reply(r)
		n.loopOf(r.Partition).wake()
	}
}
