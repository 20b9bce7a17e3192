package sim

import (
	"context"
	"slices"
	"time"
)

// point is a moment between two effects of a node: the process may die here, or
// stand still for so long that the others think it dead, and wake with what it
// had.
func (n *node) point() {
	w := n.w
	if d := n.frozen(); d > 0 { // another goroutine of the process has met the freeze
		w.wait(d)
	}
	switch {
	case w.fault(NodeCrash):
		w.tell("", -1, "%s crashes", n.name)
		n.dieHere()
	case w.fault(NodeFreeze):
		d := 200*time.Millisecond + w.upTo(3*time.Second)
		n.freeze(d)
		w.wait(d)
	}
}

// freeze lets the process stand still.
func (n *node) freeze(d time.Duration) {
	n.w.tell("", -1, "%s stands still for %v", n.name, d)
	n.thaw = n.w.now.Add(d)
	n.freezes++
}

// dieHere is a crash in the middle of the node's own call.
func (n *node) dieHere() {
	n.restart()
	panic(errKilled)
}

// keep tells every node now and then which nodes are live. In the storm it restarts nodes wherever they are, and lets
// them see live nodes as gone and gone ones as live: their leases were late, or lost as a whole with their bucket.
func (w *World) keep() {
	if w.now < w.down {
		return
	}
	w.stepClocks()
	lost := w.leasesLost
	w.leasesLost = false
	for _, n := range w.nodes {
		switch {
		case lost:
			n.isolate()
		case w.fault(PartitionMoved):
			n.view, n.viewUntil = w.someNodes(), w.now.Add(w.upTo(time.Second))
		}
		n.reassign(w.liveFor(n))
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

// liveFor is the live nodes as a node sees them. When the storm is over a node with the name of another has ended, as
// it does when it hears of that.
func (w *World) liveFor(n *node) []string {
	if w.storm && w.now < n.viewUntil {
		return n.view
	}
	if !w.storm && n.twin {
		return nil
	}
	var live []string
	for _, o := range w.nodes {
		if (o == n || o.frozen() == 0) && !slices.Contains(live, o.name) {
			live = append(live, o.name)
		}
	}
	return live
}

// someNodes is a part of the live nodes, perhaps none.
func (w *World) someNodes() []string {
	var some []string
	for _, n := range w.nodes {
		if w.rand.IntN(2) == 0 && !slices.Contains(some, n.name) {
			some = append(some, n.name)
		}
	}
	return some
}

// purgeMost is how many tasks are forgotten at a time. Which ones of more a store takes, with families among them, is its own.
func (w *World) purgeMost() int {
	if w.second != nil {
		return 1000
	}
	return 4
}

// purge lets owners forget the inputs and journals of what has ended, as they do
// all the time; rows stay for longer than the stream keeps its messages.
func (w *World) purge() {
	for _, n := range w.nodes {
		for p := range w.cfg.Partitions {
			f := n.feeds[p]
			if f == nil || f.epoch == 0 || n.loopOf(p).busy || w.rand.IntN(16) != 0 || w.during(w.refusing) || w.backs > 0 { // nothing is forgotten for long after SQL went back
				continue
			}
			if forgot, _ := w.tables().Purge(context.Background(), p, f.epoch, n.now().Add(-w.retain), 0, w.purgeMost()); forgot > 0 {
				w.happened[Purged] += forgot
			}
		}
	}
}
