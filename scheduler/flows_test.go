package scheduler_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// single is a submission of one step at agent.a, of a class and a tenant.
func single(id, class, tenant string, after time.Duration) core.Submission {
	sub := core.Submission{Type: "single", ID: id, CompleteBy: began.Add(after)}
	if class != "" {
		sub.Labels = append(sub.Labels, core.Label{Key: core.PriorityLabel, Value: class})
	}
	if tenant != "" {
		sub.Labels = append(sub.Labels, core.Label{Key: "tenant", Value: tenant})
	}
	return sub
}

// flowRig has plans of one step at agent.a.
func flowRig(t *testing.T, cfg scheduler.Config, types ...string) *rig {
	cfg.TenantLabel = "tenant"
	r := newRig(t, cfg)
	for _, name := range append(types, "single") {
		r.store.AddPlan(orderPlan(name, 1, "a"))
	}
	return r
}

// begin is one cycle; what leaves by it is answered at the next one.
func (r *rig) begin() (ids []string) {
	r.cycle()
	for _, c := range r.bus.take() {
		ids = append(ids, c.Task)
		r.answer(c, 0)
	}
	return ids
}

// some are n submissions of the same kind.
func some(n int, prefix, class, tenant string, after time.Duration) (subs []core.Submission) {
	for i := range n {
		subs = append(subs, single(fmt.Sprintf("%s-%d", prefix, i), class, tenant, after+time.Duration(i)*time.Millisecond))
	}
	return subs
}

// TestFlowsShare: while every flow has work, each gets its weights' part of what is claimed, at each level less at most a
// task for each that shares and one more; within a flow it is by deadline. The same is claimed in the same order again.
func TestFlowsShare(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		weight := rapid.IntRange(1, 20)
		cfg := scheduler.Config{AgentWindow: 1, Weights: scheduler.Weights{Types: map[string]int{}, Tenants: map[string]int{}}}
		classes := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"high", "normal", "low"}), 1, 3, rapid.ID).Draw(rt, "classes")
		tenants := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "x", "y", "z"}), 1, 3, rapid.ID).Draw(rt, "tenants")
		types := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"single", "second"}), 1, 2, rapid.ID).Draw(rt, "types")
		for _, name := range tenants {
			cfg.Weights.Tenants[name] = weight.Draw(rt, "tenant")
		}
		for _, name := range types {
			cfg.Weights.Types[name] = weight.Draw(rt, "type")
		}
		for i := range cfg.Weights.Classes {
			cfg.Weights.Classes[i] = weight.Draw(rt, "class")
		}
		const each = 40
		var subs []core.Submission
		for _, class := range classes {
			for _, tenant := range tenants {
				for _, kind := range types {
					for i := range each {
						sub := single(fmt.Sprintf("%s-%s-%s-%d", class, tenant, kind, i), class, tenant, time.Hour+time.Duration(rapid.IntRange(0, 1000).Draw(rt, "due"))*time.Second)
						sub.Type = kind
						subs = append(subs, sub)
					}
				}
			}
		}
		first := claimedOf(t, cfg, subs)
		if again := claimedOf(t, cfg, subs); !slices.Equal(first, again) {
			rt.Fatalf("claimed in another order the second time")
		}
		checkShares(rt, cfg.Weights, subs, first, each, classes, tenants, types)
	})
}

// claimedOf is the order in which submissions are claimed, after the first, which was never parked.
func claimedOf(t *testing.T, cfg scheduler.Config, subs []core.Submission) (claimed []string) {
	r := flowRig(t, cfg, "second")
	r.tasks(0, subs...)
	r.begin()
	for range len(subs) - 1 {
		claimed = append(claimed, r.begin()...)
	}
	return claimed
}

