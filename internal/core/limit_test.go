package core

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// In whatever order holders claim, all grants together are never more than the limit; and when nothing changes any more each holder has
// its fair share, at the latest after five claims of each: no place is idle while one is wanted.
func TestGrantsAreFair(t *testing.T) {
	for seed := range uint64(300) {
		draw := rand.New(rand.NewPCG(seed, 7))
		l := Limit{Agent: "pay", Concurrent: 1 + draw.IntN(40), RateMilli: draw.Int64N(5000)}
		now := birthTime
		n := 1 + draw.IntN(12)
		stored, used := make([]Grant, n), make([]Grant, n)
		for i := range stored {
			stored[i].Holder = fmt.Sprint("n", i)
		}
		claim := func(i, wanted int) {
			mine := used[i]
			mine.Holder, mine.Wanted, mine.Until = stored[i].Holder, wanted, now.Add(time.Hour)
			got := l.Claim(now, mine, stored)
			stored[i] = got.Grant
			used[i] = Grant{Places: min(got.Grant.Places, got.Fair.Places), RateMilli: min(got.Grant.RateMilli, got.Fair.RateMilli)} // its commands end at once
			places, rate := 0, int64(0)
			for _, g := range stored {
				places, rate = places+g.Places, rate+g.RateMilli
			}
			if places > l.Concurrent || rate > l.RateMilli {
				t.Fatalf("seed %d: %d places of %d, rate %d of %d", seed, places, l.Concurrent, rate, l.RateMilli)
			}
		}
		for range 200 {
			claim(draw.IntN(n), draw.IntN(30))
		}
		all, rating := 0, 0
		wanted := make([]int, n)
		for i := range wanted {
			wanted[i] = draw.IntN(30)
			all += wanted[i]
			rating += min(1, wanted[i])
		}
		for range 5 {
			for i := range wanted {
				claim(i, wanted[i])
			}
		}
		places, rate := 0, int64(0)
		for _, g := range stored {
			places, rate = places+g.Places, rate+g.RateMilli
		}
		if places != min(all, l.Concurrent) || rating > 0 && rate != l.RateMilli {
			t.Fatalf("seed %d: %d places of %d are given, %d are wanted; rate %d of %d", seed, places, l.Concurrent, all, rate, l.RateMilli)
		}
		for i, a := range stored {
			for k, b := range stored {
				if a.Places > b.Places+1 && b.Places < wanted[k] {
					t.Fatalf("seed %d: %s has %d places, and %s has %d and wants %d", seed, stored[i].Holder, a.Places, b.Holder, b.Places, wanted[k])
				}
			}
		}
	}
}

// With fewer places than holders each has one now and then.
func TestGrantsTakeTurns(t *testing.T) {
	l := Limit{Agent: "pay", Concurrent: 1}
	had := map[string]int{}
	stored := make([]Grant, 5)
	for turn := range 200 {
		now := birthTime.Add(time.Duration(turn) * limitTurn)
		for range 2 {
			for i := range stored {
				mine := Grant{Holder: fmt.Sprint("n", i), Wanted: 1, Until: now.Add(time.Hour)}
				stored[i] = l.Claim(now, mine, stored).Grant // its last command has ended
			}
		}
		for _, g := range stored {
			had[g.Holder] += g.Places
		}
	}
	for i := range stored {
		if n := had[fmt.Sprint("n", i)]; n < 10 {
			t.Errorf("holder %d had the place in %d of 200 turns", i, n)
		}
	}
}

// What is used cannot be taken away, and what has ended counts no more.
func TestGrantFloor(t *testing.T) {
	l, now := Limit{Agent: "pay", Concurrent: 4}, birthTime
	others := []Grant{{Holder: "b", Wanted: 9, Places: 1, Until: now.Add(time.Second)}, {Holder: "c", Wanted: 9, Places: 9, Until: now}}
	got := l.Claim(now, Grant{Holder: "a", Wanted: 9, Places: 4}, others)
	if got.Grant.Places != 4 || got.Fair.Places != 2 {
		t.Errorf("over its share: %+v", got)
	}
	one, taken := Limit{Agent: "pay", Concurrent: 1, RateMilli: 1000}, []Grant{{Holder: "b", Places: 1, RateMilli: 1000, Until: now.Add(time.Hour)}}
	for turn := range 20 { // an undo takes a place that there is not: no do may follow it
		got := one.Claim(now.Add(time.Duration(turn)*limitTurn), Grant{Holder: "a", Wanted: 9, Places: 1}, taken)
		if got.Grant.Places != 1 || got.Fair.Places != 0 || got.Fair.RateMilli != 0 {
			t.Fatalf("beyond the limit: %+v", got)
		}
	}
	if got := l.Claim(now.Add(time.Second), Grant{Holder: "a", Wanted: 9}, others); got.Grant.Places != 4 {
		t.Errorf("when all others have ended: %+v", got)
	}
}

