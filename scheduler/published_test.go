package scheduler_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Endings the event stream refuses are published again until it takes them; until
// then they count against the partition, and publishedThrough stays.
//
// covers: E9, inv10
func TestRepublish(t *testing.T) {
	r := newRig(t, scheduler.Config{PublishRetry: time.Second})
	r.bus.publishErr = errCut
	r.tasks(0, core.Submission{Type: "unknown", ID: "t1"}, core.Submission{Type: "unknown", ID: "t2"})
	r.cycle()
	r.cycle()
	if at := r.shard.NextWake(); at != r.now.Add(time.Second) {
		t.Fatalf("wakes at %d", at)
	}
	for range 3 {
		r.news()
		r.now = r.shard.NextWake()
		r.cycle()
		r.expect("publish t1 error 1", "publish t2 error 2")
		r.cycle()
		if r.shard.Load(0) != 2 {
			t.Fatalf("load %d", r.shard.Load(0))
		}
	}
	r.bus.publishErr = nil
	r.now = r.shard.NextWake()
	r.cycle()
	r.cycle()
	r.checkTold()
	r.now = r.shard.NextWake() // what was committed is recorded outside the store
	r.cycle()
	if r.shard.NextWake() != 0 {
		t.Fatal("it is published, yet there is a wake")
	}
}

// A partition whose endings cannot be read is let go. Those of the shard's others are published again all the same.
func TestRepublishBesideALostPartition(t *testing.T) {
	r := newRig(t, scheduler.Config{PublishRetry: time.Second})
	store := &hideReads{MemStore: r.store, read: "Untold"}
	r.reads = store
	r.start("n1")
	for p := range 2 {
		r.adopt(p)
	}
	r.bus.publishErr = errCut
	for p := range 2 {
		r.tasks(p, core.Submission{Type: "unknown", ID: fmt.Sprint("t", p)})
	}
	r.cycle()
	r.cycle()
	r.bus.publishErr, store.fails = nil, errCut
	r.now = r.shard.NextWake()
	if lost, err := r.try(false); !slices.Equal(lost, []int{0}) || !errors.Is(err, errCut) {
		t.Fatalf("lost %v, %v", lost, err)
	}
	for range 3 {
		r.flush()
	}
	if is := r.store.Partition(1); is.Told != 1 {
		t.Errorf("partition 1 has published %d of 1 endings", is.Told)
	}
}

// Tasks that have begun go on while the event stream is away for long. What has ended is not kept in memory until then: a try
// publishes a page that is read from the store, and the stream gets the next one when it has taken that.
//
// covers: L7
func TestEventsAwayForLong(t *testing.T) {
	r := newRig(t, scheduler.Config{PublishRetry: time.Second, InFlight: 8})
	r.bus.publishErr = errCut
	const n, page = 2500, 1000
	for i := 0; i < n; i += 100 {
		for k := range 100 {
			r.tasks(0, core.Submission{Type: "unknown", ID: fmt.Sprint("t", i+k)})
		}
		r.cycle()
	}
	r.bus.most = 0
	for range 3 {
		r.now = r.shard.NextWake()
		r.cycle()
		if r.cycle(); r.bus.most != page {
			t.Fatalf("%d endings are published at a time, want %d", r.bus.most, page)
		}
	}
	r.bus.publishErr = nil
	for range 4 * n / page {
		r.now = max(r.now, r.shard.NextWake())
		r.flush()
	}
	if r.checkTold(); r.store.Partition(0).Told != n || r.bus.most != page {
		t.Errorf("told %d of %d, %d of them at a time, want %d", r.store.Partition(0).Told, n, r.bus.most, page)
	}
}

