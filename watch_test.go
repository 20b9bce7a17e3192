package duly_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// watching is a watch at work, and what may be told to it.
type watching struct {
	*rig
	t    *testing.T
	next func() (duly.Status, error, bool)
}

// watch begins to watch a task, and returns when it listens: it has told the
// state "hello", which is none.
func (r *rig) watch(t *testing.T, id string) *watching {
	t.Helper()
	w := &watching{rig: r, t: t}
	var stop func()
	w.next, stop = iter.Pull2(r.Watch(t.Context(), "order", id))
	t.Cleanup(stop)
	quit, silent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(silent)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				w.live(id, "hello", 0)
			}
		}
	}()
	if got := w.read(); got != "hello" {
		t.Fatalf("first news: %s", got)
	}
	close(quit)
	<-silent
	return w
}

func (w *watching) live(id, state string, code int) {
	w.conn.Live(core.Status{ID: id, Type: "order", Status: state, Code: code, At: 1})
}

// tell stores endings, as "id state".
func (r *rig) tell(t *testing.T, all ...string) {
	t.Helper()
	var endings []core.Ending
	for _, one := range all {
		id, state, _ := strings.Cut(one, " ")
		endings = append(endings, core.Ending{ID: id, Type: "order", State: core.State(state), Step: "ship", Error: "no drone", At: 1})
	}
	told := make(chan error, 1)
	r.conn.PublishEndings(endings, func(err error) { told <- err })
	if err := <-told; err != nil {
		t.Fatal(err)
	}
}

func (w *watching) read() string {
	w.t.Helper()
	status, err, ok := w.next()
	switch {
	case !ok:
		return "end"
	case err != nil:
		return err.Error()
	}
	return string(status.State)
}

func (w *watching) expect(want ...string) {
	w.t.Helper()
	for _, state := range want {
		if got := w.read(); got != state {
			w.t.Errorf("got %s, want %s", got, state)
		}
	}
}

// Each state comes once, however often and by whichever subject it is told, and the end comes last: it
// is believed of the event stream alone.
func TestWatchTellsEachStateOnce(t *testing.T) {
	r := newRig(t)
	w := r.watch(t, "a")
	for _, state := range []string{"received", "received", "processing", "undone", "received", "processing", "undoing"} {
		w.live("a", state, 0)
	}
	w.live("b", "error", 0)
	if _, err := r.conn.NATS().Request("no.subscriber", nil, time.Second); err == nil {
		t.Fatal("an answer without a subscriber")
	}
	w.expect("received", "processing", "undoing")
	r.tell(t, "b error", "c processed", "d processed", "a undone", "a undone")
	w.expect("undone", "end")
}

// The end comes from the event stream alone, so a consumer that is mute must be seen soon.
func TestWatchAsksForHeartbeats(t *testing.T) {
	r := newRig(t)
	requests, err := r.conn.NATS().SubscribeSync("$JS.API.CONSUMER.MSG.NEXT." + wire.Names{}.StreamEvents() + ".*")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.conn.NATS().Flush(); err != nil { // what the watch asks may go by another connection
		t.Fatal(err)
	}
	r.watch(t, "a")
	m, err := requests.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var request struct {
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}
	if err := json.Unmarshal(m.Data, &request); err != nil || request.Heartbeat <= 0 || request.Heartbeat > 2*time.Second {
		t.Errorf("%s: %v, want a heartbeat every two seconds or sooner", m.Data, err)
	}
}

// covers: T6
func TestWatchFindsAnEndInThePast(t *testing.T) {
	r := newRig(t)
	before := time.Now()
	r.tell(t, "x processed", "a processed", "y processed", "b error")
	if got := r.last(t, "a"); got.State != duly.StateProcessed || got.Task != "a" || got.Type != "order" {
		t.Errorf("a: %+v", got)
	}
	if got := r.last(t, "b", duly.Since(before)); got.State != duly.StateError || got.Step != "ship" || got.Error != "no drone" || !got.At.Equal(core.Instant(1).Time()) {
		t.Errorf("b: %+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for status, err := range r.Watch(ctx, "order", "a", duly.Since(time.Now().Add(time.Hour))) {
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "task a of type order") {
			t.Errorf("got %+v, %v", status, err)
		}
	}
}

