package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// testLimits: a change is stored if it follows the stored one; a limit that is forgotten can be claimed no more.
func testLimits(r *rig) {
	first := operate.AgentLimit{Limit: core.Limit{Agent: "pay", Concurrent: 3, Revision: 1}, At: start.Time(), By: "olga", Reason: "it's slow"}
	second := first
	second.Limit, second.Reason = core.Limit{Agent: "pay", RateMilli: 1500, Revision: 2}, ""
	other := operate.AgentLimit{Limit: core.Limit{Agent: "book", Concurrent: 1, Revision: 1}, At: start.Time()}
	put := func(l operate.AgentLimit, want bool) {
		r.Helper()
		if stored, err := r.s.PutLimit(r.ctx, l); err != nil || stored != want {
			r.Fatalf("put %+v: %v, %v", l, stored, err)
		}
	}
	put(second, false)
	put(first, true)
	put(first, false)
	put(other, true)
	r.equal("limits", get(r.s.AgentLimits(r.ctx))(r), []operate.AgentLimit{other, first})
	put(second, true)
	r.equal("changed", get(r.s.Limits(r.ctx))(r), []core.Limit{other.Limit, second.Limit})
	r.must(r.s.DeleteLimit(r.ctx, "book"))
	r.must(r.s.DeleteLimit(r.ctx, "book"))
	if _, err := r.s.ClaimGrant(r.ctx, "book", start, core.Grant{Holder: "n/1"}); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a claim of a limit that is gone: %v", err)
	}
}

// testGrants: however many claim at once, together they never have more than the limit; what has ended is free again.
func testGrants(r *rig) {
	if ok, err := r.s.PutLimit(r.ctx, operate.AgentLimit{Limit: core.Limit{Agent: "pay", Concurrent: 10, RateMilli: 1000, Revision: 1}, At: start.Time()}); err != nil || !ok {
		r.Fatal(ok, err)
	}
	until := start.Add(time.Minute)
	const holders = 6
	var wg sync.WaitGroup
	for i := range holders {
		wg.Go(func() {
			had := core.Grant{Holder: fmt.Sprint("n/", i), Wanted: 10, Until: until}
			for range 5 {
				got, err := r.s.ClaimGrant(r.ctx, "pay", start, had)
				if err != nil {
					r.Error(err)
					return
				}
				had.Places, had.RateMilli = min(got.Grant.Places, got.Fair.Places), min(got.Grant.RateMilli, got.Fair.RateMilli)
			}
		})
	}
	wg.Wait()
	sum := func() (places int, rate int64) {
		for _, g := range get(r.s.Grants(r.ctx, "pay"))(r) {
			places, rate = places+g.Places, rate+g.RateMilli
		}
		return places, rate
	}
	granted := get(r.s.Granted(r.ctx, start))(r)
	places, rate := sum()
	r.equal("granted", granted, map[string]operate.Granted{"pay": {Holders: holders, Wanted: 10 * holders, Places: int64(places), RateMilli: rate}})
	r.equal("granted, when all have ended", get(r.s.Granted(r.ctx, until))(r), map[string]operate.Granted{})
	if places > 10 || places < holders || rate > 1000 {
		r.Errorf("%d holders have %d places and a rate of %d", holders, places, rate)
	}
	got := get(r.s.ClaimGrant(r.ctx, "pay", until, core.Grant{Holder: "late", Wanted: 20, Until: until.Add(time.Minute)}))(r)
	if got.Grant.Places != 10 || got.Grant.RateMilli != 1000 || !got.First || got.Limit.Concurrent != 10 {
		r.Errorf("when all grants have ended: %+v", got)
	}
	got = get(r.s.ClaimGrant(r.ctx, "pay", until, core.Grant{Holder: "later", Wanted: 20, Until: until.Add(time.Minute)}))(r)
	if got.Grant.Places != 0 || got.Fair.Places != 0 || got.Grant.RateMilli != 0 || got.Fair.RateMilli != 0 || got.First {
		r.Errorf("while another has all: %+v", got)
	}
	after := until.Add(time.Hour) // what has ended is forgotten
	get(r.s.ClaimGrant(r.ctx, "pay", after, core.Grant{Holder: "last", Wanted: 1, Until: after.Add(time.Minute)}))(r)
	if left := get(r.s.Grants(r.ctx, "pay"))(r); len(left) != 1 || left[0].Holder != "last" || left[0].Places != 1 {
		r.Errorf("an hour later there are the grants %+v", left)
	}
	if n := len(get(r.s.Grants(r.ctx, "book"))(r)); n != 0 {
		r.Errorf("%d grants of another agent", n)
	}
}
