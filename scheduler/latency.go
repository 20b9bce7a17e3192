package scheduler

import (
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// LatencyBounds are the bounds of Latency, in rising order.
var LatencyBounds = [...]time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 10 * time.Second,
	time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// Latency is how long tasks or steps took.
type Latency struct {
	Counts [len(LatencyBounds) + 1]int64 // by the first bound that is not less; the last: longer than all
	Sum    time.Duration
}

// latency counts durations by LatencyBounds. One goroutine adds; any may read.
type latency struct {
	counts [len(LatencyBounds) + 1]atomic.Int64
	sum    atomic.Int64
}

func (l *latency) add(took time.Duration) {
	i := 0
	for i < len(LatencyBounds) && took > LatencyBounds[i] {
		i++
	}
	l.counts[i].Add(1)
	l.sum.Add(int64(took))
}

func (l *latency) read() Latency {
	r := Latency{Sum: time.Duration(l.sum.Load())}
	for i := range l.counts {
		r.Counts[i] = l.counts[i].Load()
	}
	return r
}

// countedMax bounds how many types, pairs of type and agent, and agents a shard has counters of their own for, so that
// the number of metrics is bounded. Whatever comes later shares one counter, which is named countedOther.
const (
	countedMax   = 64
	countedOther = "other"
)

// apart is a bounded map of counters: the first countedMax keys have one each, all others share one. The zero value is
// ready; it is safe for concurrent use.
type apart[K comparable, V any] struct {
	mu    sync.Mutex
	all   map[K]*V
	other V
}

// of returns the counter of a key, which may be the shared one.
func (a *apart[K, V]) of(key K) *V {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.all[key]
	switch {
	case v != nil:
		return v
	case len(a.all) >= countedMax:
		return &a.other
	case a.all == nil:
		a.all = map[K]*V{}
	}
	v = new(V)
	a.all[key] = v
	return v
}

// each yields all counters, and the shared one under the key other.
func (a *apart[K, V]) each(other K, yield func(K, *V)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, v := range a.all {
		yield(key, v)
	}
	yield(other, &a.other)
}

// ends are the states that are counted, in the order of typeCounts.ended.
var ends = [...]core.State{core.StateProcessed, core.StateUndone, core.StateError}

// typeCounts counts the tasks of one type.
type typeCounts struct {
	created, missed, asked atomic.Int64
	ended                  [len(ends)]atomic.Int64 // without those asked for
	took                   latency
}

// agentCounts counts attempts, of dos and undos, that an agent did not answer well.
type agentCounts struct{ failed, refused, overdue atomic.Int64 }

// stepCounts holds the counters of one step of a plan, looked up once for the plan.
type stepCounts struct {
	// took is nil for a step that is no call.
	took  *latency
	agent *agentCounts
}

// typeStep is the key by which calls are counted.
type typeStep struct{ taskType, agent string }

// tally counts tasks by type, steps by type and agent, and errors by agent.
type tally struct {
	types  apart[string, typeCounts]
	calls  apart[typeStep, latency]
	agents apart[string, agentCounts]
}

// steps looks up the counters of a plan's steps.
func (t *tally) steps(p *core.Plan) []stepCounts {
	all := make([]stepCounts, len(p.Steps))
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Kind == core.CallStep {
			all[i] = stepCounts{t.calls.of(typeStep{p.Name, s.Agent}), t.agents.of(s.Agent)}
		}
	}
	return all
}
