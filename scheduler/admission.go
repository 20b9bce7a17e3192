package scheduler

import (
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Admission decides how many tasks the scheduler of one node may have in flight. All its shards share it.
//
// It is a window with additive increase and multiplicative decrease, driven by how long commit cycles take: a cycle
// that takes longer than the target means that more is in flight than the machine handles in good time, and that steps
// would spend their time in a queue here. Such a cycle halves the window, at most once per target, because cycles of
// several shards are slow for one cause. Every other cycle widens the window by a 256th of the ceiling, as long as more
// than half of the window is in use: what was not tried is not known to work. The window begins at its floor, a
// sixteenth of the ceiling. The ceiling is InFlight for each partition that the node owns.
//
// A full window stops the readers of the task streams, and nothing else: what has begun goes on, and what has not begun
// waits in the stream, where it is stored. Ingest refuses submissions earlier while [Admission.Overloaded].
//
// The zero value and nil admit everything. It is safe for concurrent use.
type Admission struct {
	ceiling int           // tasks of one partition
	target  time.Duration // of a commit cycle; negative: the window is always at its ceiling

	mu       sync.Mutex
	window   int // tasks of one partition; the node's window is this for each that it owns
	owned    int // partitions
	inFlight int // tasks of the node, and submissions that wait for a commit cycle
	halvedAt core.Instant
	onRoom   []func() // called when a full window has room again
}

const (
	floorPart = 16  // the floor is the ceiling divided by this
	widenPart = 256 // and so is the increase
)

// NewAdmission makes a window whose ceiling is so many tasks for each partition.
func NewAdmission(ceiling int, target time.Duration) *Admission {
	a := &Admission{ceiling: ceiling, target: target, window: ceiling}
	if target >= 0 {
		a.window = a.floor()
	}
	return a
}

func (a *Admission) floor() int { return max(1, a.ceiling/floorPart) }

// Window is how many tasks the node may have in flight now.
func (a *Admission) Window() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.window * a.owned
}

// InFlight is how many tasks the node has in flight, and submissions that wait for a commit cycle.
func (a *Admission) InFlight() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inFlight
}

// Overloaded reports whether the window is full although it is at its floor: the machine does not even handle the
// least that is always admitted in good time.
func (a *Admission) Overloaded() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.target >= 0 && a.window == a.floor() && a.owned > 0 && a.full()
}

// full reports whether no further task is admitted. The lock is held.
func (a *Admission) full() bool { return a.ceiling > 0 && a.inFlight >= a.window*a.owned }

// Room reports whether a further task is admitted.
func (a *Admission) Room() bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.full()
}

// cycle counts a commit cycle in that ended now.
func (a *Admission) cycle(now core.Instant, took time.Duration) {
	if a == nil || a.target < 0 {
		return
	}
	a.change(func() {
		switch {
		case took <= a.target:
			if 2*a.inFlight > a.window*a.owned {
				a.window = min(a.ceiling, a.window+max(1, a.ceiling/widenPart))
			}
		case a.halvedAt.Elapsed(now, a.target):
			a.window, a.halvedAt = max(a.floor(), a.window/2), now
		}
	})
}

// hold counts tasks in or, negative, out. An inbox may be locked only when they are counted in.
func (a *Admission) hold(tasks int) {
	if a != nil && tasks != 0 {
		a.change(func() { a.inFlight += tasks })
	}
}

// own counts partitions in or, negative, out.
func (a *Admission) own(partitions int) {
	if a != nil {
		a.change(func() { a.owned += partitions })
	}
}

// waiting reports whether readers may wait for a wider window: only further cycles widen it.
func (a *Admission) waiting() bool {
	if a == nil || a.target < 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.window < a.ceiling && a.full()
}

func (a *Admission) change(do func()) {
	a.mu.Lock()
	was := a.full()
	do()
	room := was && !a.full()
	onRoom := a.onRoom
	a.mu.Unlock()
	if room {
		for _, call := range onRoom {
			call()
		}
	}
}

// whenRoom has a function called whenever a full window has room again.
func (a *Admission) whenRoom(call func()) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onRoom = append(a.onRoom[:len(a.onRoom):len(a.onRoom)], call)
}