// A watch hears of the end though the event stream is made again meanwhile: from the new stream, or, where only the stream
// before had it, from the store.
func TestWatchOfAStreamThatIsMadeAgain(t *testing.T) {
	for _, in := range []string{"stream", "store"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for _, end := range []string{"x processed", "y undone", "z error"} {
				r.tell(t, end)
			}
			js, name := r.js(t), wire.Names{}.StreamEvents()
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			remade := make(chan error, 1)
			go func() { remade <- r.remake(ctx, js, name, 3, in == "store") }()
			var last duly.Status
			for status, err := range r.Watch(ctx, "order", "a") {
				if err != nil {
					t.Error(err)
				}
				last = status
			}
			if err := <-remade; err != nil || last.State != duly.StateProcessed {
				t.Errorf("the last news is %+v; %v", last, err)
			}
		})
	}
}

// remake makes the event stream again once a reader has got to a position, and has task a end in the store, or in the new
// stream alone.
func (r *rig) remake(ctx context.Context, js jetstream.JetStream, name string, read uint64, store bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for has := false; !has; {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		for is := range stream.ListConsumers(ctx).Info() {
			has = has || is.Delivered.Stream >= read
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	if store {
		r.mu.Lock()
		r.views["a"] = core.View{ID: "a", Type: "order", State: core.StateProcessed}
		r.mu.Unlock()
	}
	if err := js.DeleteStream(ctx, name); err != nil {
		return err
	}
	// On a busy machine the server may still be writing to what it deletes, and then cannot make it again.
	for {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"duly.events.*.*"}})
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
	if store {
		return nil
	}
	told := make(chan error, 1)
	r.conn.PublishEndings([]core.Ending{{ID: "a", Type: "order", State: core.StateProcessed, At: 1}}, func(err error) { told <- err })
	return <-told
}

// A refusal ends a watch, with the error that Submit would have given.
//
// covers: C2
func TestWatchOfARefusal(t *testing.T) {
	for _, code := range []int{413, 409, 400} {
		for _, first := range []string{"", "processing"} { // told live before
			t.Run(fmt.Sprint(code, first), func(t *testing.T) {
				r := newRig(t)
				w := r.watch(t, "a")
				if first != "" {
					w.live("a", first, 0)
					w.expect(first)
				}
				r.refuseLater(t, "a", code)
				r.tell(t, "a processed")
				status, err, ok := w.next()
				refused, is := errors.AsType[*duly.SubmitError](err)
				if !ok || status.State != duly.StateRefused || status.Code != code || !is || refused.Code != code || refused.Task != "a" || refused.Description != "no" || !errors.Is(err, duly.ErrRefused) {
					t.Errorf("got %+v, %v", status, err)
				}
				w.expect("end")
			})
		}
	}
}

// refuseLater tells that a submission was refused after it was accepted.
func (r *rig) refuseLater(t *testing.T, id string, code int) {
	t.Helper()
	refused := []core.Status{{ID: id, Type: "order", Status: core.StatusRefused, Code: code, Error: "no", At: 1}}
	if err := r.conn.PublishRefusals(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
}

// The end of a task is found however long ago it was: submitting it again tells no end.
//
// covers: C3
func TestWatchLooksAtTheStore(t *testing.T) {
	r := newRig(t)
	r.work(t, &shop{})
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]duly.Status{
		"rich": {Task: "rich", Type: "order", State: duly.StateProcessed},
		"poor": {Task: "poor", Type: "order", State: duly.StateUndone, Step: "credit", Error: "no credit for that much"},
	} {
		order := Order{Cents: 100}
		if id == "poor" {
			order.Cents = 100_000
		}
		receipt, err := Buy.Submit(t.Context(), r.Client, id, order)
		if err != nil {
			t.Fatal(err)
		}
		r.last(t, id, duly.Since(receipt.At))
		// Much later, as far as the stream of events is concerned.
		for name, option := range map[string]duly.WatchOption{"since": duly.Since(time.Now().Add(time.Hour)), "of": duly.Of(receipt)} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			var last duly.Status
			for status, err := range r.Watch(ctx, "order", id, option) {
				if err != nil {
					t.Fatalf("%s %s: %v", name, id, err)
				}
				last = status
			}
			cancel()
			last.At = time.Time{}
			if last != want {
				t.Errorf("%s %s: %+v, want %+v", name, id, last, want)
			}
		}
	}
}

