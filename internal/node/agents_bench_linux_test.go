package node

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/operate"
)

// What an agent that fails, that is limited, or that one tenant floods, gets and does. They take minutes:
//
//	go test ./internal/node -run XXX -bench 'Breaker|Shared|Flood' -benchtime 1x

// BenchmarkBreaker is an agent that fails every call for 30 s under 500 tasks/s: the calls that it gets in that time with a
// breaker, in percent of those without; and how long after its return all tasks are done, with what the same tasks take when
// they only wait for a pause to be lifted.
func BenchmarkBreaker(b *testing.B) {
	const rate, fails = 500, 30 * time.Second
	run := func(share int) (calls int, done time.Duration) {
		m := newMeteredBy(b, func(cfg *config.Config) { cfg.BreakerShare = share })
		m.submit(1000)
		m.done()
		began := time.Now()
		m.fails.Store(true)
		_, before := m.seen()
		m.paced(rate, fails)
		_, after := m.seen()
		m.fails.Store(false)
		b.Logf("share %d: it failed for %v", share, time.Since(began))
		back := time.Now()
		m.done()
		return len(after) - len(before), time.Since(back)
	}
	waits := func() time.Duration {
		m := newMetered(b)
		p, err := m.flow().Pauses.SetPause(b.Context(), operator, operate.Pause{Agent: "pay", Reason: "all wait"})
		if err != nil {
			b.Fatal(err)
		}
		m.paced(rate, fails)
		if err := m.flow().Pauses.LiftPause(b.Context(), operator, p.ID, "on with it"); err != nil {
			b.Fatal(err)
		}
		back := time.Now()
		m.done()
		return time.Since(back)
	}
	for b.Loop() {
		normal := waits()
		without, late := run(0)
		with, soon := run(50)
		b.ReportMetric(float64(without), "calls-without")
		b.ReportMetric(float64(with), "calls-with")
		b.ReportMetric(100*float64(with)/float64(without), "%")
		b.ReportMetric(normal.Seconds(), "s-paused")
		b.ReportMetric(late.Seconds(), "s-without")
		b.ReportMetric(soon.Seconds(), "s-with")
	}
}

// paced submits tasks at a rate, for a while.
func (b *metered) paced(rate int, d time.Duration) {
	b.t.Helper()
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / 50)
	defer tick.Stop()
	for range int(d / (time.Second / 50)) {
		<-tick.C
		for range rate / 50 {
			id := "t" + strconv.Itoa(len(b.ids))
			b.ids = append(b.ids, id)
			wg.Go(func() {
				if _, err := b.plan.Submit(b.t.Context(), b.client, id, 1); err != nil {
					b.t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

// BenchmarkShared is a limit of 50 calls at a time over three nodes, of a second each: the most that were at work, and how much of
// it was used from when it was reached first until too little was left.
func BenchmarkShared(b *testing.B) {
	const most, takes, tasks = 50, time.Second, 1500
	for b.Loop() {
		m := newMetered(b, operate.SetLimit{Concurrent: most})
		m.start("n3", false)
		m.takes.Store(int64(takes))
		m.submit(tasks)
		m.done()
		top, calls := m.seen()
		slices.SortFunc(calls, time.Time.Compare)
		calls = calls[most*5 : len(calls)-most*5] // the begin and the end, when not all nodes have work
		span := calls[len(calls)-1].Sub(calls[0])
		b.ReportMetric(float64(top), "most")
		b.ReportMetric(100*float64(len(calls))*takes.Seconds()/(most*span.Seconds()), "%-used")
	}
}

// BenchmarkFlood is a tenant with 20 tasks/s at an agent that does 400 calls a second, of 50 ms each: the p99 from
// submission to the end of the call, alone and beside one that has 20,000 waiting.
func BenchmarkFlood(b *testing.B) {
	const rate, d = 20, 20 * time.Second
	run := func(flood int) time.Duration {
		m := newMeteredBy(b, func(cfg *config.Config) { cfg.TenantLabel = "tenant" }, operate.SetLimit{Concurrent: 20})
		m.takes.Store(int64(50 * time.Millisecond))
		m.submitOf(flood, func(int) int { return 1 }, duly.Label("tenant", "flood"))
		n := int(d.Seconds()) * rate
		began := make([]time.Time, n)
		var wg sync.WaitGroup
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		for i := range n {
			<-tick.C
			wg.Go(func() {
				began[i] = time.Now()
				if _, err := m.plan.Submit(b.Context(), m.client, "quiet"+strconv.Itoa(i), 1000+i, duly.Label("tenant", "quiet")); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		took := make([]time.Duration, n)
		soon(b, "all calls of the quiet tenant are over", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			for i := range took {
				took[i] = m.over[1000+i].Sub(began[i])
			}
			return slices.Min(took) > 0
		})
		slices.Sort(took)
		return took[n*99/100]
	}
	for b.Loop() {
		alone := run(0)
		beside := run(20_000)
		b.ReportMetric(float64(alone.Milliseconds()), "ms-alone")
		b.ReportMetric(float64(beside.Milliseconds()), "ms-beside")
	}
}
