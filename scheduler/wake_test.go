package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"duly.dev/duly/internal/core"
)

// Wakes come out by time, whatever went in and whichever partition was
// forgotten on the way.
func TestWakeHeap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var h wakeHeap
		var want []core.Instant
		forgotten := random.IntN(3)
		for n := range random.IntN(40) {
			w := wake{at: core.Instant(random.IntN(20)), partition: n % 3}
			h.push(w)
			if w.partition != forgotten {
				want = append(want, w.at)
			}
		}
		h.forget(forgotten)
		slices.Sort(want)
		var got []core.Instant
		for len(h) > 0 {
			got = append(got, h.pop().at)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("came out %v, want %v", got, want)
		}
	}
}
