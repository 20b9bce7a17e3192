package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// testLimits: a change is stored if it follows the stored one; a limit that is forgotten can be claimed no more.
func testLimits(r *rig) {
	first := operate.AgentLimit{Limit: core.Limit{Agent: "pay", Concurrent: 3, Revision: 1}, At: start.Time(), By: "olga", Reason: "it's slow"}
	second := first
	second.Limit, second.Reason = core.Limit{Agent: "pay", RateMilli: 1500, Key: "input.customer", KeyConcurrent: 2, KeyRateMilli: 250, Revision: 2}, ""
	other := operate.AgentLimit{Limit: core.Limit{Agent: "book", Key: "type", KeyRateMilli: 7, Revision: 1}, At: start.Time()}
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
	r.testLimitStartsOver()
	if _, err := r.s.ClaimGrants(r.ctx, "book", start, []core.Grant{{Holder: "n/1"}}); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a claim of a limit that is gone: %v", err)
	}
}

// testLimitStartsOver: what holders had of a limit counts while that changes, and is nothing of what the limit did not bound before.
func (r *rig) testLimitStartsOver() {
	r.Helper()
	inAll := core.Limit{Agent: "ship", Concurrent: 5, Key: "type", KeyConcurrent: 5, Revision: 1}
	was := inAll
	for _, c := range []struct {
		name        string
		is          core.Limit
		all, ofKeys int
	}{
		{"first", inAll, 5, 5},
		{"another number", core.Limit{Agent: "ship", Concurrent: 6, Key: "type", KeyConcurrent: 6, Revision: 2}, 1, 1},
		{"other keys", core.Limit{Agent: "ship", Concurrent: 6, Key: "id", KeyConcurrent: 5, Revision: 3}, 0, 5},
		{"only keys", core.Limit{Agent: "ship", Key: "id", KeyConcurrent: 5, Revision: 4}, 0, 0},
		{"in all, again", core.Limit{Agent: "ship", Concurrent: 5, Key: "id", KeyConcurrent: 5, Revision: 5}, 5, 0},
	} {
		r.limited(c.is)
		got := r.claim("ship", start, core.Grant{Holder: c.name, Wanted: 5, Until: start.Add(time.Minute)}, core.Grant{Keyed: true, Key: "k", Holder: c.name, Wanted: 5, Until: start.Add(time.Minute)})
		if all, ofKeys := got[0].Fair.Places, got[1].Fair.Places; all != c.all || ofKeys != c.ofKeys {
			r.Errorf("%s, after %+v: %d places in all and %d of a key, want %d and %d", c.name, was, all, ofKeys, c.all, c.ofKeys)
		}
		was = c.is
	}
}

// testGrants: however many claim at once, together they never have more than the limit; what has ended is free again.
func testGrants(r *rig) {
	r.limited(core.Limit{Agent: "pay", Concurrent: 10, RateMilli: 1000, Revision: 1})
	until := start.Add(time.Minute)
	const holders = 6
	r.claimAtOnce(holders, 1, func(holder string, _ int) core.Grant { return core.Grant{Holder: holder, Wanted: 10, Until: until} })
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
	if places != 10 || rate > 1000 || rate < 990 {
		r.Errorf("%d holders have %d places and a rate of %d", holders, places, rate)
	}
	got := r.claim("pay", until, core.Grant{Holder: "late", Wanted: 20, Until: until.Add(time.Minute)})[0]
	if got.Grant.Places != 10 || got.Grant.RateMilli != 1000 || !got.First || got.Limit.Concurrent != 10 {
		r.Errorf("when all grants have ended: %+v", got)
	}
	got = r.claim("pay", until, core.Grant{Holder: "later", Wanted: 20, Until: until.Add(time.Minute)})[0]
	if got.Grant.Places != 0 || got.Fair.Places != 0 || got.Grant.RateMilli != 0 || got.Fair.RateMilli != 0 || got.First {
		r.Errorf("while another has all: %+v", got)
	}
	after := until.Add(time.Hour) // what has ended is forgotten
	r.claim("pay", after, core.Grant{Holder: "last", Wanted: 1, Until: after.Add(time.Minute)})
	if left := get(r.s.Grants(r.ctx, "pay"))(r); len(left) != 1 || left[0].Holder != "last" || left[0].Places != 1 {
		r.Errorf("an hour later there are the grants %+v", left)
	}
	after = after.Add(time.Hour) // it has stood still meanwhile
	again := core.Grant{Holder: "last", Wanted: 10, Places: 1, Until: after.Add(time.Minute)}
	r.equal("places of a holder whose own grant has ended", r.claim("pay", after, again)[0].Grant.Places, 10)
	r.equal("places beside them", r.claim("pay", after, core.Grant{Holder: "beside", Wanted: 10, Until: after.Add(time.Minute)})[0].Grant.Places, 0)
	if n := len(get(r.s.Grants(r.ctx, "book"))(r)); n != 0 {
		r.Errorf("%d grants of another agent", n)
	}
}

