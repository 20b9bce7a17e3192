package natsbus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// covers: I21, G4
func TestTell(t *testing.T) {
	c := ready(t)
	endings := make([]core.Ending, 0, 1300)
	for i := range 1300 {
		endings = append(endings, core.Ending{Partition: 3, EndNumber: int64(i), ID: fmt.Sprint("o-", i), Type: []string{"order", "trip"}[i%2],
			State: core.StateProcessed, Seq: 6, CreatedAt: at, At: at})
	}
	endings[10].State, endings[11].State = core.StateUndone, core.StateError
	want := fmt.Sprint(endings)
	done := make(chan error, 2)
	c.PublishEndings(endings, func(err error) { done <- err })
	clear(endings) // ours again
	if err := receive(t, "the stream's word", done); err != nil {
		t.Fatal(err)
	}
	c.PublishEndings(nil, func(err error) { done <- err })
	if err := receive(t, "nothing to tell", done); err != nil {
		t.Fatal(err)
	}
	if err := c.PublishRefusals(within(t), []core.Status{{ID: "x y", Type: "no type", Status: core.StatusRefused, Code: 400, At: at}}); err != nil {
		t.Fatal(err)
	}
	got := make([]core.Ending, 1300)
	subjects := map[string]int{}
	stream, err := c.js.Stream(within(t), names.StreamEvents())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(within(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		subjects[m.Subject]++
		if strings.HasSuffix(m.Subject, core.StatusRefused) {
			continue
		}
		list, err := wire.DecodeEndings(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			got[e.EndNumber] = e
		}
	}
	if fmt.Sprint(got) != want {
		t.Error("not what was told")
	}
	if w := map[string]int{"duly.events.order.processed": 2, "duly.events.trip.processed": 2, "duly.events.order.undone": 1, "duly.events.trip.error": 1, "duly.events._.refused": 1}; !reflect.DeepEqual(subjects, w) {
		t.Errorf("subjects %v, want %v", subjects, w)
	}
}

// A message each would be a sync each, when thousands are undone at once.
//
// covers: E9
func TestTellManyUndone(t *testing.T) {
	c := ready(t)
	var endings []core.Ending
	for i := range wire.EventsMax + 1 {
		for _, state := range []core.State{core.StateUndone, core.StateError} {
			endings = append(endings, core.Ending{Partition: 3, EndNumber: int64(len(endings)), ID: fmt.Sprint("o-", i), Type: "order", State: state,
				Seq: 6, Step: "charge", Error: "late", CreatedAt: at, At: at})
		}
	}
	tell(t, c, endings...)
	stream, err := c.js.Stream(within(t), names.StreamEvents())
	if err != nil {
		t.Fatal(err)
	}
	got := make([]core.Ending, len(endings))
	last := stream.CachedInfo().State.LastSeq
	for seq := uint64(1); seq <= last; seq++ {
		m, err := stream.GetMsg(within(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		list, err := wire.DecodeEndings(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			got[e.EndNumber] = e
			if want := "duly.events.order." + string(e.State); m.Subject != want {
				t.Fatalf("%s told on %s", want, m.Subject)
			}
		}
		if s, err := wire.DecodeStatus(m.Data); err != nil || (s.ID != "") != (len(list) == 1) {
			t.Fatalf("%d endings: %+v, %v, want a lone one to be a status", len(list), s, err)
		}
	}
	if !reflect.DeepEqual(got, endings) {
		t.Error("not what was told")
	}
	if last != 4 {
		t.Errorf("%d messages, want a full one and a lone ending of each state", last)
	}
}

// What ended with long errors is told also where messages are small.
func TestTellManyWithLongErrors(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{MaxPayload: 64 << 10}).ClientURL())
	setUp(t, c, StreamConfig{})
	endings := make([]core.Ending, wire.EventsMax)
	for i := range endings {
		endings[i] = core.Ending{Partition: 3, EndNumber: int64(i), ID: fmt.Sprint("o-", i), Type: "order", State: core.StateUndone, Error: strings.Repeat("late ", 200), CreatedAt: at, At: at}
	}
	tell(t, c, endings...)
	stream, err := c.js.Stream(within(t), names.StreamEvents())
	if err != nil {
		t.Fatal(err)
	}
	var got []core.Ending
	for seq := range stream.CachedInfo().State.LastSeq {
		m, err := stream.GetMsg(within(t), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		list, err := wire.DecodeEndings(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, list...)
	}
	if !reflect.DeepEqual(got, endings) {
		t.Errorf("%d endings are told, want %d", len(got), len(endings))
	}
}

// covers: inv10
func TestTellFails(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL()) // without streams
	done := make(chan error, 1)
	c.PublishEndings([]core.Ending{{ID: "a", Type: "b", State: core.StateProcessed}, {ID: "a", Type: "b", State: core.StateUndone}}, func(err error) { done <- err })
	if err := receive(t, "the outcome", done); !isBusy(err) {
		t.Errorf("%v", err)
	}
}

// One part that failed fails the whole, whichever ends last.
func TestTallyKeepsTheFailure(t *testing.T) {
	var ended []error
	c := &tally{left: 1, done: func(err error) { ended = append(ended, err) }}
	c.begin()
	c.begin()
	c.end(nil)
	c.end(errBusy)
	c.end(nil)
	if len(ended) != 1 || !errors.Is(ended[0], errBusy) {
		t.Errorf("ended with %v, want the failure, once", ended)
	}
}

// covers: S25
func TestStatuses(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	live, mine := make(chan core.Status, 8), make(chan core.Status, 8)
	own, err := c.OnStatus("status.me", func(s core.Status) { mine <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer own.Stop()
	sub, err := c.OnStatus(names.LiveSubject("order", "o-1"), func(s core.Status) { live <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	want := core.Status{ID: "o-1", Type: "order", Status: "undone", Error: "card", At: at}
	other := want
	other.ID = "o-2"
	c.Live(other)
	c.Live(core.Status{ID: "a b", Type: "order"}) // no subject for it
	c.Live(want)
	c.Notify("", want)
	c.Notify("duly.live.order.o-1", want) // never on Duly's own subjects
	c.Notify("status.me", want)
	if got := receive(t, "live", live); got != want {
		t.Errorf("%+v", got)
	}
	if got := receive(t, "notice", mine); got != want {
		t.Errorf("%+v", got)
	}
	nothing(t, "live", live)
}

func TestDead(t *testing.T) {
	t.Parallel()
	c := ready(t)
	h := nats.Header{"Duly-Reply-To": {"x"}, "Nats-Expected-Last-Sequence": {"99"}}
	if err := c.Dead(within(t), names.StreamTasks(), "duly.tasks.3.pack", []byte("junk"), "pack has version 9", wire.Header(h)); err != nil {
		t.Fatal(err)
	}
	if err := c.Dead(within(t), names.StreamTasks(), "duly.tasks.3.pack", make([]byte, c.MaxPayload()), "too long", nil); err != nil {
		t.Fatal(err)
	}
	stream, err := c.js.Stream(within(t), names.StreamDead())
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(within(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "duly.dead.DULY_TASKS" || string(m.Data) != "junk" || m.Header.Get(wire.HeaderCause) != "pack has version 9" ||
		m.Header.Get(wire.HeaderSubject) != "duly.tasks.3.pack" || m.Header.Get(wire.HeaderReplyTo) != "x" {
		t.Errorf("%+v", m)
	}
	if m, err = stream.GetMsg(within(t), 2); err != nil || !strings.Contains(m.Header.Get(wire.HeaderCause), "cut from 8388608 bytes") {
		t.Errorf("%v, %v", m.Header, err)
	}
}

// What is stored after its caller has gone is stored again by its successor.
func TestNothingStoredAfterTheEnd(t *testing.T) {
	c := ready(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for stream, store := range map[string]func(context.Context) error{
		names.StreamDead():   func(ctx context.Context) error { return c.Dead(ctx, names.StreamTasks(), "x", nil, "", nil) },
		names.StreamEvents(): func(ctx context.Context) error { return c.PublishRefusals(ctx, []core.Status{{ID: "a", Type: "b"}}) },
		names.StreamControl(): func(ctx context.Context) error {
			_, err := c.PublishControl(ctx, 3, &core.Control{Kind: core.EventCancel, ID: "a", Type: "b"})
			return err
		},
	} {
		if err := store(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want %v", stream, err, context.Canceled)
		}
		if err := store(within(t)); err != nil {
			t.Errorf("%s: %v", stream, err)
		}
		s, err := c.js.Stream(within(t), stream)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().State.Msgs; n != 1 {
			t.Errorf("%s: %d messages, want only that of the live context", stream, n)
		}
	}
}

// Of an outcome and an end that are both there, a select takes either.
func TestAwaitPrefersTheOutcome(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	got := make(chan int, 1)
	if _, err := await(ctx, got); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	for range 100 {
		got <- 7
		if v, err := await(ctx, got); v != 7 || err != nil {
			t.Fatalf("%d, %v, want the outcome that is there", v, err)
		}
	}
}

// covers: S15
func TestPlansAndAsk(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	plans, err := c.ServePlans(func(spec []byte) wire.PlanAnswer {
		p, err := wire.DecodePlan(spec)
		if err != nil {
			return wire.PlanAnswer{Error: &wire.APIError{Code: 400, Description: err.Error()}}
		}
		return wire.PlanAnswer{Name: p.Name, Version: p.Version, Stored: true}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer plans.Stop()
	m, err := c.nc.RequestWithContext(within(t), names.SubjectPlansApply(), []byte(samplePlanJSON))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := wire.DecodePlanAnswer(m.Data); err != nil || a.Name != "order" || a.Version != 2 || !a.Stored {
		t.Errorf("%+v, %v", a, err)
	}
	if m, err = c.nc.RequestWithContext(within(t), names.SubjectPlansApply(), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.DecodePlanAnswer(m.Data); err == nil || !strings.Contains(err.Error(), "plan cannot work") {
		t.Errorf("%v", err)
	}
	changed := make(chan struct{}, 1)
	news, err := c.OnPlansChanged(func() { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer news.Stop()
	if err := c.AnnouncePlans(); err != nil {
		t.Fatal(err)
	}
	receive(t, "announcement", changed)

	ask, err := c.ServeAsk(func(r *AskRequest) {
		if r.Control.ID == "gone" {
			r.Refuse(404, 7041, "no such task", 0)
			return
		}
		r.State, r.Outcome = "undone", "nothing changes"
		r.Accept(7, 3)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ask.Stop()
	m, err = c.nc.RequestWithContext(within(t), names.AskSubject("cancel"), []byte(`{"v":1,"kind":"cancel","id":"o-1","type":"order","even_if_unknow":true}`))
	if err != nil || !strings.Contains(string(m.Data), "even_if_unknow") || !strings.Contains(string(m.Data), "400") {
		t.Errorf("a field that is not known: %v, %v", m, err)
	}
	for _, x := range []struct {
		kind, id, want string
	}{{"cancel", "o-1", ""}, {"cancel", "gone", "no such task"}, {"undo", "o-1", "carries a request to cancel"}, {"overdue", "o-1", "is not duly.ask."}} {
		data := wire.AppendControl(nil, &core.Control{Kind: core.EventCancel, ID: x.id, Type: "order"})
		m, err := c.nc.RequestWithContext(within(t), names.AskSubject(x.kind), data)
		if err != nil {
			t.Fatal(err)
		}
		a, err := wire.DecodeSubmitAnswer(m.Data)
		if x.want == "" && (err != nil || a != wire.SubmitAnswer{Stream: names.StreamControl(), Seq: 7, Task: "o-1", Partition: 3, State: "undone", Outcome: "nothing changes"}) || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s %s: %+v, %v", x.kind, x.id, a, err)
		}
	}
}

// TestNoSubscriptionIsLeft: one whose limits cannot be set is ended.
func TestNoSubscriptionIsLeft(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	before := c.nc.NumSubscriptions()
	refused := errors.New("no limits today")
	setPending = func(*nats.Subscription, int, int) error { return refused }
	defer func() { setPending = (*nats.Subscription).SetPendingLimits }()
	if sub, err := c.ServeReplies(3, func(core.Reply) {}, nil); !errors.Is(err, refused) || sub != nil {
		t.Errorf("a subscription: %v, %v", sub, err)
	}
	c.PublishPack(3, []core.Submission{{Type: "order", ID: "o-1", Input: []byte("1")}}, func(_ uint64, err error) {
		if !errors.Is(err, refused) {
			t.Errorf("the inbox of confirmations: %v", err)
		}
	})
	if n := c.nc.NumSubscriptions(); n != before {
		t.Errorf("%d subscriptions, %d before", n, before)
	}
}

// TestLimitsAreSetOnce: of subscriptions whose bounds are their own as well; with the common ones first, more than that could
// come to wait.
func TestLimitsAreSetOnce(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	var set [][2]int
	setPending = func(sub *nats.Subscription, messages, bytes int) error {
		set = append(set, [2]int{messages, bytes})
		return sub.SetPendingLimits(messages, bytes)
	}
	defer func() { setPending = (*nats.Subscription).SetPendingLimits }()
	submits, err := c.ServeSubmit(func(*SubmitRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	defer submits.Stop()
	sender, err := c.NewSender(Replies{})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	if want := [][2]int{{requestsMessagesMax, requestsBytesMax}, {pendingMessagesMax, batchesBytesMax}}; !slices.Equal(set, want) {
		t.Errorf("the limits that were set: %v, want %v", set, want)
	}
}

// TestSubscriptionStop: nothing is lost that had arrived, nothing runs after.
func TestSubscriptionStop(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	var calls atomic.Int64
	gate := make(chan struct{})
	sub, err := c.ServeReplies(3, func(core.Reply) { <-gate; calls.Add(1) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 50
	for i := range n {
		if err := c.nc.Publish(names.ReplySubject(3, 1, int64(i)), []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nc.Publish("duly.reply.3.nonsense", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { close(gate) })
	sub.Stop()
	sub.Stop() // again is fine
	if got := calls.Load(); got != n {
		t.Errorf("%d calls, want %d", got, n)
	}
	if d := c.Dropped(); d != 0 {
		t.Errorf("%d dropped", d)
	}
}

// TestAskOfOneType: what is asked at the subject of a type is about that type, whatever
// the request says; without a type it has the subject's.
func TestAskOfOneType(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	ask, err := c.ServeAsk(func(r *AskRequest) {
		r.Outcome = "about " + r.Control.Type
		r.Accept(7, 3)
	}, func(r *ReadRequest) { r.Answer([]byte("about " + r.Type + r.List.Type)) })
	if err != nil {
		t.Fatal(err)
	}
	defer ask.Stop()
	for _, x := range []struct{ subject, data, want string }{
		{"duly.ask.cancel.order", `{"v":1,"kind":"cancel","id":"o-1"}`, "about order"},
		{"duly.ask.cancel.order", `{"v":1,"kind":"cancel","id":"o-1","type":"order"}`, "about order"},
		{"duly.ask.cancel.order", `{"v":1,"kind":"cancel","id":"o-1","type":"refund"}`, "carries a request about type refund"},
		{"duly.ask.cancel.order", `{"v":1,"kind":"undo","id":"o-1","type":"order"}`, "carries a request to undo"},
		{"duly.ask.cancel.order.x", `{"v":1,"kind":"cancel","id":"o-1","type":"order"}`, "is not duly.ask."},
		{"duly.ask.get.order", `{"v":1,"id":"o-1"}`, "about order"},
		{"duly.ask.get.order", `{"v":1,"id":"o-1","type":"refund"}`, "carries a request about type refund"},
		{"duly.ask.list.order", `{"v":1}`, "about order"},
		{"duly.ask.list.order", `{"v":1,"type":"refund"}`, "carries a request about type refund"},
		{"duly.ask.list", `{"v":1,"type":"refund"}`, "about refund"},
	} {
		m, err := c.nc.RequestWithContext(within(t), x.subject, []byte(x.data))
		if err != nil || !strings.Contains(string(m.Data), x.want) {
			t.Errorf("%s %s: %v, %v, want %s", x.subject, x.data, m, err, x.want)
		}
	}
}
