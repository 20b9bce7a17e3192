package drone

import (
	"math"
	"time"
)

// Every draw is a hash of what it is about: seed, task, step, round, direction,
// attempt. So the same call meets the same fate in every run, in whatever order
// the scheduler happens to make the calls.

// Salts keep draws about different things apart; odd, with mixed bits.
const (
	saltStep      = 0x9e3779b97f4a7c15
	saltRound     = 0xc2b2ae3d27d4eb4f
	saltAttempt   = 0x165667b19e3779f9
	saltRepeat    = 0x27d4eb2f165667c5
	saltUndo      = 0xd6e8feb86659fd93
	saltGenerator = 0xa0761d6478bd642f
	saltSuspended = 0xe7037ed1a0b428db
	saltPlant     = 0x8ebc6af09c88c6e3
	saltSerial    = 0x589965cc75374cc3
)

// mix is the finalizer of splitmix64: every bit of the argument reaches every
// bit of the result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// hashText is FNV-1a. hash/fnv would do, at the price of an allocation per call.
func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// unit maps a hash to [0,1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// Latency is a lognormal distribution of how long a service takes.
type Latency struct {
	P50, P95 time.Duration
}

// quantile95 is the standard normal's 95 % quantile.
const quantile95 = 1.6448536269514722

// At returns the latency at quantile u, which lies in [0,1).
func (l Latency) At(u float64) time.Duration {
	if l.P50 <= 0 {
		return 0
	}
	// The ends of the scale are infinitely far away; six sigma are far enough.
	u = min(max(u, 1e-9), 1-1e-9)
	z := math.Sqrt2 * math.Erfinv(2*u-1)
	sigma := math.Log(float64(l.P95)/float64(l.P50)) / quantile95
	return time.Duration(float64(l.P50) * math.Exp(sigma*z))
}

// latencies are the published p50 and p95 of the five calls.
var latencies = [StepCount]Latency{
	StepAccount:   {P50: 5 * time.Millisecond, P95: 8 * time.Millisecond},
	StepPackage:   {P50: 12 * time.Millisecond, P95: 17 * time.Millisecond},
	StepTransport: {P50: 8 * time.Millisecond, P95: 12 * time.Millisecond},
	StepDrone:     {P50: 21 * time.Millisecond, P95: 41 * time.Millisecond},
	StepDelivery:  {P50: 37 * time.Millisecond, P95: 57 * time.Millisecond},
}

// LatencyOf returns the distribution of a step's service at scale 1.
func LatencyOf(s Step) Latency { return latencies[s] }

// fate is what a call is going to meet.
type fate struct {
	fault   fault
	mode    uint64  // which variant of the fault
	late    float64 // in [0,1): how late a late effect is
	latency time.Duration
}

// draw decides the fate of one call. repeat is how often the same attempt was
// made before: an agent that retries inside its time gets a fresh draw.
func (s *Service) draw(c *call, repeat uint64) fate {
	base := s.seed ^ c.hash
	base += uint64(c.step+1)*saltStep + uint64(c.round)*saltRound + uint64(c.Attempt)*saltAttempt + repeat*saltRepeat
	if c.undo {
		base += saltUndo
	}
	d := dice{state: mix(base)}
	var f fate
	if faults := s.faults.Load(); faults.perCall() {
		f.fault = faults.pick(unit(d.next()))
		f.mode = d.next() >> 32
		f.late = unit(d.next())
	}
	if s.scale > 0 {
		f.latency = time.Duration(float64(s.latency.At(unit(d.next()))) * s.scale)
	}
	return f
}

// FirstLatencies is how long the five services take for a task whose every call
// is a first attempt and meets no fault: what no system can be faster than.
func (s *Services) FirstLatencies(task string) time.Duration {
	sum, hash := time.Duration(0), hashText(task)
	for i := range s.each {
		each := &s.each[i]
		sum += each.draw(&call{Call: Call{Task: task, Attempt: 1}, step: each.step, hash: hash}, 0).latency
	}
	return sum
}