// testCountedPlaces: what a holder has is free once every partition is counted in the grants of others, as of its newest owner,
// and not before.
func testCountedPlaces(r *rig) {
	r.limited(core.Limit{Agent: "pay", Concurrent: 10, RateMilli: 1000, Key: "type", KeyConcurrent: 10, Revision: 1})
	until := start.Add(time.Hour)
	claim := func(holder string) (places []int) {
		r.Helper()
		for _, c := range r.claim("pay", start, core.Grant{Holder: holder, Wanted: 10, Until: until}, core.Grant{Keyed: true, Key: "k", Holder: holder, Wanted: 10, Until: until}) {
			places = append(places, c.Grant.Places)
		}
		return places
	}
	count := func(holder string, of ...core.Counting) {
		r.Helper()
		r.must(r.s.CountPlaces(r.ctx, holder, of))
	}
	was := get(r.s.Counted(r.ctx))(r)
	first := r.takeOver(1).Epoch
	for _, c := range was { // what other tests have taken over
		count("old", c)
	}
	r.equal("of the first owner", claim("old"), []int{10, 10})
	count("old", core.Counting{Partition: 1, Epoch: first})
	r.equal("beside the owner", claim("new"), []int{0, 0})
	second := r.takeOver(1).Epoch
	r.equal("while nothing is counted since the takeover", claim("new"), []int{0, 0})
	count("new", core.Counting{Partition: 1, Epoch: first})
	r.equal("when an owner of before has counted", claim("new"), []int{0, 0})
	all := []core.Counting{{Partition: 1, Epoch: second}}
	for _, c := range was {
		if c.Partition != 1 {
			all = append(all, c)
		}
	}
	count("new", all...)
	for _, c := range get(r.s.Counted(r.ctx))(r) {
		if want := (core.Counting{Partition: c.Partition, Epoch: c.Epoch, Counted: c.Epoch, Holder: "new"}); c != want {
			r.Errorf("counted is %+v, want %+v", c, want)
		}
	}
	r.equal("when it is counted", claim("new"), []int{10, 10})
	for _, g := range get(r.s.Grants(r.ctx, "pay"))(r) {
		if g.Holder == "old" {
			r.Errorf("the grant %+v is still there", g)
		}
	}
	if n, busiest := r.keysOf("pay", start); n != 1 || busiest[0].Holders != 1 {
		r.Errorf("%d keys are granted: %+v", n, busiest)
	}
}

func (r *rig) claim(agent string, now core.Instant, mine ...core.Grant) []core.ClaimedGrant {
	r.Helper()
	all := get(r.s.ClaimGrants(r.ctx, agent, now, mine))(r)
	if len(all) != len(mine) {
		r.Fatalf("%d grants for %d claims", len(all), len(mine))
	}
	return all
}

func (r *rig) limited(l core.Limit) {
	r.Helper()
	r.limitedAt(l, start)
}

// limitedAt stores a limit. Whether one was stored whose answer was lost is found by reading.
func (r *rig) limitedAt(l core.Limit, at core.Instant) {
	r.Helper()
	for range 20 {
		ok, err := r.s.PutLimit(r.ctx, operate.AgentLimit{Limit: l, At: at.Time()})
		if err == nil && !ok {
			r.Fatalf("limit %+v is not stored", l)
		}
		if ok || slices.Contains(get(r.s.Limits(r.ctx))(r), l) {
			return
		}
	}
	r.Fatalf("limit %+v cannot be stored", l)
}

// keysOf is what is granted of keys of an agent at a time.
func (r *rig) keysOf(agent string, now core.Instant) (int64, []operate.KeyGranted) {
	r.Helper()
	is := get(r.s.Granted(r.ctx, now))(r)[agent]
	return is.Keys, is.Busiest
}

// keyed is a claim of a holder for a key, until a minute after the start.
func keyed(key, holder string, wanted int) core.Grant {
	return core.Grant{Keyed: true, Key: key, Holder: holder, Wanted: wanted, Until: start.Add(time.Minute)}
}

