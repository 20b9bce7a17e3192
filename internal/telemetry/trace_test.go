package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"duly.dev/duly/internal/core"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var plan = &core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "pay", Agent: "till"}, {Name: "send", Agent: "post"}}}

// tracing runs a tracer; spans ends it and gives what was made, by name.
func tracing(t *testing.T, exporter Exporter, o TracerOptions) (tr *Tracer, end func()) {
	t.Helper()
	tr = NewTracer(exporter, o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { tr.Run(ctx) })
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			wg.Wait()
			if err := tr.Flush(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		end()
		if err := tr.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tr, end
}

func byName(t *testing.T, e *tracetest.InMemoryExporter) map[string]tracetest.SpanStub {
	t.Helper()
	all := map[string]tracetest.SpanStub{}
	for _, s := range e.GetSpans() {
		if _, twice := all[s.Name]; twice {
			t.Errorf("%s is there twice", s.Name)
		}
		all[s.Name] = s
	}
	return all
}

// write is what one commit says of the task.
func write(state core.State, birth bool, rows ...core.Record) *core.TaskWrite {
	task := &core.Task{Partition: 3, Number: 7, ID: "o-1", Type: "order", Trace: traceparent, State: state, CreatedAt: 1_000_000}
	if state.Ended() {
		task.EndedAt = rows[len(rows)-1].At
	}
	return &core.TaskWrite{Task: task, Birth: birth, Records: rows}
}

// TestSpansOfATask: a task that was taken over in the middle has its span, and the attempts whose beginning is known; one that
// an operator undoes after its end has a span of its own below.
func TestSpansOfATask(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tr, end := tracing(t, exporter, TracerOptions{Node: "n1"})
	// It was born elsewhere: this owner sees the answer of the first step, and sends the second.
	tr.Commit(plan, write(core.StateProcessing, false, core.Record{Seq: 2, Kind: core.KindDone, At: 2_000_000, Step: 0, Next: 1, NextAttempt: 1}))
	tr.Commit(plan, write(core.StateProcessed, false, core.Record{Seq: 3, Kind: core.KindDone, At: 3_500_000, Step: 1, Next: -1}))
	tr.Commit(plan, write(core.StateUndoing, false, core.Record{Seq: 4, Kind: core.KindUndoAsked, At: 9_000_000, Step: -1, Next: 1, NextAttempt: 1, Undo: true}))
	tr.Commit(plan, write(core.StateUndoing, false, core.Record{Seq: 5, Kind: core.KindUndoFailed, At: 9_500_000, Step: 1, Code: 500, Error: "not now", Next: -1}))
	tr.Commit(plan, write(core.StateUndone, false, core.Record{Seq: 6, Kind: core.KindStarted, At: 9_600_000, Step: 1, Next: 1, NextAttempt: 2, Undo: true},
		core.Record{Seq: 7, Kind: core.KindUndone, At: 9_700_000, Step: 1, Next: -1}))
	end()
	if got := tr.Counts(); got != (Spans{5, 0}) {
		t.Errorf("%+v", got)
	}
	spans := exporter.GetSpans()
	names := map[string]int{}
	for _, s := range spans {
		names[s.Name]++
		if s.SpanContext.TraceID().String() != traceparent[3:35] {
			t.Errorf("%s is of trace %s", s.Name, s.SpanContext.TraceID())
		}
	}
	if fmt.Sprint(names) != "map[do send:1 task again order:1 task order:1 undo send:2]" {
		t.Fatalf("%v", names)
	}
	var task, again, do tracetest.SpanStub
	for _, s := range spans {
		switch s.Name {
		case "task order":
			task = s
		case "task again order":
			again = s
		case "do send":
			do = s
		}
	}
	if task.Parent.SpanID().String() != traceparent[36:52] || again.Parent.SpanID() != task.SpanContext.SpanID() || do.Parent.SpanID() != task.SpanContext.SpanID() {
		t.Errorf("parents: %s, %s, %s", task.Parent.SpanID(), again.Parent.SpanID(), do.Parent.SpanID())
	}
	for _, s := range spans {
		if s.Name == "undo send" && s.Parent.SpanID() != again.SpanContext.SpanID() {
			t.Errorf("an undo stands below %s", s.Parent.SpanID())
		}
	}
	if !task.StartTime.Equal(time.Unix(1, 0)) || !task.EndTime.Equal(time.UnixMicro(3_500_000)) || !do.StartTime.Equal(time.Unix(2, 0)) || !again.StartTime.Equal(time.Unix(9, 0)) {
		t.Errorf("%v to %v, %v, %v", task.StartTime, task.EndTime, do.StartTime, again.StartTime)
	}
	if want := tr.Command(&core.Command{Trace: traceparent, Partition: 3, Number: 7, Task: "o-1", Seq: 2}); want[36:52] != do.SpanContext.SpanID().String() || want[:36] != traceparent[:36] {
		t.Errorf("the command carries %s, the span is %s", want, do.SpanContext.SpanID())
	}
}

// TestNotSampled: what is not sampled, or no traceparent, makes no span and stays as it is.
func TestNotSampled(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tr, end := tracing(t, exporter, TracerOptions{})
	for _, text := range []string{"", "x", traceparent[:54] + "0", strings.Replace(traceparent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1)} {
		w := write(core.StateUndone, true, core.Record{Seq: 1, Kind: core.KindSubmitted, At: 1, Step: -1, Next: -1})
		w.Task.Trace = text
		tr.Commit(plan, w)
		if got := tr.Command(&core.Command{Trace: text}); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	end()
	if got := byName(t, exporter); len(got) != 0 || tr.Counts() != (Spans{}) {
		t.Errorf("%v %+v", got, tr.Counts())
	}
}

// TestTracerNeverBlocks: what has no room is dropped and counted; a commit does not wait for it. What is followed is bounded, and
// tasks that went to another owner, of which nothing more comes here, keep no later one from being followed.
func TestTracerNeverBlocks(t *testing.T) {
	tr := NewTracer(tracetest.NewInMemoryExporter(), TracerOptions{})
	for range tracedQueue + 5 {
		tr.Commit(plan, write(core.StateProcessing, true, core.Record{Seq: 1, Kind: core.KindSubmitted, Step: -1, Next: 0, NextAttempt: 1}))
	}
	if got := tr.Counts(); got.Dropped != 5 {
		t.Errorf("%+v", got)
	}
	for n := range tracedTasks + 3 {
		w := write(core.StateProcessing, true, core.Record{Seq: 1, Kind: core.KindSubmitted, At: core.Instant(n), Step: -1, Next: 0, NextAttempt: 1})
		parent, _ := parse(w.Task.Trace)
		tr.take(&traced{key: taskKey{0, int64(n)}, parent: parent, rows: w.Records, state: w.Task.State})
	}
	first, last := tr.lives[taskKey{0, 0}], tr.lives[taskKey{0, tracedTasks + 2}]
	if got := tr.Counts(); got.Dropped != 5+tracedTasks/16 || len(tr.lives) != tracedTasks-tracedTasks/16+3 || first != nil || last == nil {
		t.Errorf("%+v, %d tasks, the first %v, the last %v", got, len(tr.lives), first, last)
	}
	if err := tr.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// failing is an exporter that a collector does not listen to.
type failing struct{ Exporter }

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("post http://user:s3cret@collector:4318: refused")
}

// TestCollectorIsAway: spans that the collector does not take are counted, and told without secrets.
//
// covers: C12
func TestCollectorIsAway(t *testing.T) {
	reported := make(chan error, 10)
	tr, end := tracing(t, failing{tracetest.NewInMemoryExporter()}, TracerOptions{
		Hide: func(s string) string { return strings.ReplaceAll(s, "s3cret", "xxxxx") }, Report: func(err error) { reported <- err }})
	tr.Commit(plan, write(core.StateUndone, true, core.Record{Seq: 1, Kind: core.KindSubmitted, At: 1, Step: -1, Next: -1}))
	end()
	if err := <-reported; err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	if got := tr.Counts(); got != (Spans{1, 1}) {
		t.Errorf("%+v", got)
	}
}

// BenchmarkCommit is what a sampled task's commit costs its owner, and a command.
func BenchmarkCommit(b *testing.B) {
	tr := NewTracer(tracetest.NewNoopExporter(), TracerOptions{})
	w := write(core.StateProcessing, true, core.Record{Seq: 1, Kind: core.KindSubmitted, Step: -1, Next: 0, NextAttempt: 1})
	b.Run("commit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tr.Commit(plan, w)
			<-tr.queue
		}
	})
	b.Run("command", func(b *testing.B) {
		b.ReportAllocs()
		c := &core.Command{Trace: traceparent, Partition: 3, Number: 7, Task: "o-1", Seq: 2}
		for b.Loop() {
			tr.Command(c)
		}
	})
	if err := tr.Close(context.Background()); err != nil {
		b.Error(err)
	}
}
