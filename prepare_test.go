package duly

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/submit/submittest"
	"duly.dev/duly/internal/wire"
)

// TestPrepare: what is written down of a submission is what would have been sent.
func TestPrepare(t *testing.T) {
	at := time.Now().Add(time.Hour)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	for name, c := range map[string]struct {
		options []SubmitOption
		headers map[string]string
	}{
		"nothing":  {nil, map[string]string{wire.HeaderVersion: "1"}},
		"deadline": {[]SubmitOption{Deadline(at)}, map[string]string{wire.HeaderVersion: "1", wire.HeaderCompleteBy: submit.FormatTime(at)}},
		"within":   {[]SubmitOption{Within(time.Minute)}, map[string]string{wire.HeaderVersion: "1", wire.HeaderCompleteBy: "1m0s"}},
		"the rest": {[]SubmitOption{Label("a", "b"), Label("c", "d"), ReplyTo("status.x"), AtVersion(0)},
			map[string]string{wire.HeaderLabels: "a=b,c=d", wire.HeaderReplyTo: "status.x"}},
		"the last priority": {[]SubmitOption{Priority(ClassHigh), Label("a", "b"), Priority(ClassLow)},
			map[string]string{wire.HeaderVersion: "1", wire.HeaderLabels: "a=b,duly-priority=low"}},
	} {
		p, err := testPlan.Prepare(t.Context(), nil, "o-1", testOrder{Cents: 3}, c.options...)
		if err != nil || p.Type != "order" || p.Task != "o-1" || string(p.Input) != `{"Cents":3}` || !maps.Equal(p.Headers, c.headers) {
			t.Errorf("%s: %+v %v, want headers %v", name, p, err, c.headers)
		}
	}
	p, err := testPlan.Prepare(trace.ContextWithSpanContext(t.Context(), span), nil, "o-1", testOrder{})
	if want := "00-01000000000000000000000000000000-0200000000000000-01"; err != nil || p.Headers[wire.HeaderTrace] != want {
		t.Errorf("trace %q %v, want %s", p.Headers[wire.HeaderTrace], err, want)
	}
}

// TestOptionsSayEveryField: the options of a submission reach every field that a door takes, and every option does.
func TestOptionsSayEveryField(t *testing.T) {
	at := time.Now().Add(time.Hour)
	var s submission
	for _, option := range []SubmitOption{Deadline(at.Add(time.Hour)), StartAt(at), ReplyTo("status.x"), Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), Label("a", "b"), AtVersion(3)} {
		option(&s)
	}
	f := s.form("order", "o-1", []byte("1"), 0)
	submittest.Same(t, "options", f, f, map[string]string{"Ago": "of a node that reads an outbox"})
}

// TestPrepareWithCodec: the input is encoded for its place.
func TestPrepareWithCodec(t *testing.T) {
	codec, err := NewAES256GCM(Key{ID: "k", Secret: make([]byte, KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := PrepareRaw(t.Context(), codec, "order", "o-1", []byte(`{"secret": 1}`))
	if err != nil || strings.Contains(string(p.Input), "secret") {
		t.Fatalf("%s %v", p.Input, err)
	}
	if plain, err := codec.Decode(Place{Type: "order", Task: "o-1"}, p.Input); err != nil || string(plain) != `{"secret": 1}` {
		t.Errorf("%s %v", plain, err)
	}
}

// TestPrepareRefuses: what no node would take is refused before it is written down.
func TestPrepareRefuses(t *testing.T) {
	bad := NewPlan("order", 0, testCharge)
	for name, prepare := range map[string]func(context.Context) (Prepared, error){
		"plan":  func(ctx context.Context) (Prepared, error) { return bad.Prepare(ctx, nil, "o-1", testOrder{}) },
		"id":    func(ctx context.Context) (Prepared, error) { return testPlan.Prepare(ctx, nil, "o 1", testOrder{}) },
		"input": func(ctx context.Context) (Prepared, error) { return PrepareRaw(ctx, nil, "order", "o-1", []byte(`{`)) },
		"size": func(ctx context.Context) (Prepared, error) {
			return testPlan.With(InputMax(3)).Prepare(ctx, nil, "o-1", testOrder{})
		},
		"label": func(ctx context.Context) (Prepared, error) {
			return testPlan.Prepare(ctx, nil, "o-1", testOrder{}, Label("a,", "b"))
		},
		"priority": func(ctx context.Context) (Prepared, error) {
			return testPlan.Prepare(ctx, nil, "o-1", testOrder{}, Priority("urgent"))
		},
		"passed": func(ctx context.Context) (Prepared, error) {
			return testPlan.Prepare(ctx, nil, "o-1", testOrder{}, Deadline(time.Now().Add(-time.Second)))
		},
		"start after the deadline": func(ctx context.Context) (Prepared, error) {
			return testPlan.Prepare(ctx, nil, "o-1", testOrder{}, StartAt(time.Now().Add(2*time.Hour)), Within(time.Hour))
		},
		"start too far": func(ctx context.Context) (Prepared, error) {
			return testPlan.Prepare(ctx, nil, "o-1", testOrder{}, StartAt(time.Now().Add(2*core.DurationMax)))
		},
		"no time": func(ctx context.Context) (Prepared, error) {
			return testPlan.Prepare(ctx, nil, "o-1", testOrder{}, Within(0))
		},
	} {
		if p, err := prepare(t.Context()); !errors.Is(err, ErrRefused) || p.Type != "" {
			t.Errorf("%s: %+v %v, want ErrRefused", name, p, err)
		}
	}
}
