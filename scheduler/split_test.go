package scheduler_test

import (
	"fmt"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// tooLarge makes the database refuse batches of more than so many tasks.
func (r *rig) tooLarge(most int) {
	r.store.BeforeCommit = func(b *core.Batch) error {
		if len(b.Writes) > most {
			return fmt.Errorf("%d tasks: %w", len(b.Writes), core.ErrBatchRefused)
		}
		return nil
	}
}

// A batch that is more than the database takes at a time is stored in parts, and no
// task is put in error for it; a row that is refused is found in its part.
// covers: B2
func TestBatchTooLargeIsSplit(t *testing.T) {
	for most := 1; most <= 5; most++ {
		for _, poisoned := range []int64{0, 1} {
			r := newRig(t, scheduler.Config{})
			r.tooLarge(most)
			if poisoned > 0 {
				r.refuse(false, "t4")
			}
			r.tasks(0, orders(9)...)
			r.cycle()
			if got := r.shard.Stats.Poisoned; got != poisoned {
				t.Fatalf("%d at a time: %d poisoned, want %d", most, got, poisoned)
			}
			r.finish()
			for i := 1; i <= 9; i++ {
				want := core.StateProcessed
				if poisoned > 0 && i == 4 {
					want = core.StateError
				}
				r.state(fmt.Sprintf("t%d", i), want)
			}
			r.checkTold()
		}
	}
}
