package drone

import (
	"cmp"
	"sync"
	"time"
)

// recent remembers where in the stream this process stored the ids of the last
// while, for a caller who asks without the position. Two generations take
// turns: what it forgets is between one and two spans old, or was pushed out by
// more ids than it may hold.
type recent struct {
	mu       sync.Mutex
	new, old map[string]string // id → position
	turned   time.Time
}

const (
	recentSpan = 30 * time.Second
	recentMax  = 100_000 // ids per generation
)

func (r *recent) add(id, position string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	if r.new == nil {
		r.new = make(map[string]string)
	}
	r.new[id] = position
}

// position is empty for an id that is not remembered.
func (r *recent) position(id string, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	return cmp.Or(r.new[id], r.old[id])
}

// turn begins a new generation when the present one is full or old enough.
func (r *recent) turn(now time.Time) {
	age := now.Sub(r.turned)
	switch {
	case age >= 2*recentSpan:
		r.new, r.old, r.turned = nil, nil, now
	case age >= recentSpan || len(r.new) >= recentMax:
		r.new, r.old, r.turned = nil, r.new, now
	}
}
