package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Endings the event stream refuses are told again until it takes them; until
// then they count against the partition, and the mark stays.
//
// covers: E9, inv10
func TestTellAgain(t *testing.T) {
	r := newRig(t, scheduler.Config{TellRetry: time.Second})
	r.bus.tellErr = errCut
	r.tasks(0, core.Submission{Type: "unknown", ID: "t1"}, core.Submission{Type: "unknown", ID: "t2"})
	r.turn()
	r.turn()
	if at := r.shard.NextWake(); at != r.now.Add(time.Second) {
		t.Fatalf("wakes at %d", at)
	}
	for range 3 {
		r.news()
		r.now = r.shard.NextWake()
		r.turn()
		r.expect("tell t1 error 1", "tell t2 error 2")
		r.turn()
		if r.shard.Load(0) != 2 {
			t.Fatalf("load %d", r.shard.Load(0))
		}
	}
	r.bus.tellErr = nil
	r.now = r.shard.NextWake()
	r.turn()
	r.turn()
	r.checkTold()
	r.now = r.shard.NextWake() // what was committed is recorded outside the store
	r.turn()
	if r.shard.NextWake() != 0 {
		t.Fatal("it is told, yet there is a wake")
	}
}

// While the event stream is away the pauses before endings are told again grow, up to a
// bound, and nothing is logged for each; one ending that it takes ends them.
//
// covers: B12
func TestTellAgainIsPaced(t *testing.T) {
	r := newRig(t, scheduler.Config{TellRetry: time.Second})
	r.bus.tellErr = errCut
	r.tasks(0, core.Submission{Type: "unknown", ID: "t1"})
	r.turn()
	r.turn()
	for _, pause := range []time.Duration{1, 2, 4, 8, 8, 8} {
		if at := r.shard.NextWake(); at != r.now.Add(pause*time.Second) {
			t.Fatalf("pause %v, want %ds", at.Sub(r.now), pause)
		}
		r.now = r.shard.NextWake()
		r.turn()
		r.turn()
	}
	if logs := r.logs.String(); strings.Contains(logs, "told again") {
		t.Fatalf("logged for each try: %s", logs)
	}
	r.bus.tellErr = nil
	r.tasks(0, core.Submission{Type: "unknown", ID: "t2"})
	r.turn()
	r.turn()
	r.turn()
	r.now = r.shard.NextWake() // what was committed is recorded outside the store
	r.turn()
	if at := r.shard.NextWake(); at != 0 {
		t.Fatalf("the stream takes endings, the rest waits until %d", at)
	}
	r.checkTold()
}

// The endings of a partition are told together, however they were mixed with
// those of others.
func TestToldByPartition(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.adopt(1)
	for i := range 3 {
		r.tasks(0, core.Submission{Type: "unknown", ID: fmt.Sprintf("a%d", i)})
		r.tasks(1, core.Submission{Type: "unknown", ID: fmt.Sprintf("b%d", i)})
	}
	r.turn()
	if len(r.mail.Told) != 2 || len(r.mail.Told[0].Endings) != 3 || len(r.mail.Told[1].Endings) != 3 {
		t.Fatalf("told %+v", r.mail.Told)
	}
}

// The mark moves only without a gap.
//
// covers: inv10
func TestToldOutOfOrder(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bus.hold = true
	for _, id := range []string{"t1", "t2", "t3"} {
		r.tasks(0, core.Submission{Type: "unknown", ID: id})
		r.turn()
	}
	epoch, _ := r.shard.Owns(0)
	confirm := func(epoch int64, ends ...int64) {
		m := scheduler.ToldMail{Partition: 0, Epoch: epoch}
		for _, e := range ends {
			m.Endings = append(m.Endings, core.Ending{EndNumber: e})
		}
		r.mail.Told = append(r.mail.Told, m)
		r.flush()
	}
	for _, step := range []struct {
		epoch int64
		end   int64
		told  int64
	}{{epoch, 3, 0}, {epoch + 1, 1, 0}, {epoch, 1, 1}, {epoch, 1, 1}, {epoch, 2, 3}} {
		confirm(step.epoch, step.end)
		if got := r.store.Partition(0).Told; got != step.told {
			t.Fatalf("after %+v the mark is %d", step, got)
		}
	}
}

// A turn of many rounds commits no more than the limit at a time and does the
// same as one round would.
//
// covers: I16
func TestRounds(t *testing.T) {
	var want []string
	for _, max := range []int{1000, 1, 2, 7} {
		r := newRig(t, scheduler.Config{BatchMax: max})
		r.store.BeforeCommit = func(b *core.Batch) error {
			if len(b.Writes) > max {
				t.Errorf("%d writes in a batch of at most %d", len(b.Writes), max)
			}
			return nil
		}
		for i := range 4 {
			r.tasks(0, orders(20)[5*i:5*i+5]...)
		}
		r.turn()
		r.finish()
		var got []string
		for _, s := range orders(20) {
			r.state(s.ID, core.StateProcessed)
			got = append(got, r.store.History(0, s.ID))
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Fatalf("batches of %d change the outcome", max)
		}
		r.checkTold()
	}
}

// Load is what the gate of a partition goes by: tasks in hand and endings that
// are not told.
func TestLoad(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bus.hold = true
	r.tasks(0, orders(3)...)
	r.tasks(0, core.Submission{Type: "unknown", ID: "t4"})
	r.turn()
	if n := r.shard.Load(0); n != 4 {
		t.Fatalf("load %d", n)
	}
	if r.shard.Load(5) != 0 {
		t.Fatal("load of a partition that is not ours")
	}
}

// Endings that the event stream refused are told again by the ownership that wrote them; a
// later one of the same node tells by itself what is not told.
//
// covers: inv10
func TestTellAgainOfAFormerOwnership(t *testing.T) {
	r := newRig(t, scheduler.Config{TellRetry: time.Second})
	r.bus.tellErr = errCut
	r.tasks(0, core.Submission{Type: "unknown", ID: "t1"})
	r.turn()
	r.turn()
	at := r.shard.NextWake()
	r.shard.Drop(0)
	r.bus.tellErr = nil
	r.news()
	r.adopt(0)
	r.expect("tell t1 error 1")
	r.now = at
	r.turn()
	r.now = at.Add(time.Minute)
	r.turn()
	for _, line := range r.news() {
		if strings.HasPrefix(line, "tell") {
			t.Errorf("%s by an ownership that did not write it", line)
		}
	}
	r.checkTold()
}
