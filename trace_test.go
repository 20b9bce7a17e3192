package duly

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"duly.dev/duly/internal/core"
)

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestSpanOfAContext: what a submission takes out of its context, a handler finds in its own.
func TestSpanOfAContext(t *testing.T) {
	if got := traceOf(t.Context()); got != "" {
		t.Errorf("a context without a span has %q", got)
	}
	for _, text := range []string{someTrace, someTrace[:54] + "0"} {
		ctx := withSpan(t.Context(), &core.Command{Trace: text})
		span := trace.SpanContextFromContext(ctx)
		if !span.IsRemote() || span.SpanID().String() != text[36:52] || span.IsSampled() != (text == someTrace) {
			t.Errorf("%+v", span)
		}
		if got := traceOf(ctx); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
	}
	for _, bad := range []string{"", "x", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		ctx, cancel := context.WithCancel(t.Context())
		if got := withSpan(ctx, &core.Command{Trace: bad}); got != ctx {
			t.Errorf("%q changes the context", bad)
		}
		cancel()
	}
}
