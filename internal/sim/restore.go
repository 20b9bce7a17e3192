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
// done. What the services did or undid in the lost time and the new run does not come
// to again is undone by key: see went_back.go, which says what is left out.
func (w *World) restoreLater() {
	if !w.fault(SQLRestored) {
		return
	}
	at := w.upTo(w.cfg.Storm)
	w.after(at, func() {
		b := w.backup()
		w.after(1+w.upTo(w.cfg.Storm-at+1), func() {
			if !w.abandoned(b.at) {
				w.restore(b)
			}
		})
	})
}

// backup is a copy of SQL, and what the event stream had stored at that time.
type backup struct {
	at        core.Instant
	store     *MemStore
	writes    int // to the second store until then
	pauses    []core.Pause
	astray    map[int]bool
	published published
}

// downtime is longer than a command, its answer or a late effect lives.
const downtime = time.Second

func (w *World) restore(b backup) {
	w.tell("", -1, "SQL is restored as it was at %s", w.stamp(b.at))
	w.era++
	w.down = w.now.Add(downtime)
	for _, n := range w.nodes {
		n.restart()
	}
	w.replaceStore(b)
	w.countLost()
	if len(w.forgot.streams)+len(w.trimmed) > 0 {
		return // what a stream lost before the restore took with it is lost
	}
	for _, id := range w.ids {
		if w.lost[id] {
			w.wrong(w.partitionOf(id), id, "a restore lost a task that the stream should bring again")
		}
	}
}

// Copy is a backup of the tables, as a standby or a dump has it.
func (m *MemStore) Copy() *MemStore {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.copy()
}

// Replace puts a copy in the tables' place, as a failover or a restore does.
func (m *MemStore) Replace(c *MemStore) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restore(c)
}

// copy is a backup of the tables.
func (m *MemStore) copy() *MemStore {
	c := NewMemStore()
	c.plans = slices.Clone(m.plans)
	c.breakers, c.reports = maps.Clone(m.breakers), maps.Clone(m.reports)
	c.limits, c.grants, c.counted = m.limits, maps.Clone(m.grants), maps.Clone(m.counted)
	for p, st := range m.partitions {
		is := *st
		c.partitions[p] = &is
	}
	for _, rows := range m.byNumber {
		for _, r := range rows {
			is := *r
			is.journal, is.commits, is.ends = slices.Clip(r.journal), slices.Clip(r.commits), slices.Clip(r.ends)
			is.referee = r.referee.clone()
			c.insert(&is)
		}
	}
	return c
}

// restore makes the tables what they were.
func (m *MemStore) restore(c *MemStore) {
	m.partitions, m.rows, m.ids, m.byNumber = c.partitions, c.rows, c.ids, c.byNumber
	m.breakers, m.reports, m.limits, m.grants, m.counted = c.breakers, c.reports, c.limits, c.grants, c.counted
}
