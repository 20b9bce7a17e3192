package ingest

import (
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// A flood begins when there have been so many unanswered requests for a while. It ebbs
// without being over, and is over when they have been few for as long.
func TestFloodBeginsAndEnds(t *testing.T) {
	const from = 9
	type stretch struct {
		unanswered int64
		looks      int
		every      time.Duration
	}
	tests := []struct {
		name string
		is   []stretch
		want bool
	}{
		{"many, not long enough", []stretch{{from, 9, floodLook}}, false},
		{"many for long enough", []stretch{{from, 10, floodLook}}, true},
		{"many, looked at often", []stretch{{from, 99, floodLook / 10}}, false},
		{"many for long enough, looked at often", []stretch{{from, 100, floodLook / 10}}, true},
		{"twice as many, half as long", []stretch{{2 * from, 5, floodLook}}, true},
		{"twice as many, less than half as long", []stretch{{2 * from, 4, floodLook}}, false},
		{"nearly many", []stretch{{from - 1, 100, floodLook}}, false},
		{"held up for a second, twice", []stretch{{from, 2, time.Second}}, false},
		{"many, few, many", []stretch{{from, 9, floodLook}, {2, 1, floodLook}, {from, 9, floodLook}}, false},
		{"many, some, many", []stretch{{from, 9, floodLook}, {3, 100, floodLook}, {from, 1, floodLook}}, true},
		{"goes on with some", []stretch{{from, 10, floodLook}, {3, 100, floodLook}}, true},
		{"ebbs", []stretch{{from, 10, floodLook}, {2, 9, floodLook}}, true},
		{"ebbs and goes on", []stretch{{from, 10, floodLook}, {2, 8, floodLook}, {3, 1, floodLook}, {2, 9, floodLook}}, true},
		{"is over", []stretch{{from, 10, floodLook}, {2, 10, floodLook}}, false},
		{"is over, and some do not begin one", []stretch{{from, 10, floodLook}, {2, 10, floodLook}, {3, 100, floodLook}}, false},
		{"is over, and the next takes as long", []stretch{{from, 10, floodLook}, {2, 10, floodLook}, {from, 9, floodLook}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := flood{from: from}
			now := core.Instant(0)
			for _, s := range tt.is {
				for range s.looks {
					now = now.Add(s.every)
					f.look(now, s.unanswered)
				}
			}
			if f.is(now) != tt.want {
				t.Errorf("flooded %v, want %v", !tt.want, tt.want)
			}
		})
	}
}

// A limit below three has no third: then the flood is over at no request at all.
func TestFloodOfOne(t *testing.T) {
	f := flood{from: 1}
	now := core.Instant(0)
	for i := range 100 {
		now = now.Add(floodLook)
		f.look(now, int64((110-i)/100))
		if i == 10 && !f.is(now) {
			t.Error("one waits for 100 ms, and it is no flood")
		}
	}
	if f.is(now) {
		t.Error("no request waits, and it is a flood")
	}
}
