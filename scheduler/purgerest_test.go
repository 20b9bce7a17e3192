package scheduler

import (
	"errors"
	"testing"
	"time"
)

// A look that finds nothing is seldom, one that finds something is not, and a short retention is kept.
func TestPurgeRests(t *testing.T) {
	day := Retention{Detail: 24 * time.Hour}
	var r purgePause
	for i, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
		if r = r.after(0, nil, 5, day); r != (purgePause{at: 5, rest: want * time.Second}) {
			t.Errorf("after %d looks that found nothing: %+v, want %d s", i+1, r, want)
		}
	}
	down, soon := errors.New("down"), purgeEvery/2
	if r.after(purgeMost, nil, 5, day) != (purgePause{}) || r.after(3, nil, 5, day) != (purgePause{5, soon, nil}) || r.after(0, down, 5, day) != (purgePause{5, soon, down}) {
		t.Error("no look comes soon after one that found something, or failed")
	}
	for range 9 {
		r = r.after(0, nil, 0, Retention{Detail: 24 * time.Hour, Row: 32 * time.Second})
	}
	if r.rest != 2*time.Second {
		t.Errorf("with rows kept for 32 s: %s, want 2 s", r.rest)
	}
}
