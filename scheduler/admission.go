package scheduler

import (
	"math"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Admission decides how many tasks the scheduler of one node may have in flight. All its shards share it.
//
// It is a window with additive increase and multiplicative decrease, driven by how long commit cycles take: a cycle
// that takes longer than the target means that more is in flight than the machine handles in good time, and that steps
// would spend their time in a queue here. Such a cycle halves the window, at most once per target, because cycles of
// several shards are slow for one cause. Every other cycle widens the window by a 256th of the ceiling, a 16th of the
// window at most, as long as more than half of it is in use: what was not tried is not known to work. The window begins
// at its floor, a sixteenth of the ceiling. The ceiling is InFlight for each partition that the node owns.
//
// It is halved too while most answers of agents come a quarter of a second later than they usually do: then commands and answers
// queue on the way, for want of a processor, and what is begun besides would only queue longer. So it is down to a 256th of the
// ceiling: what a large machine does in less than a second is minutes of a small one's work. A slow cycle may be that of a
// slow disk, of which more in flight makes more. One agent that has become slow gives few answers, and stops no other.
//
// A full window stops the readers of the task streams: what has begun goes on, and what has not begun waits in the stream,
// where it is stored. Parked tasks of which nothing has begun are taken up until it is full twice: they came before what is in
// the stream, and when an agent is there again for which many have waited, they must not all wait here for a processor.
//
// The zero value and nil admit everything. It is safe for concurrent use.
type Admission struct {
	// ceiling is the most tasks for each partition that the node owns.
	ceiling int
	// target is how long a commit cycle may take; negative: the window stays at its ceiling.
	target time.Duration

	mu sync.Mutex
	// window is how many tasks the node may have in flight for each partition it owns: the node's window is
	// window × owned.
	window int
	// owned counts the partitions that the node owns.
	owned int
	// inFlight counts the node's tasks in flight, and the submissions that wait for a commit cycle.
	inFlight int
	halvedAt core.Instant
	// answers counts agents' answers since judgedAt, late those of them that came late. queued is whether
	// more than a tenth were late in the stretch before: the window is not widened then, for queuedFor.
	answers   int
	late      int
	judgedAt  core.Instant
	widenedAt core.Instant
	queued    bool
	// onRoom are called when a full window has room again, and again when a window that was full twice has.
	onRoom []func()
	// oldest is, by shard, when the message was stored that waits longest there, 0 where none waits; yielded is whether one
	// waits for an older one of another shard.
	oldest  []core.Instant
	yielded bool
}

const (
	floorPart = 16  // the floor is ceiling/floorPart
	leastPart = 256 // the floor while most answers are late is ceiling/leastPart: the machine has too few processors
	widenPart = 256 // the window grows by ceiling/widenPart,
	slowPart  = 16  // or by window/slowPart if that is less

	// lateAfter is how much later than usual an answer must come to be late. It is also the length of the stretches over
	// which late answers are counted. answersLeast is how many answers a stretch needs to say anything.
	lateAfter    = 250 * time.Millisecond
	answersLeast = 16
	// queuedFor is how long answers that came late keep the window from being widened when too few have come since to say more.
	queuedFor = 8 * lateAfter
	// widenEvery is the least time between two increases: their effect on answers shows a quarter of a second later.
	widenEvery = lateAfter / 4
)

// NewAdmission makes a window whose ceiling is so many tasks for each partition.
func NewAdmission(ceiling int, target time.Duration) *Admission {
	a := &Admission{ceiling: ceiling, target: target, window: ceiling}
	if target >= 0 {
		a.window = a.floor()
	}
	return a
}

// floor is the window below which slow commit cycles do not push it.
func (a *Admission) floor() int { return max(1, a.ceiling/floorPart) }

// least is the window below which late answers do not push it. It is lower than floor: see the type.
func (a *Admission) least() int { return max(1, a.ceiling/leastPart) }

// Window returns how many tasks the node may have in flight now.
func (a *Admission) Window() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.window * a.owned
}

// InFlight returns how many tasks the node has in flight, counting submissions that wait for a commit cycle.
func (a *Admission) InFlight() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inFlight
}

// ample reports whether less than half of the window is in flight.
func (a *Admission) ample() bool { return a == nil || a.InFlight() < a.Window()/2 }

// Overloaded reports whether the window is full although it is at its floor: the machine does not even handle the
// least that is always admitted in good time.
func (a *Admission) Overloaded() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.target >= 0 && a.window <= a.floor() && a.owned > 0 && a.full()
}

