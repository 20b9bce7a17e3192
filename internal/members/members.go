// Package members keeps which nodes live, by what a watch of their leases says. It has no connection and no goroutine: who
// watches tells it, and so does the simulator.
package members

import (
	"slices"
	"time"
)

// Members is what a watcher knows of the nodes.
type Members struct {
	ttl     time.Duration
	now     func() time.Time
	seen    map[string]time.Time // when the lease was last renewed, as seen here
	found   map[string]time.Time // the same by a watch that has not yet reported all; nil: it has
	heard   time.Time            // when the watch last said anything, or was begun
	away    int                  // ticks until another watch begins, because the server was away
	primed  bool                 // a watch has reported all present nodes
	changed bool
}

// New is what is known when the first watch begins: nothing. ttl is the life of a lease; 0: it has no end. now is the clock.
func New(ttl time.Duration, now func() time.Time) *Members {
	m := &Members{ttl: ttl, now: now}
	m.Restart()
	return m
}

// All notes that a watch has reported all present nodes.
func (m *Members) All() {
	m.heard = m.now()
	same := m.primed && len(m.found) == len(m.seen)
	for node := range m.found {
		_, known := m.seen[node]
		same = same && known
	}
	m.seen, m.found, m.primed = m.found, nil, true
	m.changed = m.changed || !same
}

// Hear takes one word of the watch: a node's lease was made or renewed (put), or has ended.
func (m *Members) Hear(node string, put bool) {
	m.heard = m.now()
	to := m.seen
	if m.found != nil {
		to = m.found
	}
	_, known := to[node]
	if put {
		to[node] = m.heard
	} else {
		delete(to, node)
	}
	m.changed = m.changed || m.found == nil && known != put
}

// Restart notes that a watch has begun: it reports all present nodes first.
func (m *Members) Restart() {
	m.found, m.heard, m.away = map[string]time.Time{}, m.now(), 0
}

// Mute is asked every third of a lease. It reports whether another watch must begin: the server was away, or the
// watch has said nothing for the life of a lease. Without a server it is not the
// watch's fault. A server that is back is given a third of a lease, in which all
// live nodes renew theirs: without it they would seem to have gone for a moment.
func (m *Members) Mute(connected bool) bool {
	switch {
	case !connected:
		m.away = 2
		return false
	case m.away > 0:
		m.away--
		return m.away == 0
	}
	return m.ttl > 0 && m.now().Sub(m.heard) > m.ttl
}

// Prune drops nodes that were not renewed for two lives of a lease, by a watch
// that is heard: without a server, and without a watch, nothing is renewed and
// nothing dropped.
func (m *Members) Prune() {
	now := m.now()
	for node, seen := range m.seen {
		if m.away > 0 || m.found != nil {
			m.seen[node] = now
		} else if m.ttl > 0 && now.Sub(seen) > 2*m.ttl {
			delete(m.seen, node)
			m.changed = true
		}
	}
}

// Take returns the names of the live nodes, in order, when they have changed since it last did.
func (m *Members) Take() ([]string, bool) {
	if m.found != nil || !m.changed {
		return nil, false
	}
	m.changed = false
	names := make([]string, 0, len(m.seen))
	for node := range m.seen {
		names = append(names, node)
	}
	slices.Sort(names)
	return names, true
}
