package scheduler_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// Submitting an id twice is one task; where the first one stands when the second
// comes makes no difference to what the second hears.
//
// covers: I23, G7, D2, T4, inv9
func TestDuplicates(t *testing.T) {
	same := order("t1")
	other := order("t1")
	other.Input = []byte(`{"of":"else"}`)
	typ := order("t1")
	typ.Type = "refund"
	silent := other
	silent.ReplyTo = ""
	for _, second := range []struct {
		name string
		sub  core.Submission
		want []string
		why  string
	}{
		{"same", same, []string{"notify private.t1 received"}, ""},
		{"other input", other, []string{"refuse t1 409", "notify private.t1 refused"}, "another input"},
		{"other type", typ, []string{"refuse t1 409", "notify private.t1 refused"}, `a task of type "order"`},
		{"other input, no reply-to", silent, []string{"refuse t1 409"}, "another input"},
	} {
		for _, where := range []string{"in the batch", "in flight", "in the store", "in the store, twice in the batch"} {
			t.Run(second.name+" "+where, func(t *testing.T) {
				r := newRig(t, scheduler.Config{InFlight: 8})
				r.store.AddPlan(orderPlan("refund", 1, "a"))
				r.tasks(0, order("t1"))
				if where != "in the batch" {
					r.cycle()
				}
				want := second.want
				if strings.HasPrefix(where, "in the store") {
					r.finish()
					if second.name == "same" {
						want = []string{"notify private.t1 processed"}
					}
				}
				r.news()
				r.tasks(0, second.sub)
				if strings.HasSuffix(where, "twice in the batch") {
					r.tasks(0, second.sub)
				}
				r.cycle()
				checkDuplicate(t, r, want, second.why)
			})
		}
	}
}

func checkDuplicate(t *testing.T, r *rig, want []string, why string) {
	t.Helper()
	news := map[string]int{}
	for _, line := range r.news() {
		news[line]++
		if strings.HasPrefix(line, "do ") && line != "do t1/a/0 try 1" {
			t.Errorf("%s for a duplicate", line)
		}
	}
	for _, line := range want {
		if news[line] == 0 {
			t.Errorf("no %q in %v", line, news)
		}
	}
	if len(want) == 1 && news["refuse t1 409"] > 0 && want[0] != "refuse t1 409" {
		t.Errorf("refused: %v", news)
	}
	for _, s := range r.bus.refused {
		if !strings.Contains(s.Error, why) {
			t.Errorf("refused with %q, want %q in it", s.Error, why)
		}
	}
	if r.shard.Stats.Duplicates == 0 {
		t.Error("no duplicate counted")
	}
	r.finish()
	r.state("t1", core.StateProcessed)
	if n := r.shard.Load(0); n != 0 {
		t.Errorf("load %d after the end", n)
	}
}

// A duplicate of a task whose ending is in the same round hears of that ending
// only once it is committed.
//
// covers: inv3
func TestDuplicateOfATaskThatEndsInTheRound(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	r.answer(r.one(), 0)
	r.tasks(0, order("t1"))
	r.news()
	r.store.BeforeCommit = func(*core.Batch) error { return errCut }
	if _, err := r.try(false); err == nil {
		t.Fatal("no error")
	}
	r.expect()
}

// An id that was cancelled before it came starts nothing, then or later.
//
// covers: inv9
func TestCancelledBeforeSubmitted(t *testing.T) {
	for _, together := range []bool{true, false} {
		r := newRig(t, scheduler.Config{})
		r.control(core.Control{Kind: core.EventCancel, ID: "t1", Type: "order", Actor: "olga"})
		if !together {
			r.cycle()
		}
		r.tasks(0, order("t1"))
		r.cycle()
		if len(r.bus.take()) > 0 || len(r.bus.refused) != 1 || !strings.Contains(r.bus.refused[0].Error, "cancelled before") {
			t.Errorf("together %v: refused %+v", together, r.bus.refused)
		}
		r.state("t1", core.StateUndone)
		r.cycle() // the ending is published
		if n := r.shard.Load(0); n != 0 {
			t.Errorf("load %d", n)
		}
	}
}

// Taking back the effects of a batch of duplicates looks at each effect once, however
// many of the tasks were duplicates.
func TestDuplicatesAreTakenBackInOneWalk(t *testing.T) {
	const n = 300
	r := newRig(t, scheduler.Config{})
	r.tasks(0, orders(n)...)
	r.cycle()
	r.finish() // in the store, and none in flight
	before := r.shard.Stats
	r.news()
	r.tasks(0, orders(n)...)
	r.cycle()
	after := r.shard.Stats
	if got := after.Duplicates - before.Duplicates; got != n {
		t.Fatalf("%d duplicates, want %d", got, n)
	}
	if got := after.Looks - before.Looks; got > 3*n { // received, do, and one to spare
		t.Errorf("%d looks at the effects of %d duplicates", got, n)
	}
	for _, line := range r.news() {
		if strings.HasPrefix(line, "do ") {
			t.Fatalf("%s for a duplicate", line)
		}
	}
}

// blindStore does not find a task that it has, as one that is a moment behind.
type blindStore struct{ *sim.MemStore }

func (blindStore) LoadIDs(context.Context, core.AsOf, []string) ([]core.Saved, error) {
	return nil, nil
}

// A cancel whose task turns out to be there, at the commit alone, is no submission that is
// refused: no notice leaves.
//
// covers: inv9
func TestCancelThatLostTheRace(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.finish()
	r.start("n2")
	r.shard = scheduler.NewShard(r.cfg, blindStore{r.store}, r.bus, slog.New(slog.DiscardHandler), chance("n2"), func(scheduler.PublishedMail) {}, func(scheduler.ProbedMail) {})
	r.adopt(0)
	r.bus.notices = nil
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Type: "order"})
	r.cycle()
	if len(r.bus.refused)+len(r.bus.notices) != 0 || r.shard.Stats.Duplicates != 1 {
		t.Errorf("refused %+v, notified %+v, %d duplicates", r.bus.refused, r.bus.notices, r.shard.Stats.Duplicates)
	}
	r.state("t1", core.StateProcessed)
}
