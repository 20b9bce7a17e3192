package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"duly.dev/duly/internal/core"
)

// Bounds of a tracer. What does not fit is dropped and counted: traces never hold up a task.
const (
	tracedQueue = 8192  // journal rows' worth of tasks that wait to become spans
	tracedTasks = 65536 // sampled tasks that are followed
)

// Tracer makes spans of what owners have committed about tasks whose submitters asked for a trace: one for the task, and
// one for each attempt of a step or an undo. A task whose traceparent is not sampled costs it nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	hide     func(string) string
	queue    chan traced
	made     atomic.Int64
	dropped  atomic.Int64
	lives    map[taskKey]*life // of the goroutine
}

// TracerOptions are those of NewTracer.
type TracerOptions struct {
	Node      string
	Namespace string
	Hide      func(string) string // takes secrets out of texts; nil: none are
	Report    func(err error)     // takes what an export came to, nil when it worked; may be nil
}

// NewTracer makes a tracer that exports in batches. Run makes the spans, Close exports what is left.
func NewTracer(exporter Exporter, o TracerOptions) *Tracer {
	if o.Report == nil {
		o.Report = func(error) {}
	}
	if o.Hide == nil {
		o.Hide = func(s string) string { return s }
	}
	attrs := resource.NewSchemaless(attribute.String(attrService, cmp.Or(o.Namespace, "duly")), attribute.String(attrInstance, o.Node))
	t := &Tracer{hide: o.Hide, queue: make(chan traced, tracedQueue), lives: map[taskKey]*life{}}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(attrs), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithBatcher(reporting{exporter, t, o.Report}))
	t.tracer = t.provider.Tracer(tracerName)
	return t
}

// Exporter takes spans to a collector.
type Exporter = sdktrace.SpanExporter

// reporting is an exporter whose failures are counted and reported, and not logged by the library.
type reporting struct {
	Exporter
	t      *Tracer
	report func(error)
}

// ExportSpans implements sdktrace.SpanExporter.
func (e reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.Exporter.ExportSpans(ctx, spans)
	if err != nil {
		e.t.dropped.Add(int64(len(spans)))
		err = errors.New(e.t.hide(err.Error()))
	}
	e.report(err)
	return nil
}

// Spans are how many spans were handed to the exporter, and lost.
type Spans struct{ Made, Dropped int64 }

// Counts are how many spans were made and dropped.
func (t *Tracer) Counts() Spans { return Spans{t.made.Load(), t.dropped.Load()} }

// traced is what one commit said of one task.
type traced struct {
	key       taskKey
	id, typ   string
	parent    trace.SpanContext
	birth     bool
	plan      *core.Plan // may be nil
	state     core.State
	round     int
	why       string
	createdAt core.Instant
	endedAt   core.Instant
	rows      []core.Record // without results
}

type taskKey struct {
	partition int
	number    int64
}

// Commit takes what was committed about a task of a sampled trace. It copies what it needs and does not block. It is
// safe for concurrent use.
func (t *Tracer) Commit(plan *core.Plan, w *core.TaskWrite) {
	task := w.Task
	if len(w.Records) == 0 {
		return
	}
	parent, ok := parse(task.Trace)
	if !ok || !parent.IsSampled() {
		return
	}
	x := traced{key: taskKey{task.Partition, task.Number}, id: task.ID, typ: task.Type, parent: parent, birth: w.Birth, plan: plan, state: task.State, round: task.Round,
		why: task.Why, createdAt: task.CreatedAt, endedAt: task.EndedAt, rows: append([]core.Record(nil), w.Records...)}
	for i := range x.rows {
		x.rows[i].Result = nil
	}
	select {
	case t.queue <- x:
	default:
		t.dropped.Add(1)
	}
}