// While the event stream is away the pauses before endings are published again grow, up to a
// bound, and nothing is logged for each; one ending that it takes ends them.
//
// covers: B12
func TestRepublishIsPaced(t *testing.T) {
	r := newRig(t, scheduler.Config{PublishRetry: time.Second})
	r.bus.publishErr = errCut
	r.tasks(0, core.Submission{Type: "unknown", ID: "t1"})
	r.cycle()
	r.cycle()
	for _, pause := range []time.Duration{1, 2, 4, 8, 8, 8} {
		if at := r.shard.NextWake(); at != r.now.Add(pause*time.Second) {
			t.Fatalf("pause %v, want %ds", at.Sub(r.now), pause)
		}
		r.now = r.shard.NextWake()
		r.cycle()
		r.cycle()
	}
	if logs := r.logs.String(); strings.Contains(logs, "again") {
		t.Fatalf("logged for each try: %s", logs)
	}
	r.bus.publishErr = nil
	r.tasks(0, core.Submission{Type: "unknown", ID: "t2"})
	r.cycle()
	r.cycle()
	r.cycle()
	r.now = r.shard.NextWake() // what was committed is recorded outside the store
	r.cycle()
	if at := r.shard.NextWake(); at != 0 {
		t.Fatalf("the stream takes endings, the rest waits until %d", at)
	}
	r.checkTold()
}

// The endings of a partition are published together, however they were mixed with
// those of others.
func TestPublishedByPartition(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.adopt(1)
	for i := range 3 {
		r.tasks(0, core.Submission{Type: "unknown", ID: fmt.Sprintf("a%d", i)})
		r.tasks(1, core.Submission{Type: "unknown", ID: fmt.Sprintf("b%d", i)})
	}
	r.cycle()
	if len(r.mail.Published) != 2 || len(r.mail.Published[0].Endings) != 3 || len(r.mail.Published[1].Endings) != 3 {
		t.Fatalf("published %+v", r.mail.Published)
	}
}

// publishedThrough moves only without a gap.
//
// covers: inv10
func TestPublishedOutOfOrder(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bus.hold = true
	for _, id := range []string{"t1", "t2", "t3"} {
		r.tasks(0, core.Submission{Type: "unknown", ID: id})
		r.cycle()
	}
	epoch, _ := r.shard.Owns(0)
	confirm := func(epoch int64, ends ...int64) {
		m := scheduler.PublishedMail{Partition: 0, Epoch: epoch}
		for _, e := range ends {
			m.Endings = append(m.Endings, core.Ending{EndNumber: e})
		}
		r.mail.Published = append(r.mail.Published, m)
		r.flush()
	}
	for _, step := range []struct {
		epoch int64
		end   int64
		want  int64
	}{{epoch, 3, 0}, {epoch + 1, 1, 0}, {epoch, 1, 1}, {epoch, 1, 1}, {epoch, 2, 3}} {
		confirm(step.epoch, step.end)
		if got := r.store.Partition(0).Told; got != step.want {
			t.Fatalf("after %+v it is %d", step, got)
		}
	}
}

// A cycle of many rounds commits no more than the limit at a time and does the
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
		r.cycle()
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

// Load is what the gate of a partition goes by: tasks in flight and endings that
// are not published.
func TestLoad(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bus.hold = true
	r.tasks(0, orders(3)...)
	r.tasks(0, core.Submission{Type: "unknown", ID: "t4"})
	r.cycle()
	if n := r.shard.Load(0); n != 4 {
		t.Fatalf("load %d", n)
	}
	if r.shard.Load(5) != 0 {
		t.Fatal("load of a partition that is not ours")
	}
}

// Endings that the event stream refused are published again by the ownership that wrote them; a
// later one of the same node publishes by itself what is not published.
//
// covers: inv10
func TestRepublishOfAFormerOwnership(t *testing.T) {
	r := newRig(t, scheduler.Config{PublishRetry: time.Second})
	r.bus.publishErr = errCut
	r.tasks(0, core.Submission{Type: "unknown", ID: "t1"})
	r.cycle()
	r.cycle()
	at := r.shard.NextWake()
	r.shard.Drop(0)
	r.bus.publishErr = nil
	r.news()
	r.adopt(0)
	r.expect("publish t1 error 1")
	r.now = at
	r.cycle()
	r.now = at.Add(time.Minute)
	r.cycle()
	for _, line := range r.news() {
		if strings.HasPrefix(line, "publish") {
			t.Errorf("%s by an ownership that did not write it", line)
		}
	}
	r.checkTold()
}