// A limit that cannot be is refused by the field that is wrong.
func TestCheckLimit(t *testing.T) {
	for _, c := range []struct {
		limit Limit
		want  string
	}{
		{Limit{Agent: "pay", Concurrent: 1}, ""}, {Limit{Agent: "pay", RateMilli: 1}, ""},
		{Limit{Agent: "pay", Concurrent: ConcurrentMax, RateMilli: RateMilliMax}, ""},
		{Limit{Agent: "pay"}, "limit of agent pay: neither concurrent nor rate is given"},
		{Limit{Agent: "pay", Concurrent: -1}, "concurrent: -1, want 0 (any number) to 1000000"},
		{Limit{Agent: "pay", Concurrent: ConcurrentMax + 1}, "concurrent: 1000001, want 0 (any number) to 1000000"},
		{Limit{Agent: "pay", RateMilli: -1500}, "rate: -1.5 a second, want 0 (any number), or 0.001 to 1000000"},
		{Limit{Agent: "pay", Key: "input.c", KeyConcurrent: 1}, ""}, {Limit{Agent: "pay", Concurrent: 9, Key: "input.c", KeyRateMilli: 1}, ""},
		{Limit{Agent: "pay", Concurrent: 9, Key: "input.c"}, `key: "input.c" is given, but neither key_concurrent nor key_rate is`},
		{Limit{Agent: "pay", Concurrent: 9, KeyConcurrent: 1}, "key: it is not given, but key_concurrent or key_rate is"},
		{Limit{Agent: "pay", Key: "input.c", KeyConcurrent: -1}, "key_concurrent: -1, want 0 (any number) to 1000000"},
		{Limit{Agent: "pay", Key: "input.c", KeyRateMilli: RateMilliMax + 1000}, "key_rate: 1.000001e+06 a second, want 0 (any number), or 0.001 to 1000000"},
		{Limit{Agent: "pay", Key: strings.Repeat("x", LimitKeyMax+1), KeyConcurrent: 1}, "key: 1025 bytes, the most is 1024"},
	} {
		got := ""
		if err := c.limit.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.limit, got, c.want)
		}
	}
	if (&Limit{Agent: "a b", Concurrent: 1}).Check() == nil {
		t.Error("an agent's name that cannot be is taken")
	}
}

// What bounds a key is not what bounds the agent in all.
func TestClaimOfKey(t *testing.T) {
	l, now := Limit{Agent: "pay", Concurrent: 8, Key: "input.c", KeyConcurrent: 3}, birthTime
	others := []Grant{{Keyed: true, Key: "x", Holder: "b", Wanted: 9, Places: 1, Until: now.Add(time.Second)}}
	if got := l.Claim(now, Grant{Keyed: true, Key: "x", Holder: "a", Wanted: 9}, others); got.Grant.Places != 2 && got.Grant.Places != 1 || got.Grant.Key != "x" || got.Limit != l {
		t.Errorf("of a key: %+v", got)
	}
	if got := l.Claim(now, Grant{Holder: "a", Wanted: 9}, nil); got.Grant.Places != 8 {
		t.Errorf("in all: %+v", got)
	}
}

// A long key is its hash: two of them are not the same by their beginnings.
func TestKeyOf(t *testing.T) {
	long := strings.Repeat("x", KeyBytesMax)
	if KeyOf(long) != long || KeyOf("") != "" {
		t.Error("a short key is not itself")
	}
	if a, b := KeyOf(long+"1"), KeyOf(long+"2"); a == b || len(a) > KeyBytesMax {
		t.Errorf("long keys are %q and %q", a, b)
	}
}

// Of steps of one agent that has room for one command, one begins by an event.
func TestFewBeginsOne(t *testing.T) {
	p := stepsPlan(4)
	for i := 1; i < 4; i++ {
		p.Steps[i].After, p.Steps[i].Agent = []int{0}, "agent.x"
	}
	p.Steps[3].Agent = "agent.y"
	r := newRig(t, p)
	r.birth(0)
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Result: []byte(`1`), Few: StepSetOf(1, 2, 3)})
	if s := r.task.Steps; s[1].Out == 0 || s[2].Out != 0 || s[3].Out == 0 {
		t.Fatalf("%s: out are %d, %d, %d", r.task, s[1].Out, s[2].Out, s[3].Out)
	}
	r.must(Event{Kind: EventClaim, Few: StepSetOf(2)})
	if r.task.Steps[2].Out == 0 {
		t.Fatal("the other does not begin when there is room")
	}
}

// Whose grants count is known when each partition is counted as of its owner now.
func TestHolders(t *testing.T) {
	one, two := Counting{Partition: 1, Epoch: 3, Counted: 3, Holder: "a"}, Counting{Partition: 2, Epoch: 5, Counted: 5, Holder: "b"}
	if is := Holders([]Counting{one, two}); !is["a"] || !is["b"] || len(is) != 2 {
		t.Errorf("holders are %v", is)
	}
	two.Counted = 4
	if is := Holders([]Counting{one, two}); is != nil {
		t.Errorf("while a partition is not counted holders are %v", is)
	}
	if Holders(nil) != nil {
		t.Error("holders are known where nothing is counted")
	}
}