// Command is the traceparent that a command carries: the span of its attempt, so that what the agent does stands below it. A
// trace that is not sampled stays as it is.
func (t *Tracer) Command(c *core.Command) string {
	if !core.TraceSampled(c.Trace) {
		return c.Trace
	}
	parent, ok := parse(c.Trace)
	if !ok {
		return c.Trace
	}
	id := tryID(parent.TraceID(), taskKey{c.Partition, c.Number}, c.Task, c.Seq)
	return "00-" + parent.TraceID().String() + "-" + id.String() + "-" + parent.TraceFlags().String()
}

// parse reads a traceparent that core.CleanTrace has let through.
func parse(text string) (trace.SpanContext, bool) {
	if text = core.CleanTrace(text); text == "" {
		return trace.SpanContext{}, false
	}
	id, err := trace.TraceIDFromHex(text[3:35])
	if err != nil {
		return trace.SpanContext{}, false
	}
	span, err := trace.SpanIDFromHex(text[36:52])
	if err != nil {
		return trace.SpanContext{}, false
	}
	flags, err := hex.DecodeString(text[53:55])
	if err != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0]), Remote: true}), true
}

// Ids of spans are made of what they are about: another node knows the id of a span that it did not make.

func spanID(id trace.TraceID, what string, key taskKey, task string, n int64) (span trace.SpanID) {
	var a [192]byte
	b := append(append(a[:0], id[:]...), what...)
	for _, number := range [...]int64{int64(key.partition), key.number, n} {
		b = binary.BigEndian.AppendUint64(b, uint64(number))
	}
	sum := sha256.Sum256(append(b, task...))
	copy(span[:], sum[:])
	span[0] |= 1 // none is zero
	return span
}

func taskID(id trace.TraceID, key taskKey, task string) trace.SpanID {
	return spanID(id, "task", key, task, 0)
}

func tryID(id trace.TraceID, key taskKey, task string, row int64) trace.SpanID {
	return spanID(id, "try", key, task, row)
}

// ids gives a span the id that its context asks for.
type ids struct{}

type wantedID struct{}

// NewIDs implements sdktrace.IDGenerator. Every span has a parent, so it is not called.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return trace.TraceID{1}, g.NewSpanID(ctx, trace.TraceID{1})
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	id, _ := ctx.Value(wantedID{}).(trace.SpanID)
	return id
}

// life is what is known of a sampled task between its commits.
type life struct {
	parent    trace.SpanContext // of its span
	span      trace.SpanID      // its own
	continued bool              // its first end is of before
	began     core.Instant
	seen      core.Instant // of its newest row
	tries     []try
}

// try is an attempt whose command is out.
type try struct {
	step    int
	row     int64
	attempt int
	undo    bool
	began   core.Instant
}

// Run makes spans until ctx ends, and of what has come by then.
func (t *Tracer) Run(ctx context.Context) {
	for {
		select {
		case x := <-t.queue:
			t.take(&x)
		case <-ctx.Done():
			for {
				select {
				case x := <-t.queue:
					t.take(&x)
				default:
					return
				}
			}
		}
	}
}

// Flush exports what has been made so far.
func (t *Tracer) Flush(ctx context.Context) error { return t.provider.ForceFlush(ctx) }

// Close exports what is left, and waits no longer than ctx.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// take makes spans of what one commit said.
func (t *Tracer) take(x *traced) {
	l := t.lives[x.key]
	if l == nil {
		if len(t.lives) >= tracedTasks {
			t.evict()
		}
		l = begin(x)
		t.lives[x.key] = l
	}
	l.seen = x.rows[len(x.rows)-1].At
	for i := range x.rows {
		r := &x.rows[i]
		if at := l.find(r); at >= 0 {
			t.endTry(x, l, l.tries[at], r)
			l.tries = append(l.tries[:at], l.tries[at+1:]...)
		}
		if r.Next >= 0 {
			l.tries = append(l.tries, try{step: r.Next, row: r.Seq, attempt: r.NextAttempt, undo: r.Undo, began: r.At})
		}
	}
	if !x.state.Ended() {
		return
	}
	delete(t.lives, x.key)
	t.endTask(x, l)
}

