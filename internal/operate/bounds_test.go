package operate

import (
	"context"
	"testing"
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
