package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// testBreakers: a change is stored if it follows the stored one, and the first of several at once is the only one.
func testBreakers(r *rig) {
	first := core.Breaker{Agent: "pay", State: core.BreakerOpen, Since: start, Until: start.Add(time.Second), Openings: 1, Reason: "3 of 4 calls failed", Revision: 1}
	trial := core.Breaker{Agent: "pay", State: core.BreakerTrial, Since: start.Add(2 * time.Second), Stage: 3, Openings: 1, Revision: 2}
	forced := core.Breaker{Agent: "ship", State: core.BreakerClosed, Since: start.Add(time.Second), Forced: true, By: "olga", Reason: "it's fine", Revision: 1}
	put := func(b core.Breaker, want bool) {
		r.Helper()
		if stored, err := r.s.PutBreaker(r.ctx, b); err != nil || stored != want {
			r.Fatalf("put %+v: %v, %v", b, stored, err)
		}
	}
	later := trial
	later.Revision = 3
	put(trial, false) // there is no first
	put(first, true)
	put(first, false)
	put(later, false)
	put(trial, true)
	put(forced, true)
	if all, err := r.s.Breakers(r.ctx); err != nil || !slices.Equal(all, []core.Breaker{trial, forced}) {
		r.Errorf("breakers %+v, %v", all, err)
	}
	// However many there are, all are read: one that is left out would count as closed.
	all := []core.Breaker{trial, forced}
	for i := range core.BreakersMax + 1 {
		young := core.Breaker{Agent: fmt.Sprintf("a%04d", i), State: core.BreakerClosed, Since: start.Add(time.Hour), Revision: 1}
		all = append(all, young)
		put(young, true)
	}
	slices.SortFunc(all, func(a, b core.Breaker) int { return strings.Compare(a.Agent, b.Agent) })
	if is, err := r.s.Breakers(r.ctx); err != nil || !slices.Equal(is, all) {
		r.Errorf("of %d breakers %d are read, %v", len(all), len(is), err)
	}
	var wg sync.WaitGroup
	var stored atomic.Int64
	for range 8 {
		wg.Go(func() {
			if ok, err := r.s.PutBreaker(r.ctx, later); err == nil && ok {
				stored.Add(1)
			}
		})
	}
	wg.Wait()
	if n := stored.Load(); n != 1 {
		r.Errorf("the same change was stored %d times", n)
	}
}

// testReportCalls: each node's newest report counts once, if it is of the revision and not too old.
func testReportCalls(r *rig) {
	report := func(agent, node string, revision int64, after time.Duration, done, failed int64, want core.Calls) {
		r.Helper()
		sum, err := r.s.ReportCalls(r.ctx, agent, node, revision, start.Add(after), core.Calls{Done: done, Failed: failed}, start.Add(after-10*time.Second))
		if err != nil || sum != want {
			r.Fatalf("%s of %s: the sum is %+v, want %+v; %v", agent, node, sum, want, err)
		}
	}
	report("pay", "n1", 1, 0, 5, 1, core.Calls{Done: 5, Failed: 1})
	report("pay", "n2", 1, time.Second, 2, 2, core.Calls{Done: 7, Failed: 3})
	report("pay", "n1", 1, 2*time.Second, 1, 1, core.Calls{Done: 3, Failed: 3})
	report("ship", "n1", 1, 2*time.Second, 1, 0, core.Calls{Done: 1})
	report("pay", "n3", 2, 3*time.Second, 9, 9, core.Calls{Done: 9, Failed: 9})
	report("pay", "n1", 1, 11*time.Second+time.Microsecond, 1, 1, core.Calls{Done: 1, Failed: 1}) // the one of n2 is too old
}
