package operate

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// TestPlaces: there are as many as there are, one actor has half of them, and what is given back is there again; where
// authentication is off one actor is all.
//
// covers: P14
func TestPlaces(t *testing.T) {
	as := func(a Actor) context.Context { return WithActor(t.Context(), a) }
	vera, olga, open := as(Actor{Name: "vera"}), as(Actor{Name: "olga"}), as(Actor{Name: "local", Open: true})
	p := NewPlaces(4)
	take := func(who context.Context, want bool) func() {
		t.Helper()
		leave, bad := p.Take(who, "streams")
		if (bad == nil) != want || bad != nil && bad.Code != 429 {
			t.Errorf("taken %v: %v", bad == nil, bad)
		}
		return leave
	}
	first, _ := take(vera, true), take(vera, true)
	take(vera, false)
	take(olga, true)
	take(olga, true)
	take(as(Actor{Name: "third"}), false)
	first()
	take(olga, false)
	take(vera, true)
	p = NewPlaces(4)
	for range 4 {
		take(open, true)
	}
	take(open, false)
	if p = NewPlaces(1); len(p.taken) != 0 {
		t.Error("taken")
	}
	take(vera, true)()
	if len(p.taken) != 0 {
		t.Errorf("%v is kept of actors that have left", p.taken)
	}
}

// TestBucketsMakeRoom: those who come when there are many buckets share one, until others have theirs full again.
func TestBucketsMakeRoom(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	b := NewBuckets(time.Second, 2)
	for i := range bucketsMax {
		b.Allow(now, strconv.Itoa(i))
	}
	allowed := func(names ...string) (n int) {
		for _, name := range names {
			for range 2 {
				if b.Allow(now, name) {
					n++
				}
			}
		}
		return n
	}
	if n := allowed("a", "b", "c"); n != 2 {
		t.Errorf("%d of three without a bucket of their own, want the 2 of the one that they share", n)
	}
	now = now.Add(time.Hour)
	if n := allowed("a", "b", "c"); n != 6 {
		t.Errorf("%d of three, an hour later, want 2 of each", n)
	}
}
