package duly_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// rig is a fake server with a client.
type rig struct {
	*fake
	*duly.Client
	nc *nats.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigIn(t, wire.DefaultNamespace)
}

// newRigIn is one whose server has a namespace; options are the client's.
func newRigIn(t *testing.T, namespace string, options ...duly.ClientOption) *rig {
	t.Helper()
	f, err := newFakeIn(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	client, err := duly.NewClient(nc, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	})
	return &rig{f, client, nc}
}

// work runs the shop's agent until the test ends.
func (r *rig) work(t *testing.T, s *shop, options ...duly.AgentOption) {
	t.Helper()
	agent, err := duly.NewAgent(r.nc, append(options, duly.Log(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.serve(agent); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r.await(t)
}

func (r *rig) await(t *testing.T) {
	t.Helper()
	if err := r.fake.await(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// last watches a task to its end.
func (r *rig) last(t *testing.T, id string, options ...duly.WatchOption) duly.Status {
	t.Helper()
	var last duly.Status
	for status, err := range r.Watch(t.Context(), "order", id, options...) {
		if err != nil {
			t.Fatal(err)
		}
		last = status
	}
	return last
}

// covers: S26, I7
func TestTaskFromEndToEnd(t *testing.T) {
	r := newRig(t)
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		id       string
		cents    int
		state    duly.State
		step     string
		standing int
	}{
		{"rich", 100, duly.StateProcessed, "", 1},
		{"poor", 100_000, duly.StateUndone, "credit", 0},
		{"odd", 13, duly.StateUndone, "ship", 0},
	} {
		t.Run(test.id, func(t *testing.T) {
			s := &shop{}
			r.work(t, s, duly.WithLedger(duly.NewMemoryLedger(0, 0)), duly.Running(8), duly.Waiting(8), duly.Retries(1), duly.Drain(time.Second))
			receipt, err := Buy.Submit(t.Context(), r.Client, test.id, Order{Cents: test.cents})
			if err != nil {
				t.Fatal(err)
			}
			if receipt.Task != test.id || receipt.Type != "order" || receipt.Seq == 0 {
				t.Errorf("receipt %+v", receipt)
			}
			last := r.last(t, test.id, duly.Since(receipt.At))
			if last.State != test.state || last.Task != test.id {
				t.Errorf("ended %+v, want %s", last, test.state)
			}
			if n := int(s.paid.Load()); n != test.standing {
				t.Errorf("%d payments stand, want %d", n, test.standing)
			}
		})
	}
}

func TestApplyAgain(t *testing.T) {
	r := newRig(t)
	for range 2 {
		if err := Buy.Apply(t.Context(), r.Client); err != nil {
			t.Fatal(err)
		}
	}
	err := Buy.With(duly.TaskCompleteBy(time.Hour)).Apply(t.Context(), r.Client)
	refused, ok := errors.AsType[*duly.SubmitError](err)
	if !errors.Is(err, duly.ErrRefused) || !ok || refused.Code != 409 || refused.Type != "order" {
		t.Errorf("another content under the same version: %v", err)
	}
	if err := Buy.With(duly.Grace(time.Nanosecond)).Apply(t.Context(), r.Client); !errors.Is(err, duly.ErrRefused) {
		t.Errorf("a plan that cannot work: %v", err)
	}
}

func TestSubmitTriesAgain(t *testing.T) {
	r := newRig(t)
	left := 3
	r.refuse = func(*natsbus.SubmitRequest) *wire.RefusedError {
		if left--; left < 0 {
			return nil
		}
		return &wire.RefusedError{APIError: wire.APIError{Code: 429, Description: "full"}, Retry: time.Millisecond}
	}
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	if _, err := Buy.Submit(t.Context(), r.Client, "a", Order{Cents: 100}); err != nil {
		t.Fatal(err)
	}
	if got := r.seen(); got != "a, a, a, a" {
		t.Errorf("submissions: %s", got)
	}
}

// A version that is deprecated is refused by the code of an id that is taken, and is not told as one: the task does not exist.
func TestDeprecatedIsNotTaken(t *testing.T) {
	r := newRig(t)
	r.refuse = func(*natsbus.SubmitRequest) *wire.RefusedError {
		return &wire.RefusedError{APIError: wire.APIError{Code: 409, ErrCode: 7014, Description: "version 1 is deprecated"}}
	}
	_, err := r.SubmitRaw(t.Context(), "order", "a", []byte("{}"))
	if errors.Is(err, duly.ErrTaken) || !errors.Is(err, duly.ErrRefused) {
		t.Errorf("a deprecated version: %v", err)
	}
	r.refuse = func(*natsbus.SubmitRequest) *wire.RefusedError {
		return &wire.RefusedError{APIError: wire.APIError{Code: 409, ErrCode: wire.ErrCodeTaken, Description: "a task already"}}
	}
	if _, err = r.SubmitRaw(t.Context(), "order", "a", []byte("{}")); !errors.Is(err, duly.ErrTaken) {
		t.Errorf("an id that is taken: %v", err)
	}
}

// TestTooLateAfterAnOpenAnswer: what came too late, or has its answer already, is not told as refused where an earlier try may
// have been taken: the task may be there, and a new id would make it twice.
func TestTooLateAfterAnOpenAnswer(t *testing.T) {
	r := newRig(t)
	answers := func(first, then wire.APIError) func() *wire.RefusedError {
		n := 0
		return func() *wire.RefusedError {
			if n++; n == 1 {
				return &wire.RefusedError{APIError: first}
			}
			return &wire.RefusedError{APIError: then}
		}
	}
	open, full := wire.APIError{Code: 504, ErrCode: 7032, Description: "no answer"}, wire.APIError{Code: 429, ErrCode: 7020, Description: "full"}
	for _, x := range []struct {
		first, then wire.APIError
		refused     bool
	}{
		{open, wire.APIError{Code: 400, ErrCode: 7008, Description: "complete-by has passed"}, false},
		{open, wire.APIError{Code: 409, ErrCode: 7014, Description: "version 1 is deprecated"}, false},
		{open, wire.APIError{Code: 422, ErrCode: 7060, Description: "too little time"}, false},
		{open, wire.APIError{Code: 409, ErrCode: 7042, Description: "another input"}, true},
		{full, wire.APIError{Code: 400, ErrCode: 7008, Description: "complete-by has passed"}, true},
	} {
		answer := answers(x.first, x.then)
		r.mu.Lock()
		r.refuse = func(*natsbus.SubmitRequest) *wire.RefusedError { return answer() }
		r.mu.Unlock()
		_, err := r.SubmitRaw(t.Context(), "order", "late", []byte("{}"))
		if errors.Is(err, duly.ErrRefused) != x.refused || errors.Is(err, duly.ErrTimeout) == x.refused {
			t.Errorf("submission, %d after %d: %v", x.then.ErrCode, x.first.ErrCode, err)
		}
	}
	store, state := wire.APIError{Code: 503, ErrCode: 7044, Description: "no answer"}, wire.APIError{Code: 409, ErrCode: 7047, Description: "it has had its signal"}
	for _, first := range []wire.APIError{store, full} {
		answer, refused := answers(first, state), first == full
		r.mu.Lock()
		r.refuseAsk = func(*natsbus.AskRequest) *wire.RefusedError { return answer() }
		r.mu.Unlock()
		if err := r.SignalRaw(t.Context(), "order", "o-1", "approve", []byte("true"), ""); errors.Is(err, duly.ErrRefused) != refused || errors.Is(err, duly.ErrTimeout) == refused {
			t.Errorf("signal, after %d: %v", first.ErrCode, err)
		}
	}
}

func TestSubmitRefused(t *testing.T) {
	r := newRig(t)
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	big := `"` + strings.Repeat("x", core.InputBytesMax) + `"`
	for _, test := range []struct {
		typ, id, input string
		options        []duly.SubmitOption
		code           int
		text           string
		asked          bool // the server, not this side, refuses
	}{
		{"order", "a b", "{}", nil, 400, "id", false},
		{"or.der", "a", "{}", nil, 400, "type", false},
		{"order", "a", "{", nil, 400, "not JSON", false},
		{"order", "a", big, nil, 413, "input has 262146 bytes, the limit is 262144", false},
		{"order", "a", "{}", []duly.SubmitOption{duly.Within(0)}, 400, "deadline has passed", false},
		{"order", "a", "{}", []duly.SubmitOption{duly.Deadline(time.Now().Add(-time.Second))}, 400, "deadline has passed", false},
		{"parcel", "a", "{}", nil, 404, "no plan parcel", true},
	} {
		before := r.seen()
		_, err := r.SubmitRaw(t.Context(), test.typ, test.id, []byte(test.input), test.options...)
		refused, ok := errors.AsType[*duly.SubmitError](err)
		if !ok || refused.Code != test.code || !strings.Contains(refused.Description, test.text) || refused.Retryable() || !errors.Is(err, duly.ErrRefused) {
			t.Errorf("%s %s %.20s: got %v, want %d %s", test.typ, test.id, test.input, err, test.code, test.text)
		}
		if asked := r.seen() != before; asked != test.asked {
			t.Errorf("%s %s %.20s: the server was asked: %v", test.typ, test.id, test.input, asked)
		}
	}
	small := Buy.With(duly.InputMax(10))
	if _, err := small.Submit(t.Context(), r.Client, "a", Order{Cents: 100}); err == nil || !strings.Contains(err.Error(), "the limit is 10") {
		t.Errorf("over the plan's own limit: %v", err)
	}
	odd := duly.NewPlan("odd", 1, duly.NewCheck[chan int, int]("a", "a"))
	if _, err := odd.Submit(t.Context(), r.Client, "a", nil); err == nil || !strings.Contains(err.Error(), "task a of type odd: input: json") {
		t.Errorf("an input that is no JSON: %v", err)
	}
}

func TestSubmitHeaders(t *testing.T) {
	r := newRig(t)
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	by := time.Now().Add(time.Hour)
	if _, err := Buy.Submit(t.Context(), r.Client, "a", Order{Cents: 100}, duly.Within(time.Minute), duly.Deadline(by), duly.ReplyTo("status.a"), duly.Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), duly.Label("tier", "gold"), duly.Label("of", "a b")); err != nil {
		t.Fatal(err)
	}
	if _, err := Buy.Submit(t.Context(), r.Client, "b", Order{Cents: 100}, duly.Deadline(by), duly.Within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	a, b := r.request(0), r.request(1)
	if at, err := core.ParseCompleteBy(a.CompleteBy, 0, core.InstantOf(time.Now())); err != nil || at != core.InstantOf(by) || a.ReplyTo != "status.a" || a.Trace != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" {
		t.Errorf("headers of a: %+v", a)
	}
	if a.Labels != "tier=gold,of=a b" || b.Labels != "" {
		t.Errorf("labels of a %q, of b %q", a.Labels, b.Labels)
	}
	before := r.seen()
	_, err := Buy.Submit(t.Context(), r.Client, "c", Order{Cents: 100}, duly.Label("a.b", "c"))
	if refused, ok := errors.AsType[*duly.SubmitError](err); !ok || refused.Code != 400 || !errors.Is(err, duly.ErrRefused) || r.seen() != before {
		t.Errorf("a label that cannot be: %v", err)
	}
	if left, err := time.ParseDuration(b.CompleteBy); err != nil || left > time.Minute || left < 50*time.Second {
		t.Errorf("headers of b: %+v", b)
	}
}

// A task that begins later says when, and one that does not says nothing.
func TestStartAt(t *testing.T) {
	r := newRig(t)
	ctx, client := t.Context(), r.Client
	if err := Buy.Apply(ctx, client); err != nil {
		t.Fatal(err)
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	_, err := Buy.Submit(ctx, client, "order-17", Order{Cents: 100}, duly.StartAt(tomorrow))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Buy.Submit(ctx, client, "order-18", Order{Cents: 100}); err != nil {
		t.Fatal(err)
	}
	if at, err := core.ParseStartAt(r.request(0).StartAt, 0, core.InstantOf(time.Now()), 0); err != nil || at != core.InstantOf(tomorrow) {
		t.Errorf("start-at %q: %v", r.request(0).StartAt, err)
	}
	if got := r.request(1).StartAt; got != "" {
		t.Errorf("start-at %q, want none", got)
	}
}

// A call ends with its task's own deadline, too.
func TestSubmitEndsWithItsDeadline(t *testing.T) {
	r := newRig(t)
	r.refuse = func(*natsbus.SubmitRequest) *wire.RefusedError {
		return &wire.RefusedError{APIError: wire.APIError{Code: 503, Description: "the stream is out of reach"}}
	}
	_, err := r.SubmitRaw(t.Context(), "order", "a", []byte("{}"), duly.Within(100*time.Millisecond))
	refused, ok := errors.AsType[*duly.SubmitError](err)
	if !errors.Is(err, duly.ErrTimeout) || !ok || !refused.Retryable() || errors.Is(err, duly.ErrRefused) {
		t.Errorf("got %v", err)
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	if err := r.Cancel(t.Context(), "order", "a", "changed my mind"); err != nil {
		t.Fatal(err)
	}
	want := core.Control{Kind: core.EventCancel, ID: "a", Type: "order", Actor: "shop", Reason: "changed my mind"}
	if got := r.asked(); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := r.Cancel(t.Context(), "order", "", ""); !errors.Is(err, duly.ErrRefused) {
		t.Errorf("no id: %v", err)
	}
}

// Without a node behind the wire a call lasts as long as its context; with a
// responder of another protocol, until its first answer.
//
// covers: E1
func TestNoNodeAnswers(t *testing.T) {
	server, err := natsserver.Start(natsserver.Options{Dir: t.TempDir(), SyncOff: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	client, err := duly.NewClient(nc, duly.Actor("test"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for what, err := range map[string]error{
		"apply":  Buy.Apply(ctx, client),
		"cancel": client.Cancel(ctx, "order", "a", ""),
	} {
		if !errors.Is(err, duly.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, err := range client.Watch(t.Context(), "order", "a") {
		if err == nil || !strings.Contains(err.Error(), wire.Names{}.StreamEvents()) {
			t.Errorf("watch without its stream: %v", err)
		}
	}
	var tries atomic.Int32
	if _, err := nc.Subscribe(wire.Names{}.SubmitSubject("order", "a"), func(msg *nats.Msg) {
		tries.Add(1)
		_ = msg.Respond([]byte("hello"))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.SubmitRaw(t.Context(), "order", "a", []byte("{}")); err == nil || !strings.Contains(err.Error(), "answer not understood") || tries.Load() != 1 {
		t.Errorf("a stranger's answer: %v after %d tries", err, tries.Load())
	}
	nc.Close()
	if _, err := client.SubmitRaw(t.Context(), "order", "a", []byte("{}")); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("a closed connection: %v", err)
	}
	if _, err := duly.NewClient(nc); err == nil {
		t.Error("a client on a closed connection")
	}
	if _, err := duly.NewAgent(nc); err == nil {
		t.Error("an agent on a closed connection")
	}
}

// covers: E1
func TestAgentEndsWithItsConnection(t *testing.T) {
	r := newRig(t)
	nc, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&shop{}).serve(agent); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- agent.Run(t.Context()) }()
	r.await(t)
	nc.Close()
	if err := <-done; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("got %v", err)
	}
}