// With its receipt, a watch tells another submission's task from its own.
//
// covers: C2
func TestWatchOfAReceipt(t *testing.T) {
	r := newRig(t)
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	mine, err := Buy.Submit(t.Context(), r.Client, "a", Order{Cents: 1}) // no agent: it is at work
	if err != nil {
		t.Fatal(err)
	}
	r.refuse = func(q *natsbus.SubmitRequest) *wire.RefusedError { // as an ingest that cannot look
		q.Accept(r.conn.Names().StreamTasks(), 7, 0, "")
		return &wire.RefusedError{APIError: wire.APIError{Code: 503}}
	}
	other, err := Buy.Submit(t.Context(), r.Client, "a", Order{Cents: 2})
	if err != nil {
		t.Fatal(err)
	}
	refusals := 0
	for status, err := range r.Watch(t.Context(), "order", "a", duly.Of(other)) {
		if err == nil && status.State != duly.StateRefused {
			continue // a live word about the task that has the id
		}
		refusals++
		refused, is := errors.AsType[*duly.SubmitError](err)
		if !is || refused.Code != 409 || status.State != duly.StateRefused {
			t.Errorf("the other's: %+v, %v", status, err)
		}
	}
	if refusals != 1 {
		t.Errorf("%d refusals", refusals)
	}
	r.refuseLater(t, "a", 409)
	r.tell(t, "a undone")
	r.mu.Lock()
	view := r.views["a"]
	view.State = core.StateUndone
	r.views["a"] = view
	r.mu.Unlock()
	var states []string
	for status, err := range r.Watch(t.Context(), "order", "a", duly.Of(mine)) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, string(status.State))
	}
	if len(states) == 0 || states[len(states)-1] != "undone" {
		t.Errorf("mine: %v", states)
	}
}

// An end that the task had before it was resubmitted is none: the event stream tells it first.
func TestWatchAfterAResubmission(t *testing.T) {
	r := newRig(t)
	store := func(state core.State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.views["a"] = core.View{ID: "a", Type: "order", State: state, EndedAt: 2}
	}
	r.tell(t, "a error")
	store(core.StateProcessing)
	w := r.watch(t, "a")
	store(core.StateProcessed)
	r.tell(t, "a processed")
	w.expect("processed", "end")
	if got := r.last(t, "a"); got.State != duly.StateProcessed {
		t.Errorf("watched later: %+v", got)
	}
	store(core.StateError)
	if got := r.last(t, "a"); got.State != duly.StateError || !got.At.Equal(core.Instant(2).Time()) {
		t.Errorf("in error once more: %+v", got)
	}
}

func TestWatchEndsEarly(t *testing.T) {
	r := newRig(t)
	for _, err := range r.Watch(t.Context(), "order", "a b") {
		if !errors.Is(err, duly.ErrRefused) {
			t.Errorf("got %v", err)
		}
	}
	r.tell(t, "a processed")
	for range r.Watch(t.Context(), "order", "a") {
		break
	}
	nc, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	client, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	r.tell(t, "b processed")
	w := &watching{rig: r, t: t}
	next, stop := iter.Pull2(client.Watch(t.Context(), "order", "c"))
	defer stop()
	w.next = next
	timer := time.AfterFunc(50*time.Millisecond, nc.Close)
	defer timer.Stop()
	if got := w.read(); !strings.Contains(got, "connection closed") {
		t.Errorf("a connection that closes: %s", got)
	}
}