// evict lets go of the part in sixteen that was not heard of for longest: of most of them the end is another owner's to tell, or had
// no room in the queue. Their attempts are lost; one that goes on here is followed again.
func (t *Tracer) evict() {
	keys := slices.SortedFunc(maps.Keys(t.lives), func(a, b taskKey) int { return cmp.Compare(t.lives[a].seen, t.lives[b].seen) })
	for _, k := range keys[:len(keys)/16] {
		t.dropped.Add(int64(len(t.lives[k].tries)))
		delete(t.lives, k)
	}
}

// begin begins to follow a task: at its birth, or in the middle of its life at another owner, or when an operator has
// made it go on after its end.
func begin(x *traced) *life {
	l := &life{parent: x.parent, span: taskID(x.parent.TraceID(), x.key, x.id), began: x.createdAt}
	switch first := &x.rows[0]; first.Kind {
	case core.KindUndoAsked, core.KindResubmitted, core.KindResolved:
		if !x.birth {
			l.continued, l.began = true, first.At
			l.parent = l.parent.WithSpanID(l.span)
			l.span = spanID(x.parent.TraceID(), "again", x.key, x.id, first.Seq)
		}
	}
	return l
}

// find is the attempt that a row ends; -1: none.
func (l *life) find(r *core.Record) int {
	for i := range l.tries {
		if l.tries[i].step == r.Step {
			return i
		}
	}
	return -1
}

// span makes a whole span.
func (t *Tracer) span(parent trace.SpanContext, id trace.SpanID, name string, from, to core.Instant, failed string, attrs ...attribute.KeyValue) {
	ctx := context.WithValue(trace.ContextWithRemoteSpanContext(context.Background(), parent), wantedID{}, id)
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from.Time()), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attrs...))
	if failed != "" {
		span.SetStatus(codes.Error, core.ShortText(t.hide(failed), statusMax))
	}
	span.End(trace.WithTimestamp(max(from, to).Time()))
	t.made.Add(1)
}

// statusMax bounds the text of a span's status.
const statusMax = 512

func (t *Tracer) endTask(x *traced, l *life) {
	name, failed := spanTask+x.typ, ""
	if l.continued {
		name = spanContinued + x.typ
	}
	if x.state != core.StateProcessed {
		if failed = x.why; failed == "" {
			failed = string(x.state)
		}
	}
	t.span(l.parent, l.span, name, l.began, x.endedAt, failed, attribute.String(attrTask, x.id), attribute.String(attrType, x.typ),
		attribute.String(attrState, string(x.state)), attribute.Int(attrPartition, x.key.partition), attribute.Int(attrRound, x.round))
}

func (t *Tracer) endTry(x *traced, l *life, try try, r *core.Record) {
	step, agent := fmt.Sprint(try.step), ""
	if x.plan != nil && try.step < len(x.plan.Steps) {
		step, agent = x.plan.Steps[try.step].Name, x.plan.Steps[try.step].Agent
	}
	name, failed := spanDo+step, ""
	if try.undo {
		name = spanUndo + step
	}
	if r.Kind != core.KindDone && r.Kind != core.KindUndone {
		if failed = r.Error; failed == "" {
			failed = string(r.Kind)
		}
	}
	attrs := []attribute.KeyValue{attribute.String(attrTask, x.id), attribute.String(attrType, x.typ), attribute.String(attrStep, step), attribute.String(attrAgent, agent),
		attribute.Int(attrAttempt, try.attempt), attribute.Bool(attrUndo, try.undo), attribute.String(attrOutcome, string(r.Kind)),
		attribute.String(attrKey, core.Key(x.id, step, r.Round))}
	if r.Code != 0 {
		attrs = append(attrs, attribute.Int(attrCode, r.Code))
	}
	t.span(l.parent.WithSpanID(l.span), tryID(x.parent.TraceID(), x.key, x.id, try.row), name, try.began, r.At, failed, attrs...)
}
