package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"duly.dev/duly/internal/core"
)

// Tasks are woken by time, each once, at the earliest instant at which it is to be, but those that have gone meanwhile.
func TestWakeHeap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var h wakeHeap
		p := &partition{inFlight: inFlight{tasks: map[int64]*entry{}, wakes: &h}}
		want := map[int64]core.Instant{}
		for n := range int64(10) {
			p.tasks[n] = &entry{task: &core.Task{Number: n}}
		}
		for range random.IntN(60) {
			n, at := random.Int64N(10), core.Instant(1+random.IntN(20))
			switch before, is := want[n]; {
			case random.IntN(5) == 0:
				p.unwake(p.tasks[n])
				delete(want, n)
			case !is || at < before:
				want[n] = at
				fallthrough
			default:
				p.wake(p.tasks[n], at)
			}
		}
		if len(h) != len(want) {
			t.Fatalf("%d wakes of %d tasks", len(h), len(want))
		}
		var got []core.Instant
		for len(h) > 0 {
			e := h[0]
			if e.wakes != want[e.task.Number] {
				t.Fatalf("task %d is woken at %d, want %d", e.task.Number, e.wakes, want[e.task.Number])
			}
			got = append(got, e.wakes)
			p.unwake(e)
		}
		if !slices.IsSorted(got) {
			t.Fatalf("came out %v", got)
		}
	}
}
