package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// streamsCopy is a copy of what NATS keeps: streams and evidence.
type streamsCopy struct {
	at               core.Instant
	tasks, controls  []message
	evidence, former map[int]core.Evidence
}

// bothLost is what SQL and streams do not know that were restored together, each from a copy of its own.
type bothLost struct {
	held  map[string]bool // ids that a row or the stream has: all others are new when they are submitted again
	blind map[int]bool    // partitions of whose commits the evidence has none that SQL lacks
	// shown are the last commits in SQL's copy of partitions of which an owner had recorded a later one; empty when the evidence
	// has been lost since. What a former owner has recorded may be overwritten by an older one's that is late.
	shown map[int]int64
}

// unknown reports whether neither copy says that a task of a partition had more commits than SQL has.
func (b *bothLost) unknown(p int, id string) bool { return b.blind[p] || !b.held[id] }

// bothLater lets SQL and the streams be lost together, and restored from copies of different times; what is lost then is
// submitted again, most of it.
//
// What is promised: where the streams' copy is the later one, its evidence shows that SQL went back, so what the copy of
// either has is as after a restore of SQL alone. Where SQL's is, nothing shows it: what ran after it stands, where the task
// does not come to it again. So does what ran of tasks that neither has, when they are submitted again.
func (w *World) bothLater() {
	r := rand.New(rand.NewPCG(w.cfg.Seed, 4)) // of its own, so that other worlds are drawn as they would be without
	if !w.cfg.Both && r.Float64() >= kinds[BothRestored].p {
		return
	}
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	sqlAt, streamsAt := upTo(w.cfg.Storm), upTo(w.cfg.Storm)
	last := max(sqlAt, streamsAt)
	var backs, moved int
	var b backup
	var c streamsCopy
	w.after(min(sqlAt, streamsAt), func() { backs, moved = w.backs, len(w.forgot.streams) })
	w.after(sqlAt, func() { b = w.backup() })
	w.after(streamsAt, func() {
		c = streamsCopy{w.now, slices.Clone(w.stream), slices.Clone(w.controls), maps.Clone(w.evidence), maps.Clone(w.former)}
	})
	w.after(last+1+upTo(w.cfg.Storm-last+1), func() {
		if w.backs != backs || len(w.forgot.streams) != moved {
			return // copies of what is no more
		}
		w.note(BothRestored)
		w.tell("", -1, "SQL is restored as of %s, the streams as of %s", w.stamp(b.at), w.stamp(c.at))
		if w.down = max(w.down, w.now.Add(upTo(downtime))); r.IntN(2) == 0 {
			w.era++
			w.down = w.now.Add(downtime)
		}
		for _, n := range w.nodes {
			n.restart()
		}
		w.replaceBoth(b, c)
		for _, id := range w.ids {
			if w.lost[id] && r.IntN(8) > 0 {
				w.after(upTo(2*time.Second), w.newClient(id).submit)
			}
		}
	})
}

// replaceBoth puts copies in the places of SQL and the streams.
func (w *World) replaceBoth(b backup, c streamsCopy) {
	is := &bothLost{held: map[string]bool{}, blind: map[int]bool{}, shown: map[int]int64{}}
	for _, r := range b.store.rows {
		is.held[r.task.ID] = true
	}
	for i := range c.tasks {
		for k := range c.tasks[i].subs {
			is.held[c.tasks[i].subs[k].ID] = is.held[c.tasks[i].subs[k].ID] || !c.tasks[i].gone
		}
	}
	for p := range w.cfg.Partitions {
		st := b.store.partition(p)
		if core.WentBack(st.Epoch, st.LastCommit, c.evidence[p]) {
			is.shown[p] = st.LastCommit
		} else if !core.WentBack(st.Epoch, st.LastCommit, c.former[p]) {
			is.blind[p] = true
		}
	}
	w.replaceStore(b)
	w.forgot.times[len(w.forgot.times)-1].both = is
	w.loseAsks(len(c.controls))
	w.stream, w.controls, w.evidence, w.former = c.tasks, c.controls, c.evidence, c.former
	if c.at < b.at {
		for p := range w.cfg.Partitions {
			w.astray[p] = true
		}
	}
	maps.DeleteFunc(w.trimmed, func(_ string, at core.Instant) bool { return at > c.at })
	w.forgot.streams = append(w.forgot.streams, w.now)
	w.countLost()
}

// checkBoth: an owner of each partition has found by the evidence that SQL went back.
func (w *World) checkBoth() {
	for _, lost := range w.forgot.times {
		if lost.both == nil {
			continue
		}
		for p := range w.cfg.Partitions {
			was, shown := lost.both.shown[p]
			if shown && w.Store.partition(p).LastCommit != was && w.noticedAfter(p, lost.to) == 0 {
				w.wrong(p, "", "SQL and streams were restored at %s, and no owner of partition %d has found that SQL went back", w.stamp(lost.to), p)
			}
		}
	}
}
