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
	// flowsMax is how many tenants are told apart. Further ones share one flow, as in the scheduler.
	flowsMax = 1024
	// flowLeast is the rate, in submissions a second, below which a tenant is forgotten.
	flowLeast = 0.01
	// flowGulp is how many submissions a tenant may send at once beyond its part of a second.
	flowGulp = 16
	// reckonEvery is the interval of finding out who asks for more than its part.
	reckonEvery = 250 * time.Millisecond
)

// shares divides what begins among the tenants of this door. A tenant has a part by its weight; one that asks
// for less gets what it asks for, and what it leaves goes to the others (max-min fairness). The measure is
// what tenants send, not what is accepted: so a refusal changes no tenant's part. Only the door's goroutine
// calls reckon; all else is safe for concurrent use.
type shares struct {
	// label is the key of the label that names a tenant; empty: there are no tenants.
	label string
	// weights has those other than 1.
	weights map[string]int

	// mu guards flows.
	mu    sync.RWMutex
	flows map[string]*flow
	// overflow is the flow of the tenants beyond flowsMax.
	overflow *flow

	// at is when reckon ran last.
	at atomic.Int64
	// level is the part of a tenant of weight 1, in submissions a second, as the bits of a float64.
	level atomic.Uint64
	// begin is how many submissions of this door begin a second, as the bits of a float64.
	begin atomic.Uint64
	// under counts the tenants that ask for no more than their part.
	under atomic.Int64
	// over says that some ask for more.
	over atomic.Bool
	// given is the time that submissions of tenants within their part have, while others ask for more.
	given timeGiven
	// limit is the longest wait with which a tenant that asks for more is let in.
	limit atomic.Int64
}

// flow is what one tenant sends.
type flow struct {
	weight float64
	// seen counts submissions since reckon ran last.
	seen atomic.Int64
	// over says that it asks for more than its part.
	over atomic.Bool
	// rate is how many submissions a second it sends, averaged. Only reckon uses it.
	rate float64
	// retryQueue is for those that are refused because of its part.
	retryQueue virtualQueue
}

func newShares(label string, weights map[string]int) *shares {
	s := &shares{label: label, weights: weights, flows: map[string]*flow{}, overflow: &flow{weight: 1}}
	s.limit.Store(int64(standTarget))
	return s
}

// of returns the flow of a submission; nil: tenants are not told apart.
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

// count counts a submission, whether or not it is accepted. One that begins later does not count: it is not
// in the queue until then.
func (fl *flow) count(f *submit.Form) {
	if fl != nil && f.StartAt == "" {
		fl.seen.Add(1)
	}
}

// What a tenant's share means for a submission.
const (
	shareless = iota // it does not: no tenant asks for more than its part, or all do
	within           // it asks for no more than its part, and others do
	beyond           // it asks for more, and others do not
)

// judge says what a tenant's share means for a submission now. It also counts what the tenant has sent since
// reckon ran last.
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

// part is a tenant's part by weight, in submissions a second.
func (s *shares) part(fl *flow) float64 { return fl.weight * math.Float64frombits(s.level.Load()) }

// most is the longest wait with which a tenant that asks for more than its part is let in. It follows the
// time that the others' submissions have.
func (s *shares) most() time.Duration { return time.Duration(s.limit.Load()) }

// rate is how many submissions of this door begin a second.
func (s *shares) rate() float64 { return math.Float64frombits(s.begin.Load()) }

// due reports whether it is time to call reckon.
func (s *shares) due(now core.Instant) bool {
	return s.label != "" && core.Instant(s.at.Load()).Elapsed(now, reckonEvery)
}

// reckon finds out who asks for more than its part when so many submissions a second begin. It averages what
// each tenant sent, and forgets those that hardly send anything.
func (s *shares) reckon(now core.Instant, rate float64) {
	took := max(reckonEvery, now.Sub(core.Instant(s.at.Load()))) // less, if the clock was set back
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

// levelOf is the part of a tenant of weight 1: what those that ask for less leave, divided by the weight of
// the others. If nobody asks for more, it is what one more tenant could have.
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
