package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"duly.dev/duly/internal/core"
)

// machine is what everything in a world of overload runs on: cores that all that wants to run shares by weight, none of it
// faster than one core. Its speed is one on average of each minute, and varies within it.
type machine struct {
	w       *World
	cores   float64
	weather *weather
	classes [2]jobs // what runs: that of the door, and all else
	seq     int
	at      core.Instant // up to which all has been served
	alarm   int          // the number of the newest look
	used    float64      // nanoseconds at mean speed that were used in all
	slow    float64      // how much more than it did at first costs what begins now and is not the door's
}

// jobs are of one weight: each is served as much as any other.
type jobs struct {
	weight float64
	run    eventHeap    // by what served comes to when one is done
	served core.Instant // nanoseconds at mean speed that each has had since the machine began
}

// What runs.
const (
	doorJobs = iota
	otherJobs
)

func newMachine(w *World, cores, doorWeight float64, weather *weather) *machine {
	m := &machine{w: w, cores: cores, weather: weather, at: w.now, slow: 1}
	m.classes[doorJobs].weight, m.classes[otherJobs].weight = doorWeight, 1
	m.turn()
	return m
}

// turn lets the weather change at its times, for as long as the world runs.
func (m *machine) turn() {
	m.w.after(weatherPiece, func() {
		m.advance()
		m.look()
		m.turn()
	})
}

// rates are how many nanoseconds at mean speed each of what runs has in a microsecond, now: its share by weight, or one core
// and what is over to the others.
func (m *machine) rates() (all [2]float64) {
	heavy, light := &m.classes[doorJobs], &m.classes[otherJobs]
	n, k := float64(len(heavy.run)), float64(len(light.run))
	share := m.cores / max(1, heavy.weight*n+k)
	all[doorJobs] = min(1, heavy.weight*share)
	all[otherJobs] = min(1, (m.cores-n*all[doorJobs])/max(1, k))
	for i := range all {
		all[i] *= 1000 * m.weather.speed(m.at.Sub(began))
	}
	return all
}

// advance serves up to now. Since the last call neither what runs nor the weather has changed.
func (m *machine) advance() {
	for i, rate := range m.rates() {
		each := core.Instant(float64(m.w.now-m.at) * rate)
		m.classes[i].served += each
		m.used += float64(each) * float64(len(m.classes[i].run))
	}
	m.at = m.w.now
}

// run takes a processor for so long at mean speed, and then does something.
func (m *machine) run(class int, cost time.Duration, done func()) {
	m.advance()
	m.seq++
	c := &m.classes[class]
	if class != doorJobs {
		cost = time.Duration(float64(cost) * m.slow)
	}
	c.run.push(event{c.served + core.Instant(cost), m.seq, done})
	m.look()
}

// look ends what is done, and comes again when the next is: a microsecond late rather than early.
func (m *machine) look() {
	for i := range m.classes {
		for c := &m.classes[i]; len(c.run) > 0 && c.run[0].at <= c.served; {
			m.w.after(0, c.run.pop().do)
		}
	}
	m.alarm++
	next := math.Inf(1)
	for i, rate := range m.rates() {
		if c := &m.classes[i]; len(c.run) > 0 {
			next = min(next, math.Ceil(float64(c.run[0].at-c.served)/rate))
		}
	}
	if math.IsInf(next, 1) {
		return
	}
	alarm := m.alarm
	m.w.after(time.Duration(next)*time.Microsecond, func() {
		if m.alarm == alarm {
			m.advance()
			m.look()
		}
	})
}

// use is run for a proc, which waits until it is done.
func (m *machine) use(cost time.Duration) {
	m.w.await(func(resume func()) { m.run(otherJobs, cost, resume) })
}

// thread does one thing after the other, each at the cost of the machine.
type thread struct {
	m     *machine
	class int
	queue []act
	head  int
	busy  bool
}

// act is one thing that a thread does.
type act struct {
	cost time.Duration
	then func()
}

// do lets the thread do something when it has done all before it.
func (t *thread) do(cost time.Duration, then func()) {
	t.queue = append(t.queue, act{cost, then})
	t.next()
}

// waits is how many things wait for the thread, or are under way.
func (t *thread) waits() int {
	n := len(t.queue) - t.head
	if t.busy {
		n++
	}
	return n
}

func (t *thread) next() {
	if t.busy || t.head == len(t.queue) {
		return
	}
	j := t.queue[t.head]
	t.queue[t.head] = act{}
	if t.head++; t.head == len(t.queue) {
		t.queue, t.head = t.queue[:0], 0
	}
	t.busy = true
	t.m.run(t.class, j.cost, func() {
		t.busy = false
		j.then()
		t.next()
	})
}

const (
	weatherPiece  = 5 * time.Second
	weatherPieces = int(time.Minute / weatherPiece)
	weatherLeast  = 0.2 // how far the extremes of a minute are apart, of the mean
	weatherMost   = 0.4
)

// weather is how fast a machine is from one time to the next.
type weather struct {
	rand    *rand.Rand // nil: it is the same all the time
	minutes [][weatherPieces]float64
}

// speed is how fast the machine is so long after the beginning.
func (y *weather) speed(at time.Duration) float64 {
	if y.rand == nil {
		return 1
	}
	minute := int(at / time.Minute)
	for len(y.minutes) <= minute {
		y.minutes = append(y.minutes, y.draw())
	}
	return y.minutes[minute][int(at%time.Minute/weatherPiece)]
}

// draw is the weather of a minute: steps of equal size between two extremes, in any order.
func (y *weather) draw() (pieces [weatherPieces]float64) {
	apart := weatherLeast + (weatherMost-weatherLeast)*y.rand.Float64()
	for i := range pieces {
		pieces[i] = 1 + apart*(float64(i)/float64(weatherPieces-1)-0.5)
	}
	y.rand.Shuffle(len(pieces), func(i, k int) { pieces[i], pieces[k] = pieces[k], pieces[i] })
	return pieces
}
