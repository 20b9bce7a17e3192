package ingest

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

const (
	// flowsMax bounds the tenants that are told apart; those beyond share one flow, as in the scheduler.
	flowsMax = 1024
	// flowLeast is how many submissions a second a tenant asks for at least, or it is forgotten.
	flowLeast = 0.01
	// flowGulp is how many submissions a tenant may send at once, beside its part of a second, whatever it asked for before.
	flowGulp = 16
	// reckonEvery is how often it is reckoned who asks for more than its part.
	reckonEvery = 250 * time.Millisecond
)

// shares are what tenants ask for at this door, and what is each one's part of what begins, by weight: a tenant that asks for
// less has what it asks for, and what it leaves is the others'. It is max-min fairness by what is offered, so that what a
// door refuses changes no tenant's part. Only the door's goroutine reckons; all else is safe for concurrent use.
type shares struct {
	label   string         // its key; empty: there are no tenants
	weights map[string]int // of those that have not 1

	mu       sync.RWMutex // of the map
	flows    map[string]*flow
	overflow *flow // of those for which there is no room

	at    atomic.Int64  // of the last reckoning
	level atomic.Uint64 // the part of a weight of one, in submissions a second: bits of a float
	begin atomic.Uint64 // how many of this door begin in all, likewise
	under atomic.Int64  // tenants that ask for no more than their parts
	over  atomic.Bool   // there are others
	given timeGiven     // to those who ask for no more, while others do
	limit atomic.Int64  // of the wait of those who ask for more
}

// flow is one tenant.
type flow struct {
	weight     float64
	seen       atomic.Int64 // submissions since the last reckoning
	over       atomic.Bool  // it asks for more than its part
	rate       float64      // submissions a second, averaged; of the reckoning
	retryQueue virtualQueue // of those that are refused because of it
}

func newShares(label string, weights map[string]int) *shares {
	s := &shares{label: label, weights: weights, flows: map[string]*flow{}, overflow: &flow{weight: 1}}
	s.limit.Store(int64(standTarget))
	return s
}

// of is the flow of a submission; nil: no tenants are told apart.
func (s *shares) of(f *submit.Form) *flow {
	if s.label == "" {
		return nil
	}
	name := core.TenantIn(f.Labels, s.label)
	s.mu.RLock()
	is, full := s.flows[name], len(s.flows) >= flowsMax
	s.mu.RUnlock()
	switch {
	case is != nil:
		return is
	case full:
		return s.overflow
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if is = s.flows[name]; is == nil && len(s.flows) < flowsMax {
		is = &flow{weight: float64(max(1, s.weights[name]))}
		s.flows[strings.Clone(name)] = is
	}
	return cmp.Or(is, s.overflow)
}

// count notes a submission, whatever becomes of it. One that begins later is not in the queue until then.
func (fl *flow) count(f *submit.Form) {
	if fl != nil && f.StartAt == "" {
		fl.seen.Add(1)
	}
}

// The ways in which the share of a tenant decides.
const (
	shareless = iota // it does not: no tenant asks for more than its part, or all do
	within           // it asks for no more than its part, and others do
	beyond           // it asks for more, and others do not
)

// judge says how a tenant's share decides. What it has asked for since the last reckoning counts too.
func (s *shares) judge(now core.Instant, fl *flow) int {
	if fl == nil || s.rate() == 0 {
		return shareless
	}
	over, under := fl.over.Load(), s.under.Load()
	if !over {
		under--
		since := now.Sub(core.Instant(s.at.Load())) + time.Second
		over = float64(fl.seen.Load()) > flowGulp+core.Weather*s.part(fl)*since.Seconds()
	}
	switch {
	case over && under > 0:
		return beyond
	case !over && s.over.Load():
		return within
	}
	return shareless
}

// part is what is a tenant's by weight, in submissions a second.
func (s *shares) part(fl *flow) float64 { return fl.weight * math.Float64frombits(s.level.Load()) }

// most is the longest wait for which who asks for more than its part is taken: by the time that others have.
func (s *shares) most() time.Duration { return time.Duration(s.limit.Load()) }

// rate is what all have, in submissions a second.
func (s *shares) rate() float64 { return math.Float64frombits(s.begin.Load()) }

// due reports whether it is to be reckoned who asks for more than its part.
func (s *shares) due(now core.Instant) bool {
	return s.label != "" && now.Sub(core.Instant(s.at.Load())) >= reckonEvery
}

// reckon updates who asks for more than its part of so many submissions a second.
func (s *shares) reckon(now core.Instant, rate float64) {
	took := now.Sub(core.Instant(s.at.Load()))
	s.at.Store(int64(now))
	by := averageWeight(took)
	var all []*flow
	learn := func(fl *flow) (gone bool) {
		fl.rate += by * (float64(fl.seen.Swap(0))/took.Seconds() - fl.rate)
		if fl.rate < flowLeast {
			return true
		}
		all = append(all, fl)
		return false
	}
	learn(s.overflow)
	s.mu.Lock()
	for name, fl := range s.flows {
		if learn(fl) {
			delete(s.flows, name)
		}
	}
	s.mu.Unlock()
	level := levelOf(all, rate)
	under, over := 0, false
	for _, fl := range all {
		is := fl.rate > core.Weather*level*fl.weight
		if fl.over.Store(is); !is {
			under++
		}
		over = over || is
	}
	s.level.Store(math.Float64bits(level))
	s.begin.Store(math.Float64bits(rate))
	s.under.Store(int64(under))
	s.over.Store(over)
	s.limit.Store(int64(s.given.target(took)))
}

// levelOf is the part of a weight of one: what is left to tenants that ask for more, by weight. Where none does, it is what one
// more could have.
func levelOf(all []*flow, rate float64) (level float64) {
	slices.SortFunc(all, func(a, b *flow) int { return cmp.Compare(a.rate/a.weight, b.rate/b.weight) })
	weight := 0.0
	for _, fl := range all {
		weight += fl.weight
	}
	for _, fl := range all {
		if fl.rate/fl.weight > rate/weight {
			return rate / weight
		}
		level = fl.rate / fl.weight
		rate, weight = rate-fl.rate, weight-fl.weight
	}
	return level + max(0, rate)
}

// perSecond is a rate as a person reads it.
func perSecond(rate float64) string {
	if rate >= 10 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}
