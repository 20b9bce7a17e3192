package duly

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"

	"duly.dev/duly/internal/core"
)

// Places within a W3C traceparent: version-trace-parent-flags.
const (
	traceFrom, traceTo = 3, 35
	spanFrom, spanTo   = 36, 52
	flagsFrom, flagsTo = 53, 55
)

// withSpan puts the span that a command comes from into the context of its work, so that the spans of a handler stand
// below it. Without a traceparent the context stays as it is.
func withSpan(ctx context.Context, cmd *core.Command) context.Context {
	text := core.CleanTrace(cmd.Trace)
	if text == "" {
		return ctx
	}
	id, err := trace.TraceIDFromHex(text[traceFrom:traceTo])
	if err != nil {
		return ctx
	}
	span, err := trace.SpanIDFromHex(text[spanFrom:spanTo])
	if err != nil {
		return ctx
	}
	flags, err := hex.DecodeString(text[flagsFrom:flagsTo])
	if err != nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0])}))
}

// traceOf is the traceparent of the span in a context; empty: there is none.
func traceOf(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + span.TraceFlags().String()
}