func TestParseStatus(t *testing.T) {
	data := wire.AppendStatus(nil, &core.Status{ID: "a", Type: "order", Status: core.StatusRefused, Error: "no", Code: 413, At: 1})
	got, err := duly.ParseStatus(data)
	want := duly.Status{Task: "a", Type: "order", State: duly.StateRefused, Error: "no", Code: 413, At: core.Instant(1).Time()}
	if got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := duly.ParseStatus([]byte("hello")); err == nil || got != (duly.Status{}) {
		t.Errorf("what is no status: %+v, %v", got, err)
	}
}

// TestWatchWithoutEvents: a client that may not read the event stream follows its tasks by
// live news and by asking, at once when the news is that the task has ended; it asks
// nothing of JetStream.
//
// covers: C17
func TestWatchWithoutEvents(t *testing.T) {
	r := newRigIn(t, wire.DefaultNamespace, duly.WithoutEvents())
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	api, err := r.conn.NATS().SubscribeSync("$JS.API.CONSUMER.>")
	if err != nil {
		t.Fatal(err)
	}
	gets, err := r.conn.NATS().SubscribeSync(wire.Names{}.AskTypeSubject("get", "order"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.conn.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	store := func(id string, state core.State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.views[id] = core.View{ID: id, Type: "order", State: state, Reason: "no drone", FailedStep: "ship"}
	}
	// One that is not there yet, then goes on, then ends.
	w := &watching{rig: r, t: t}
	next, stop := iter.Pull2(r.Watch(t.Context(), "order", "a"))
	defer stop()
	w.next = next
	go func() {
		_, _ = gets.NextMsg(10 * time.Second)
		w.live("a", "processing", 0)
	}()
	w.expect("processing")
	store("a", core.StateUndone)
	w.live("a", "undone", 0)
	told := time.Now()
	status, err, ok := w.next()
	if took := time.Since(told); took > 1500*time.Millisecond { // without the news: two seconds after the first question
		t.Errorf("the end came %v after the news of it", took)
	}
	if want := (duly.Status{Task: "a", Type: "order", State: duly.StateUndone, Step: "ship", Error: "no drone", At: status.At}); err != nil || !ok || status != want {
		t.Errorf("got %+v, %v, want %+v", status, err, want)
	}
	w.expect("end")
	// An end that no news told: the next question finds it.
	store("b", core.StateProcessing)
	w.next, stop = iter.Pull2(r.Watch(t.Context(), "order", "b"))
	defer stop()
	go func() {
		_, _ = gets.NextMsg(10 * time.Second)
		store("b", core.StateProcessed)
	}()
	w.expect("processed", "end")
	// One that is another submission's.
	r.refuse = func(q *natsbus.SubmitRequest) *wire.RefusedError { // as an ingest that cannot look
		q.Accept(r.conn.Names().StreamTasks(), 7, 0, "")
		return &wire.RefusedError{APIError: wire.APIError{Code: 503}}
	}
	receipt, err := Buy.Submit(t.Context(), r.Client, "c", Order{Cents: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.views["c"] = core.View{ID: "c", Type: "order", State: core.StateProcessing, InputHash: core.HashInput("order", []byte(`{"Cents":2}`))}
	r.mu.Unlock()
	for status, err := range r.Watch(t.Context(), "order", "c", duly.Of(receipt)) {
		if refused, is := errors.AsType[*duly.SubmitError](err); !is || refused.Code != 409 || status.State != duly.StateRefused {
			t.Errorf("got %+v, %v", status, err)
		}
	}
	if n, _, err := api.Pending(); err != nil || n != 0 {
		t.Errorf("%d requests to JetStream, %v", n, err)
	}
}
