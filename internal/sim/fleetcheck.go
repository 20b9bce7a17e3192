package sim

import (
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// brokenMost bounds how much is told of what must not be.
const brokenMost = 20

func (f *Fleet) broken(format string, args ...any) {
	if len(f.rep.Broken) < brokenMost {
		f.rep.Broken = append(f.rep.Broken, fmt.Sprintf("at %s: ", f.w.now.Sub(f.began))+fmt.Sprintf(format, args...))
	}
}

// readBy notes that a node reads a partition from now on.
func (f *Fleet) readBy(p int, r *fleetRead) {
	f.gap(p)
	f.reads[p] = r
	if f.hadBy[p] != r.n.name {
		f.hadBy[p] = r.n.name
		if f.measure {
			f.rep.Moved++
		}
	}
	if !r.n.connected() {
		f.gapBegins(p)
	}
	f.progress()
}

// unreads notes that none reads a partition now.
func (f *Fleet) unreads(p int) {
	f.reads[p] = nil
	f.gapBegins(p)
}

func (f *Fleet) gapBegins(p int) {
	if f.since[p] == 0 {
		f.since[p] = f.w.now
	}
}

// gap notes for how long none has read a partition.
func (f *Fleet) gap(p int) {
	since := f.since[p]
	if since == 0 && f.reads[p] == nil {
		since = f.began // since the beginning
	}
	if since != 0 && f.measure {
		f.unread[p] = max(f.unread[p], f.w.now.Sub(max(since, f.began)))
	}
	f.since[p] = 0
}

// progress notes when all was as it should be for the first time since it was not.
func (f *Fleet) progress() {
	if f.measure {
		f.rep.Settled = f.w.now.Sub(f.began)
	}
}

// settled reports whether every partition is read by the node that it falls to, and every node that is up is live.
func (f *Fleet) settled() bool {
	for _, n := range f.nodes {
		if n.up && (f.leases[n.name] == nil || n.cut) {
			return false
		}
	}
	return len(f.live) > 0 && f.unsettled() == 0
}

func (f *Fleet) unsettled() (n int) {
	for p, r := range f.reads {
		if r == nil || r.n.name != f.falls[p] {
			n++
		}
	}
	return n
}

// check looks that a partition is held by one node at most under the epoch that it has now, and that no node holds what
// neither falls to it nor was read by it.
func (f *Fleet) check() {
	owner := make([]*fleetNode, f.cfg.Partitions)
	for _, n := range f.nodes {
		if !n.up {
			continue
		}
		held := 0
		for p := range f.cfg.Partitions {
			epoch, ok := n.loops[p%len(n.loops)].c.Shard().Owns(p)
			if !ok || epoch != f.w.Store.partition(p).Epoch {
				continue
			}
			if owner[p] != nil {
				f.broken("partition %d is held by %s and %s under epoch %d", p, owner[p].name, n.name, epoch)
			}
			owner[p] = n
			held++
		}
		if f.measure {
			f.rep.Peak = max(f.rep.Peak, held)
		}
	}
}

// untilEach lets things happen until a time, or until over says so; it is asked every 20 ms.
func (w *World) untilEach(limit core.Instant, over func() bool) {
	for look := w.now; len(w.events) > 0 && w.events[0].at <= limit; w.step() {
		if at := w.events[0].at; at >= look {
			w.now = max(w.now, at)
			if over() {
				return
			}
			look = at.Add(20 * time.Millisecond)
		}
	}
}
