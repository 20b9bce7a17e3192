package conformance

import (
	"testing"
	"time"
)

// TestSlowWay: an answer is not late by what the run's own messages took meanwhile, and is by more than that.
func TestSlowWay(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1e9 + ms)) }
	for _, c := range []struct {
		name   string
		echoes []echo
		want   time.Duration
	}{
		{"a quick network", []echo{{at(0), at(1)}, {at(100), at(102)}, {at(150), at(151)}}, 2 * time.Millisecond},
		{"one was held up", []echo{{at(80), at(380)}, {at(150), at(151)}}, 300 * time.Millisecond},
		{"one is still on its way", []echo{{at(0), at(1)}, {at(90), time.Time{}}}, 310 * time.Millisecond},
		{"it was slow before", []echo{{at(0), at(99)}, {at(150), at(151)}}, time.Millisecond},
		{"it was slow afterwards", []echo{{at(150), at(151)}, {at(401), at(900)}}, time.Millisecond},
		{"none ever came", []echo{{at(90), time.Time{}}}, 0},
	} {
		d := &desk{echoes: c.echoes}
		if got := d.onTheWay(at(100), at(400)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