// testKeyGrants: what bounds each key is shared by holders, apart from other keys and from the limit, also by one call for
// many; what is idle is kept no more.
func testKeyGrants(r *rig) {
	r.limited(core.Limit{Agent: "pay", Concurrent: 10, Key: "input.c", KeyConcurrent: 3, KeyRateMilli: 1000, Revision: 1})
	places := func(all []core.ClaimedGrant) (places []int) {
		for i := range all {
			places = append(places, all[i].Grant.Places)
		}
		return places
	}
	odd := "it's\x00\xffodd"
	got := r.claim("pay", start, core.Grant{Holder: "n/1", Wanted: 4, Until: start.Add(time.Minute)}, keyed("a", "n/1", 2), keyed("", "n/1", 9), keyed(odd, "n/1", 1), keyed("a", "n/2", 9))
	r.equal("places of one call", places(got), []int{4, 2, 3, 1, 1})
	// The call may have been made again after a lost answer: then the rate is shared already.
	if !got[1].First || got[1].Grant.RateMilli+got[4].Grant.RateMilli != 1000 || got[4].First || got[4].Grant.RateMilli > 500 || got[1].Grant.Key != "a" || got[3].Grant.Key != odd || got[1].Limit.KeyConcurrent != 3 || got[1].Limit.Key != "input.c" {
		r.Errorf("%+v", got)
	}
	held := keyed(odd, "n/1", 1)
	held.Places = 1
	got = r.claim("pay", start, keyed("a", "n/3", 1), keyed(odd, "n/2", 9), held)
	r.equal("places of another call", places(got), []int{0, 2, 1})
	n, busiest := r.keysOf("pay", start)
	r.equal("keys", n, int64(3))
	r.equal("the busiest", busiest, []operate.KeyGranted{{Key: "a", Holders: 3, Wanted: 12, Places: 3}, {Key: "it's\uFFFD\uFFFDodd", Holders: 2, Wanted: 10, Places: 3}, {Key: "", Holders: 1, Wanted: 9, Places: 3}})
	if all := get(r.s.Grants(r.ctx, "pay"))(r); len(all) != 1 || all[0].Places != 4 || all[0].Keyed {
		r.Errorf("grants of the limit itself: %+v", all)
	}

	got = r.claim("pay", start, keyed("", "n/1", 0), keyed("a", "n/1", 0), keyed("b", "n/1", 0), keyed("a", "n/2", 9))
	r.equal("places when others are idle", places(got), []int{0, 0, 0, 2})
	n, busiest = r.keysOf("pay", start)
	r.equal("keys without idle ones", n, int64(2))
	r.equal("holders without idle ones", busiest[0], operate.KeyGranted{Key: "a", Holders: 2, Wanted: 10, Places: 2})
	r.equal("one claim after another of one holder", places(r.claim("pay", start, keyed("z", "n/1", 2), keyed("z", "n/1", 1))), []int{2, 1})

	r.limited(core.Limit{Agent: "pay", Concurrent: 10, Revision: 2})
	held.Places, held.RateMilli = 1, 5
	got = r.claim("pay", start, held, core.Grant{Holder: "n/1", Wanted: 4, Until: start.Add(time.Minute)}, keyed("new", "n/1", 1))
	if g := got[0]; g.Grant.Places != 0 || g.Grant.RateMilli != 0 || g.Fair.Places != 0 || g.Limit.Key != "" || g.Limit.Revision != 2 {
		r.Errorf("a claim for a key of a limit without: %+v", g)
	}
	r.equal("places without keys", places(got), []int{0, 4, 0})
	if n, _ := r.keysOf("pay", start); n != 0 {
		r.Errorf("a limit without a key has %d keys", n)
	}
	r.limited(core.Limit{Agent: "pay", Concurrent: 10, Key: "input.c", KeyConcurrent: 3, Revision: 3})
	if n, _ := r.keysOf("pay", start); n != 0 {
		r.Errorf("a limit with keys again has %d", n)
	}
	r.claim("pay", start, keyed("a", "n/2", 20))

	many := make([]core.Grant, core.ClaimsMax+1)
	for i := range many {
		many[i] = keyed(fmt.Sprint("k", i), "n/1", 1+i%7)
	}
	if _, err := r.s.ClaimGrants(r.ctx, "pay", start, many); err == nil || !strings.Contains(err.Error(), "513 are claimed, the most is 512") {
		r.Errorf("more than can be claimed: %v", err)
	}
	for range 2 {
		for i, g := range r.claim("pay", start, many[:core.ClaimsMax]...) {
			if g.Grant.Key != many[i].Key || g.Grant.Places != min(3, many[i].Wanted) {
				r.Fatalf("%d of as many as can be: %+v", i, g)
			}
		}
	}
	n, busiest = r.keysOf("pay", start)
	if n != core.ClaimsMax+1 || len(busiest) != operate.BusiestKeysMax || busiest[0].Key != "a" || busiest[1].Wanted-busiest[1].Places < busiest[19].Wanted-busiest[19].Places {
		r.Errorf("%d keys, the busiest %+v", n, busiest)
	}
	if got, err := r.s.ClaimGrants(r.ctx, "pay", start, nil); err != nil || len(got) != 0 {
		r.Errorf("no claim: %v, %v", got, err)
	}
}