// full reports whether no further task is admitted. The lock is held.
func (a *Admission) full() bool { return a.ceiling > 0 && a.inFlight >= a.window*a.owned }

// takesUp returns how many more parked tasks that have not begun may be claimed: up to twice the window. The
// lock is held.
func (a *Admission) takesUp() int {
	if a.ceiling <= 0 || a.owned == 0 {
		return math.MaxInt
	}
	return max(0, 2*a.window*a.owned-a.inFlight)
}

// TakesUp returns how many more parked tasks that have not begun may be claimed; see the type for why it is
// twice the window.
func (a *Admission) TakesUp() int {
	if a == nil {
		return math.MaxInt
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.takesUp()
}

// Room reports whether one more submission may be taken up.
func (a *Admission) Room() bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.full()
}

// cycle adjusts the window after a commit cycle that ended now and took so long, and in which so many of the
// agents' answers were late.
func (a *Admission) cycle(now core.Instant, took time.Duration, answers, late int) {
	if a == nil || a.target < 0 {
		return
	}
	a.change(func() {
		a.answers, a.late = a.answers+answers, a.late+late
		most := false
		switch {
		case a.answers >= answersLeast && a.judgedAt.Elapsed(now, lateAfter):
			most, a.queued = 2*a.late > a.answers, 10*a.late > a.answers
			a.answers, a.late, a.judgedAt = 0, 0, now
		case a.judgedAt.Elapsed(now, queuedFor):
			a.queued = false
		}
		switch {
		case most:
			a.window, a.halvedAt = max(a.least(), a.window/2), now
		case took > a.target && a.halvedAt.Elapsed(now, a.target):
			a.window, a.halvedAt = max(min(a.floor(), a.window), a.window/2), now
		case took <= a.target && !a.queued && 2*a.inFlight > a.window*a.owned && a.widenedAt.Elapsed(now, widenEvery):
			a.widenedAt = now
			a.window = min(a.ceiling, a.window+max(1, min(a.ceiling/widenPart, a.window/slowPart)))
		}
	})
}

// charge counts tasks in; negative tasks are counted out. Counting out may call onRoom, which locks inboxes:
// the caller must not hold an inbox's lock then.
func (a *Admission) charge(tasks int) {
	if a != nil && tasks != 0 {
		a.change(func() { a.inFlight += tasks })
	}
}

// waits notes when the message was stored that waits longest in a shard for room in the window; 0: none does.
func (a *Admission) waits(shard int, oldest core.Instant) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.oldest[shard] = oldest
}

// yields reports whether a message of a shard that the stream stored then has to wait for an older one of another shard.
func (a *Admission) yields(shard int, stored core.Instant) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, oldest := range a.oldest {
		if other != shard && oldest != 0 && oldest < stored {
			a.yielded = true
			return true
		}
	}
	return false
}

// passOn lets messages that waited for an older one of another shard try again. The caller must not hold an inbox's lock.
func (a *Admission) passOn() {
	if a == nil {
		return
	}
	a.mu.Lock()
	yielded, onRoom := a.yielded, a.onRoom
	a.yielded = false
	a.mu.Unlock()
	if yielded {
		for _, call := range onRoom {
			call()
		}
	}
}

// own counts partitions that the node gains; negative ones it loses.
func (a *Admission) own(partitions int) {
	if a != nil {
		a.change(func() { a.owned += partitions })
	}
}

// waiting reports whether readers are stopped by a window that could still grow. Only a commit cycle widens
// it, so the committer runs cycles without mail meanwhile.
func (a *Admission) waiting() bool {
	if a == nil || a.target < 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.window < a.ceiling && a.full()
}

// change applies do under the lock and then, without it, calls onRoom if that made room.
func (a *Admission) change(do func()) {
	a.mu.Lock()
	was, twice := a.full(), a.takesUp() == 0
	do()
	room := was && !a.full() || twice && a.takesUp() > 0
	onRoom := a.onRoom
	a.mu.Unlock()
	if room {
		for _, call := range onRoom {
			call()
		}
	}
}

// enroll adds a shard, and returns its number, from 0: call is called each time a full window has room again.
func (a *Admission) enroll(call func()) (shard int) {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onRoom = append(a.onRoom[:len(a.onRoom):len(a.onRoom)], call)
	a.oldest = append(a.oldest, 0)
	return len(a.oldest) - 1
}
