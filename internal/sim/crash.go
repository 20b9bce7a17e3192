package sim

import (
	"context"
	"time"
)

// point is a moment between two effects of a node: the process may die here, or
// stand still for so long that the others think it dead, and wake with what it
// had.
func (n *node) point() {
	w := n.w
	switch {
	case w.fault(NodeCrash):
		w.tell("", -1, "%s crashes", n.name)
		n.dieHere()
	case w.fault(NodeFreeze):
		d := 200*time.Millisecond + w.upTo(3*time.Second)
		w.tell("", -1, "%s stands still for %v", n.name, d)
		n.thaw = w.now.Add(d)
		w.wait(d)
	}
}

// dieHere is a crash in the middle of the node's own call.
func (n *node) dieHere() {
	n.restart()
	panic(errKilled)
}

// keep sees to it that every partition has an owner. In the storm it restarts
// nodes wherever they are, and moves partitions between nodes that all live:
// their leases were late, or lost as a whole with their bucket.
func (w *World) keep() {
	if w.now < w.down {
		return
	}
	w.stepClocks()
	w.compare()
	lost := w.leasesLost
	w.leasesLost = false
	for p := range w.cfg.Partitions {
		if lost || !w.owned(p) || w.fault(PartitionMoved) {
			w.nodes[w.rand.IntN(len(w.nodes))].adopt(p)
		}
	}
	for _, n := range w.nodes {
		if w.fault(NodeRestart) {
			w.tell("", -1, "%s is restarted", n.name)
			n.restart()
		}
	}
	w.purge()
	if w.fault(StreamTrimmed) {
		w.trim()
	}
}

// compare is the look of each owner, now and then, whether the store still has its
// last commit.
func (w *World) compare() {
	for _, n := range w.nodes {
		for p := range w.cfg.Partitions {
			f, st := n.feeds[p], w.Store.Partition(p)
			if f != nil && f.epoch > 0 && w.rand.IntN(8) == 0 && (f.epoch > st.Epoch || f.epoch == st.Epoch && n.shardOf(p).LastCommit(p) != st.LastCommit && !n.busy) {
				n.orders = append(n.orders, order{partition: p, lost: f.epoch})
				n.wake()
			}
		}
	}
}

// owned reports whether the partition's owner lives, or is about to own it.
func (w *World) owned(p int) bool {
	for _, n := range w.nodes {
		if f := n.feeds[p]; f != nil && f.epoch == w.Store.Partition(p).Epoch {
			return true
		}
		if w.storm && w.now < n.thaw {
			continue
		}
		if f := n.feeds[p]; f != nil && f.epoch == 0 {
			return true
		}
		for _, o := range n.orders {
			if o.partition == p && o.lost == 0 {
				return true
			}
		}
	}
	return false
}

// purge lets owners forget the inputs and journals of what has ended, as they do
// all the time; rows stay for longer than the stream keeps its messages.
func (w *World) purge() {
	for _, n := range w.nodes {
		for p := range w.cfg.Partitions {
			f := n.feeds[p]
			if f == nil || f.epoch == 0 || n.busy || w.rand.IntN(16) != 0 || w.during(w.refusing) || w.backs > 0 { // nothing is forgotten for long after SQL went back
				continue
			}
			if forgot, _ := w.Store.Purge(context.Background(), p, f.epoch, n.clock.now().Add(-w.retain), 0, 4); forgot > 0 {
				w.happened[Purged] += forgot
			}
		}
	}
}