// testKeyGrantsEnd: what has ended is free again, and forgotten when its key is claimed, or its limit often enough, or when
// its limit is deleted.
func testKeyGrantsEnd(r *rig) {
	l := core.Limit{Agent: "pay", Key: "input.c", KeyConcurrent: 3, Revision: 1}
	r.limited(l)
	got := r.claim("pay", start, keyed("a", "n/1", 3), keyed("b", "n/1", 3), keyed("c", "n/1", 3))
	r.equal("places", got[2].Grant.Places, 3)
	after := start.Add(time.Hour)
	late := func(key string, wanted int) core.Grant {
		g := keyed(key, "n/2", wanted)
		g.Until = after.Add(time.Minute)
		return g
	}
	got = r.claim("pay", after, late("a", 2))
	if got[0].Grant.Places != 2 || !got[0].First {
		r.Errorf("when the other grant has ended: %+v", got[0])
	}
	stored := func() int64 { n, _ := r.keysOf("pay", start.Add(-time.Hour)); return n } // of which all have not ended then
	_, busiest := r.keysOf("pay", start)
	r.equal("of the key that was claimed", busiest[len(busiest)-1], operate.KeyGranted{Key: "a", Holders: 1, Wanted: 2, Places: 2})
	r.equal("keys that are stored", stored(), int64(3))
	for i := 0; stored() > 1; i++ {
		if i > 64 {
			r.Fatalf("what has ended is kept after %d claims", i)
		}
		r.claim("pay", after, late("d", 0))
	}
	if n, _ := r.keysOf("pay", after); n != 1 {
		r.Errorf("%d keys are left, want the one whose grant has not ended", n)
	}
	r.must(r.s.DeleteLimit(r.ctx, "pay"))
	r.limitedAt(l, after)
	r.equal("keys of a limit that is set again", stored(), int64(0))
}

// testKeyGrantsAtOnce: however many claim a key at once, together they never have more than bounds it.
func testKeyGrantsAtOnce(r *rig) {
	r.limited(core.Limit{Agent: "pay", Key: "input.c", KeyConcurrent: 10, KeyRateMilli: 1000, Revision: 1})
	const holders = 6
	keys := []string{"a", "b", "c"}
	r.claimAtOnce(holders, len(keys), func(holder string, i int) core.Grant { return keyed(keys[i], holder, 10) })
	n, busiest := r.keysOf("pay", start)
	r.equal("keys", n, int64(len(keys)))
	for _, k := range busiest {
		r.equal("of key "+k.Key, k, operate.KeyGranted{Key: k.Key, Holders: holders, Wanted: 10 * holders, Places: 10})
	}
}

// claimAtOnce has holders claim as many grants each of what bounds them by 10 places, all at once, and then in turn until they
// have come down to their shares. While they do so they never have more.
func (r *rig) claimAtOnce(holders, grants int, first func(holder string, i int) core.Grant) {
	had := make([][]core.Grant, holders)
	for h := range had {
		for i := range grants {
			had[h] = append(had[h], first(fmt.Sprint("n/", h), i))
		}
	}
	var mu sync.Mutex
	claim := func(h int) {
		all, err := r.s.ClaimGrants(r.ctx, "pay", start, had[h])
		if err != nil {
			r.Error(err)
			return
		}
		mu.Lock() // what is used is less than what is stored from here on
		defer mu.Unlock()
		for i, got := range all {
			had[h][i].Places, had[h][i].RateMilli = min(got.Grant.Places, got.Fair.Places), min(got.Grant.RateMilli, got.Fair.RateMilli)
		}
		for i := range grants {
			places, rate := 0, int64(0)
			for h := range had {
				places, rate = places+had[h][i].Places, rate+had[h][i].RateMilli
			}
			if places > 10 || rate > 1000 {
				r.Errorf("holders use %d places and a rate of %d", places, rate)
			}
		}
	}
	var wg sync.WaitGroup
	for h := range had {
		wg.Go(func() {
			for range 5 {
				claim(h)
			}
		})
	}
	wg.Wait()
	for range 4 {
		for h := range had {
			claim(h)
		}
	}
}