func checkShares(rt *rapid.T, w scheduler.Weights, subs []core.Submission, claimed []string, each int, classes, tenants, types []string) {
	byID := map[string]*core.Submission{}
	for i := range subs {
		byID[subs[i].ID] = &subs[i]
	}
	flowOf := func(id string) string { return id[:strings.LastIndex(id, "-")] }
	got, last := map[string]int{}, map[string]core.Instant{}
	level := func(all float64, is int, among []int) float64 {
		sum := 0
		for _, n := range among {
			sum += n
		}
		return float64(is)/float64(sum)*(all-float64(len(among))) - 1
	}
	of := func(names []string, weights map[string]int) (all []int) {
		for _, name := range names {
			all = append(all, weights[name])
		}
		return all
	}
	classWeights := map[string]int{"high": w.Classes[core.ClassHigh], "normal": w.Classes[core.ClassNormal], "low": w.Classes[core.ClassLow]}
	for n, id := range claimed {
		flow := flowOf(id)
		if got[flow]++; got[flow] >= each-1 {
			return // its work ends
		}
		if due := byID[id].CompleteBy; due < last[flow] {
			rt.Fatalf("%s is claimed after one with a later deadline", id)
		} else {
			last[flow] = due
		}
		for _, class := range classes {
			for _, tenant := range tenants {
				for _, kind := range types {
					least := level(level(level(float64(n+1), classWeights[class], of(classes, classWeights)), w.Tenants[tenant], of(tenants, w.Tenants)), w.Types[kind], of(types, w.Types))
					if is := got[class+"-"+tenant+"-"+kind]; float64(is) < least-0.01*float64(n) {
						rt.Fatalf("after %d claims %s of tenant %q, type %s, has %d, want at least %.1f; weights %+v", n+1, class, tenant, kind, is, least, w)
					}
				}
			}
		}
	}
}

// TestOneFlowIsByDeadline: tasks of one flow are claimed as they were before there were flows.
func TestOneFlowIsByDeadline(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var subs []core.Submission
		for i, due := range rapid.SliceOfN(rapid.IntRange(0, 20), 3, 60).Draw(rt, "due") {
			subs = append(subs, single(fmt.Sprintf("t-%d", i), "low", "x", time.Hour+time.Duration(due)*time.Second))
		}
		want := slices.Clone(subs[1:])
		slices.SortStableFunc(want, func(a, b core.Submission) int { return cmp.Compare(a.CompleteBy, b.CompleteBy) })
		for i, id := range claimedOf(t, scheduler.Config{AgentWindow: 1}, subs) {
			if id != want[i].ID {
				rt.Fatalf("claim %d is %s, want %s", i, id, want[i].ID)
			}
		}
	})
}

// TestLowUnderAFlood: low tasks get their part although more and more high ones with nearer deadlines come, and high ones
// that come late do not wait for all the low ones.
func TestLowUnderAFlood(t *testing.T) {
	r := flowRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, some(20, "low", "low", "", 2*time.Hour)...)
	r.tasks(0, some(20, "high", "high", "", time.Hour)...)
	r.begin() // low-0, with room
	low := 0
	for n := 1; n <= 17*10; n++ {
		r.tasks(0, some(1, fmt.Sprintf("high-of-%d", n), "high", "", time.Minute)...)
		for _, id := range r.begin() {
			if strings.HasPrefix(id, "low") {
				low++
			}
		}
	}
	if low < 9 || low > 11 {
		t.Errorf("%d low tasks of 170 were claimed, want 10", low)
	}
}

// TestIdleIsNotSavedUp: a flow that had no work does not get afterwards what it did not use, and one that comes back
// after each task has no more than its part.
func TestIdleIsNotSavedUp(t *testing.T) {
	r := flowRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, some(1, "y0", "", "y", time.Minute)...)
	r.tasks(0, some(1, "y1", "", "y", time.Minute)...)
	r.tasks(0, some(200, "x", "", "x", time.Hour)...)
	r.begin()
	for range 100 {
		r.begin()
	}
	r.tasks(0, some(60, "y", "", "y", time.Minute)...)
	of := map[byte]int{}
	for range 40 {
		of[r.begin()[0][0]]++
	}
	if of['y'] < 19 || of['y'] > 21 {
		t.Errorf("after a pause y has %d of 40, want 20", of['y'])
	}

	r = flowRig(t, scheduler.Config{AgentWindow: 1})
	r.tasks(0, some(200, "h", "high", "", time.Hour)...)
	r.begin()
	low := 0
	for n := range 170 { // there is always one low task
		if n == low*17 || low == 0 {
			r.tasks(0, some(1, fmt.Sprintf("l%d", n), "low", "", time.Minute)...)
		}
		if id := r.begin()[0]; id[0] == 'l' {
			low++
			r.tasks(0, some(1, fmt.Sprintf("l-again%d", n), "low", "", time.Minute)...)
		}
	}
	if low > 12 {
		t.Errorf("one low task at a time has %d of 170, want 10", low)
	}
}

