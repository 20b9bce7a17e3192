package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/scheduler"
)

// TestUnreadIsTold: a partition that is not read because somebody paused its consumer at the server is told, and the node
// stays ready.
//
// covers: L14
func TestUnreadIsTold(t *testing.T) {
	t.Parallel()
	s := stands(t, pgtestdb.Installation(t))
	defer func() { s.stop(); <-s.ended }()
	c, err := natsbus.DialToAsk(t.Context(), natsbus.Options{URL: s.cfg.NATSURL, Name: "operator", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	js, err := jetstream.New(c.NATS())
	if err != nil {
		t.Fatal(err)
	}
	pauseAll := func(until time.Time) (paused int) {
		for _, name := range []string{c.Names().StreamTasks(), c.Names().StreamControl()} {
			stream, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			for consumer := range stream.ConsumerNames(t.Context()).Name() {
				if _, err := stream.PauseConsumer(t.Context(), consumer, until); err == nil {
					paused++
				}
			}
		}
		return paused
	}
	until(t, "all are paused", func() bool { return pauseAll(time.Now().Add(time.Hour)) == 2*s.cfg.Partitions })
	if _, err := js.Publish(t.Context(), c.Names().PackSubject(1), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), c.Names().ControlSubject(2), []byte("x")); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	until(t, "their time is over", func() bool { return time.Since(begin) > unreadAfter })
	until(t, "both are told", func() bool {
		lines := strings.Join(s.alerts(condUnread), "\n")
		return strings.Contains(lines, "partition 1: submission 1, of") && strings.Contains(lines, "partition 2: control message 1, of")
	})
	if code, body := s.get(t, "/readyz"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	pauseAll(time.Now())
	until(t, "both are read", func() bool { return strings.Count(s.log.text(), "alert=end name="+condUnread) == 2 })
}

// owns is an owner of some partitions.
type owns struct {
	owner
	snap        scheduler.Snapshot
	full, waits map[int]bool
}

func (o *owns) Snapshot() scheduler.Snapshot { return o.snap }
func (o *owns) Full(p int) bool              { return o.full[p] }
func (o *owns) Waits(p int) bool             { return o.waits[p] }

// TestUnreadWatch: what waits for over 30 s behind a cursor that stands as long is a trouble, unless work in flight or a
// request that is held back explains it; what moves is none, and neither is what cannot be asked.
//
// covers: L14
func TestUnreadWatch(t *testing.T) {
	t.Parallel()
	type world struct {
		own    *owns
		states []core.PartitionState
		first  map[lane]core.Instant // when what waits was stored
		in     core.Instant
		now    core.Instant
		err    error
		back   bool // the clock is set back by an hour, and a look follows
	}
	begin := core.InstantOf(time.Now())
	for name, tt := range map[string]struct {
		change func(w *world) // between the looks
		want   string
	}{
		"nothing waits":         {func(*world) {}, ""},
		"a submission":          {func(w *world) { w.first[lane{1, false}] = begin }, "partition 1"},
		"a control message":     {func(w *world) { w.first[lane{1, true}] = begin }, "partition 1 control"},
		"of another's":          {func(w *world) { w.first[lane{3, false}] = begin }, ""},
		"a young one":           {func(w *world) { w.first[lane{1, false}] = begin.Add(10 * time.Second) }, ""},
		"the cursor moves":      {func(w *world) { w.first[lane{1, false}], w.states[0].Cursor = begin, 6 }, ""},
		"taken over":            {func(w *world) { w.first[lane{1, false}], w.states[0].Epoch = begin, 2 }, ""},
		"full of work":          {func(w *world) { w.first[lane{1, false}], w.own.full[1], w.own.snap.InFlight = begin, true, 1 }, ""},
		"full of nothing":       {func(w *world) { w.first[lane{1, false}], w.own.full[1] = begin, true }, "partition 1"},
		"full, and a control":   {func(w *world) { w.first[lane{1, true}], w.own.full[1], w.own.snap.InFlight = begin, true, 1 }, "partition 1 control"},
		"requests held back":    {func(w *world) { w.first[lane{1, true}], w.own.waits[1] = begin, true }, ""},
		"held back, and a task": {func(w *world) { w.first[lane{1, false}], w.own.waits[1] = begin, true }, "partition 1"},
		"cannot be asked":       {func(w *world) { w.first[lane{1, false}], w.err = begin, errors.New("silent") }, ""},
		"the clock is set back": {func(w *world) { w.first[lane{1, false}], w.back = begin.Add(-time.Hour), true }, "partition 1"},
		"the endpoint":          {func(w *world) { w.in = begin }, "in"},
		"the endpoint, young":   {func(w *world) { w.in = begin.Add(10 * time.Second) }, ""},
	} {
		w := &world{own: &owns{snap: scheduler.Snapshot{Owned: []int{1, 2}}, full: map[int]bool{}, waits: map[int]bool{}},
			states: []core.PartitionState{{Partition: 1, Epoch: 1, Cursor: 5}, {Partition: 2, Epoch: 1}, {Partition: 3, Epoch: 1}}, first: map[lane]core.Instant{}, now: begin}
		u := &unreadWatch{owner: func() owner { return w.own }, now: func() core.Instant { return w.now }, oldestIn: func() core.Instant { return w.in },
			cursors: func(context.Context, []int) ([]core.PartitionState, error) { return w.states, nil },
			first: func(_ context.Context, p int, control bool, cursor uint64) (uint64, core.Instant, error) {
				if at := w.first[lane{p, control}]; at != 0 {
					return cursor + 1, at, w.err
				}
				return 0, 0, w.err
			}}
		if found := u.look(t.Context()); len(found) > 0 {
			t.Errorf("%s: at first %+v", name, found)
		}
		tt.change(w)
		if w.back {
			w.now = begin.Add(-time.Hour)
			u.look(t.Context())
		}
		w.now = w.now.Add(unreadAfter + time.Second)
		var keys []string
		for _, f := range u.look(t.Context()) {
			keys = append(keys, f.Key)
		}
		if got := strings.Join(keys, " "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestUnreadOfMany: where very many partitions stand still a look asks about some, and all are told in the end, and stay so.
//
// covers: L14
func TestUnreadOfMany(t *testing.T) {
	t.Parallel()
	const partitions = 3 * unreadMost / 2
	own, asked, now := &owns{}, 0, core.InstantOf(time.Now())
	var states []core.PartitionState
	for p := range partitions {
		own.snap.Owned = append(own.snap.Owned, p)
		states = append(states, core.PartitionState{Partition: p})
	}
	at := now
	u := &unreadWatch{owner: func() owner { return own }, now: func() core.Instant { return now }, oldestIn: func() core.Instant { return 0 },
		cursors: func(context.Context, []int) ([]core.PartitionState, error) { return states, nil },
		first: func(context.Context, int, bool, uint64) (uint64, core.Instant, error) {
			asked++
			return 1, at, nil
		}}
	u.look(t.Context())
	for i, want := range []int{unreadMost, 2 * unreadMost, 2 * partitions, 2 * partitions} {
		now = now.Add(unreadAfter + time.Second)
		asked = 0
		if found := u.look(t.Context()); len(found) != want || asked > unreadMost {
			t.Errorf("look %d: %d found, %d asked, want %d", i, len(found), asked, want)
		}
	}
	own.snap.Owned = nil
	if found := u.look(t.Context()); len(found) != 0 {
		t.Errorf("not its own any more: %d", len(found))
	}
}
