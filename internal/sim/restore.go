package sim

import (
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// restoreLater lets SQL be restored, once, from a copy that is older than the
// streams and the services' books.
//
// What is promised then. The cursors are older with the copy, so the streams are
// read again from there: every accepted task comes back and ends, while the
// stream keeps it. What the services did in the lost time has the same keys, so
// what is done again has one effect, if a service does not refuse what it has
// done. Nothing that was sent before the restore is
// still on its way when numbers are given again, because the schedulers stand
// still for longer than a command lives. What is not promised: what the services
// did or undid in the lost time, and the new run does not come to again (a cancel
// is now read before its submission, a deadline has passed), is nowhere in SQL.
// Exactly such keys are left out of the check of the books.
func (w *World) restoreLater() {
	if !w.fault(SQLRestored) {
		return
	}
	at := w.upTo(w.cfg.Storm)
	w.after(at, func() {
		b := backup{at: w.now, store: w.Store.copy(), told: told{maps.Clone(w.told.last), maps.Clone(w.told.ends)}}
		w.after(1+w.upTo(w.cfg.Storm-at+1), func() { w.restore(b) })
	})
}

// backup is a copy of SQL, and what the event stream had stored at that time.
type backup struct {
	at    core.Instant
	store *MemStore
	told  told
}

// downtime is longer than a command, its answer or a late effect lives.
const downtime = time.Second

func (w *World) restore(b backup) {
	w.tell("", -1, "SQL is restored as it was at %s", w.stamp(b.at))
	w.era++
	w.down = w.now.Add(downtime)
	w.lostTime = [2]core.Instant{b.at, w.now}
	for _, n := range w.nodes {
		n.restart()
	}
	w.Store.restore(b.store)
	w.told = b.told
	clear(w.spoken)
	clear(w.sends)
	w.countLost()
	if w.streamAge > 1 {
		return // what a stream lost before the restore took with it is lost
	}
	for _, id := range w.ids {
		if w.lost[id] {
			w.wrong(w.partitionOf(id), id, "a restore lost a task that the stream should bring again")
		}
	}
}

// forgotten reports whether a key's do or undo was last sent in time that a
// restore has lost.
func (w *World) forgotten(key string) bool {
	lost := func(at core.Instant) bool { return at > w.lostTime[0] && at <= w.lostTime[1] }
	return w.era > 0 && (lost(w.doSent[key]) || lost(w.undoSent[key]))
}

// copy is a backup of the tables.
func (m *MemStore) copy() *MemStore {
	c := NewMemStore()
	c.plans = slices.Clone(m.plans)
	for p, st := range m.partitions {
		is := *st
		c.partitions[p] = &is
	}
	for _, rows := range m.byNumber {
		for _, r := range rows {
			is := *r
			is.journal, is.commits, is.ends = slices.Clip(r.journal), slices.Clip(r.commits), slices.Clip(r.ends)
			c.insert(&is)
		}
	}
	return c
}

// restore makes the tables what they were.
func (m *MemStore) restore(c *MemStore) {
	m.partitions, m.rows, m.ids, m.byNumber = c.partitions, c.rows, c.ids, c.byNumber
}