// TestHighAfterASpike: more low tasks wait than are remembered; a high one that comes then is claimed soon, by this owner
// and by the next.
func TestHighAfterASpike(t *testing.T) {
	r := flowRig(t, scheduler.Config{AgentWindow: 1, BatchMax: 20000, InFlight: 100000})
	r.tasks(0, some(8500, "low", "low", "", time.Hour)...)
	r.begin()
	soon := func(want string, within int) {
		t.Helper()
		for range within {
			if slices.Contains(r.begin(), want) {
				return
			}
		}
		t.Fatalf("%s does not leave", want)
	}
	r.tasks(0, some(1, "high", "high", "", 2*time.Hour)...)
	soon("high-0", 4)
	r.tasks(0, some(40, "more", "high", "", 2*time.Hour)...)
	soon("more-0", 4)
	r.start("n2")
	r.adopt(0)
	soon("more-39", 120) // a look at the store is 256 tasks, and one of 17 is low
}

// flooded is a rig with a great weight of low tasks whose store has been read once, so that it is read again for a reason alone.
func flooded(t *testing.T, window int) *rig {
	r := flowRig(t, scheduler.Config{AgentWindow: window, BatchMax: 40000, InFlight: 100000, Weights: scheduler.Weights{Classes: [core.Classes]int{1, 1, 19}}})
	r.tasks(0, some(window+1, "before", "", "", time.Hour)...)
	r.begin()
	r.begin()
	return r
}

// TestFloodLeavesNoneBehind: low tasks that are left to the store, because high ones took their room or because there was
// none, are claimed although high ones never cease to come.
func TestFloodLeavesNoneBehind(t *testing.T) {
	for _, c := range []struct{ low, high, each, rounds int }{
		{5000, 9000, 200, 52}, // high ones take room
		{9000, 0, 180, 88},    // there was none
	} {
		r := flooded(t, 200)
		r.tasks(0, some(c.low, "low", "low", "", time.Hour)...)
		r.tasks(0, some(c.high, "high", "high", "", time.Hour)...)
		r.begin()
		for round := range c.rounds {
			r.tasks(0, some(c.each, fmt.Sprintf("high-of-%d", round), "high", "", time.Hour)...)
			r.begin()
		}
		for i := range c.low {
			r.state(fmt.Sprintf("low-%d", i), core.StateProcessed)
		}
	}
}

// TestNoneForgottenWhenFull: what is left to the store while it is read, after a takeover, is read at the next pass.
func TestNoneForgottenWhenFull(t *testing.T) {
	r := flowRig(t, scheduler.Config{AgentWindow: 1, BatchMax: 40000, InFlight: 100000})
	const n = 11000
	r.tasks(0, some(n, "low", "low", "", time.Hour)...)
	r.begin()
	r.cfg.AgentWindow = 50
	r.start("n2")
	r.adopt(0)
	for range n/50 + 10 {
		r.begin()
	}
	for i := range n {
		r.state(fmt.Sprintf("low-%d", i), core.StateProcessed)
	}
}

// TestHeldFlowGivesItsTurn: tasks that wait for begun ones of their plan do not stop those of another.
func TestHeldFlowGivesItsTurn(t *testing.T) {
	r := flowRig(t, scheduler.Config{AgentWindow: 2})
	r.tasks(0, orders(4)...)
	r.cycle()
	for range 2 { // all four pass a; two are at b, two wait there
		for _, c := range r.bus.take() {
			if c.Step == "a" {
				r.answer(c, 0)
			}
		}
		r.cycle()
	}
	r.bus.take()
	var held []core.Submission
	for i := range 8 {
		held = append(held, order(fmt.Sprintf("held%d", i)))
	}
	r.tasks(0, held...)
	r.tasks(0, some(1, "free", "low", "", time.Hour)...)
	if got := r.left(); !slices.Equal(got, []string{"free-0"}) {
		t.Errorf("%v left, want free-0 alone", got)
	}
}

// TestMoreFlowsThanKept: flows beyond those that are kept share one, and every task is claimed.
func TestMoreFlowsThanKept(t *testing.T) {
	r := flowRig(t, scheduler.Config{AgentWindow: 300, BatchMax: 20000, InFlight: 100000})
	var subs []core.Submission
	for i := range 3000 {
		subs = append(subs, single(fmt.Sprintf("t%d", i), "", fmt.Sprintf("tenant%d", i), time.Hour))
	}
	r.tasks(0, subs...)
	r.cycle()
	r.finish()
	for _, s := range subs {
		r.state(s.ID, core.StateProcessed)
	}
}
