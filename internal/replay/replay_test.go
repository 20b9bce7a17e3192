package replay

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

var birth = core.InstantOf(time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC))

// life is one task that events happen to.
type life struct {
	plan core.Plan
	task core.Task
	out  core.Outcome
	rows []core.Record
}

func newLife(id string) *life {
	l := &life{plan: core.Plan{Name: "order", Version: 3, Steps: []core.Step{
		{Name: "reserve", Agent: "warehouse", Undoable: true, AttemptsMax: 2},
		{Name: "charge", Agent: "payment", After: []int{0}, Undoable: true, AttemptsMax: 2},
		{Name: "ship", Agent: "courier", After: []int{1}, Undoable: true, OnExhausted: core.PolicyError},
	}}.WithDefaults()}
	l.task = core.Task{Partition: 2, Number: 7, ID: id, Type: "order", Input: []byte(`{"cents":12}`), CreatedAt: birth}
	core.Birth(&l.plan, &l.task, &core.Event{At: birth, Actor: "node-a", Node: "node-a"}, &l.out)
	l.rows = append(l.rows, l.out.Records...)
	return l
}

// happen applies an event and keeps its rows; an event that means nothing leaves none.
func (l *life) happen(t interface{ Fatal(...any) }, ev core.Event) {
	ev.Rand, ev.Node = 0.5, "node-a"
	err := core.Apply(&l.plan, &l.task, &ev, &l.out)
	if err != nil && !errors.Is(err, core.ErrStale) && !errors.Is(err, core.ErrNotAllowed) {
		t.Fatal(err)
	}
	for _, r := range l.out.Records {
		r.Result, r.Input = append([]byte(nil), r.Result...), append([]byte(nil), r.Input...)
		if len(r.Result) == 0 {
			r.Result = nil
		}
		if len(r.Input) == 0 {
			r.Input = nil
		}
		l.rows = append(l.rows, r)
	}
}

// answer is the reply to the command that is out.
func (l *life) answer(after time.Duration, code int) core.Event {
	ev := core.Event{Kind: core.EventReply, At: l.task.UpdatedAt.Add(after), Actor: "agent-1@payment", Code: code}
	if i := l.task.Out(); i >= 0 {
		ev.Seq = l.task.Steps[i].Out
	}
	if code != 0 {
		ev.Error = fmt.Sprintf("failed with %d", code)
	} else {
		ev.Result = []byte(`{"ok":true}`)
	}
	return ev
}

func (l *life) saved() *core.Saved {
	row := l.task
	row.Steps, row.Input = nil, []byte(`{"cents":12}`)
	return &core.Saved{Row: row, Journal: l.rows}
}

// failed is a life in which the charge fails for good after a time-out, and everything is undone.
func failed(t *testing.T, id string) *life {
	l := newLife(id)
	l.happen(t, l.answer(30*time.Millisecond, 0))
	l.happen(t, core.Event{Kind: core.EventOverdue, At: l.task.UpdatedAt.Add(10 * time.Second), Actor: "supervisor"})
	l.happen(t, core.Event{Kind: core.EventWake, At: l.task.UpdatedAt.Add(time.Second), Actor: "node-a"})
	l.happen(t, l.answer(20*time.Millisecond, 422))
	l.happen(t, core.Event{Kind: core.EventWake, At: l.task.UpdatedAt.Add(20 * time.Second), Actor: "node-a"})
	l.happen(t, l.answer(20*time.Millisecond, 0))
	l.happen(t, l.answer(20*time.Millisecond, 0))
	if l.task.State != core.StateUndone {
		t.Fatalf("the task is %s, want undone", l.task.State)
	}
	return l
}

// processed is a life in which everything works.
func processed(t *testing.T, id string) *life {
	l := newLife(id)
	for range l.plan.Steps {
		l.happen(t, l.answer(30*time.Millisecond, 0))
	}
	if l.task.State != core.StateProcessed {
		t.Fatalf("the task is %s, want processed", l.task.State)
	}
	return l
}

// TestFrames: what is said of each row of a life, against a golden file.
func TestFrames(t *testing.T) {
	l := failed(t, "o-1")
	frames, err := Frames(&l.plan, l.saved(), 1, int64(len(l.rows)))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&b, "#%d %s %s by %s\n  happened: %s\n  decided:  %s\n  why:      %s\n  then:     %s\n", f.Seq, when(f.At), f.Kind, f.Actor, f.Happened, f.Decided, f.Why, f.Sentence)
	}
	golden(t, "frames.txt", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s", name, got)
	}
}

// TestFramesOneByOne: a frame of many says what it says alone, and its task is the one that core.Rewound rebuilds.
func TestFramesOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := randomLife(t)
		n := int64(len(l.rows))
		from := rapid.Int64Range(1, n).Draw(t, "from")
		frames, err := Frames(&l.plan, l.saved(), from, n)
		if err != nil || int64(len(frames)) != n-from+1 {
			t.Fatalf("rows %d to %d are %d frames, %v", from, n, len(frames), err)
		}
		for i := range frames {
			alone, err := Frames(&l.plan, l.saved(), from+int64(i), from+int64(i))
			if err != nil || !reflect.DeepEqual(frames[i], alone[0]) {
				t.Fatalf("row %d among others is %+v, alone %+v, %v", frames[i].Seq, frames[i], alone, err)
			}
			task, err := core.Rewound(&l.plan, l.saved(), frames[i].Seq)
			if err != nil || !reflect.DeepEqual(frames[i].Task, task) {
				t.Fatalf("row %d leads to %+v, want %+v, %v", frames[i].Seq, frames[i].Task, task, err)
			}
		}
	})
	l := newLife("o-1")
	for _, rows := range [][2]int64{{0, 1}, {1, 2}, {2, 1}} {
		if _, err := Frames(&l.plan, l.saved(), rows[0], rows[1]); err == nil {
			t.Errorf("rows %v of 1 were played", rows)
		}
	}
}

// longLife is one of at least n rows: rounds that fail, are undone and begin again.
func longLife(tb interface{ Fatal(...any) }, n int) *life {
	l := newLife("o-1")
	for len(l.rows) < n {
		l.happen(tb, l.answer(30*time.Millisecond, 0))
		l.happen(tb, l.answer(20*time.Millisecond, 422))
		l.happen(tb, l.answer(20*time.Millisecond, 0))
		l.happen(tb, core.Event{Kind: core.EventResubmit, At: l.task.UpdatedAt.Add(time.Second), Actor: "olga@http", Reason: "again"})
		if l.task.State != core.StateProcessing {
			tb.Fatal("row ", len(l.rows), ": the task is ", l.task.State)
		}
	}
	return l
}

// BenchmarkFrames: what a row costs is the same in a journal of 1,000 rows and in one of 20,000.
func BenchmarkFrames(b *testing.B) {
	for _, n := range []int{1_000, 5_000, 20_000} {
		l := longLife(b, n)
		saved := l.saved()
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				for _, err := range All(&l.plan, saved, 1, int64(n)) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
		})
		b.Run(fmt.Sprintf("%d/last", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Frames(&l.plan, saved, int64(n), int64(n)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestFileRoundTrip: a file says of any life what its journal says.
//
// covers: OP25
func TestFileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := randomLife(t)
		data, err := Encode(&l.plan, l.saved())
		if err != nil {
			t.Fatal(err)
		}
		plan, saved, err := Decode(data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if !reflect.DeepEqual(*plan, l.plan) || !reflect.DeepEqual(saved.Journal, l.rows) {
			t.Fatalf("read %+v\nwant %+v", saved.Journal, l.rows)
		}
	})
}

// TestWhatIfNothingWasDifferent: an answer that comes when it came leads to the row that it led to.
func TestWhatIfNothingWasDifferent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := randomLife(t)
		for i := range l.rows {
			r := &l.rows[i]
			f, err := WhatIf(&l.plan, l.saved(), r.Seq, 0)
			if errors.Is(err, errNoWhatIf) || r.Seq < 2 || r.Kind == core.KindOverdue || r.Kind == core.KindUndoOverdue {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			was, err := Frames(&l.plan, l.saved(), r.Seq, r.Seq)
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind != r.Kind || f.Decided != was[0].Decided {
				t.Fatalf("row %d: what if: %s, %s; was: %s, %s", r.Seq, f.Kind, f.Decided, r.Kind, was[0].Decided)
			}
		}
	})
}

// randomLife is one in which agents answer as they like, and the supervisor and operators ask.
func randomLife(t *rapid.T) *life {
	l := newLife("o-1")
	for range rapid.IntRange(1, 25).Draw(t, "events") {
		after := time.Duration(rapid.IntRange(1, 20_000).Draw(t, "after")) * time.Millisecond
		switch rapid.IntRange(0, 6).Draw(t, "event") {
		case 0, 1, 2:
			l.happen(t, l.answer(after, rapid.SampledFrom([]int{0, 0, 422, 500, 408}).Draw(t, "code")))
		case 3:
			l.happen(t, core.Event{Kind: core.EventWake, At: l.task.UpdatedAt.Add(after), Actor: "node-a"})
		case 4:
			l.happen(t, core.Event{Kind: core.EventOverdue, At: l.task.UpdatedAt.Add(after), Actor: "supervisor"})
		case 5:
			l.happen(t, core.Event{Kind: core.EventUndo, At: l.task.UpdatedAt.Add(after), Actor: "olga@http", Reason: "wrong address"})
		case 6:
			l.happen(t, core.Event{Kind: core.EventResubmit, At: l.task.UpdatedAt.Add(after), Actor: "olga@http", Reason: "again", Input: []byte(`{"cents":13}`)})
		}
	}
	return l
}

// TestWhatIfItHadAnswered: the time-out that began the trouble would not have been one.
func TestWhatIfItHadAnswered(t *testing.T) {
	l := failed(t, "o-1")
	f, err := WhatIf(&l.plan, l.saved(), 3, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if f.Kind != core.KindDone || !strings.Contains(f.Decided, "Step ship is sent to its agent") {
		t.Errorf("what if: %s, %s", f.Kind, f.Decided)
	}
	if f, err = WhatIf(&l.plan, l.saved(), 3, 0); err != nil || f.Kind != core.KindLate || f.Decided != "Nothing else changes." {
		t.Errorf("an answer at its very complete-by: %q, %v", f.Decided, err)
	}
	if _, err := WhatIf(&l.plan, l.saved(), 1, 0); err == nil {
		t.Error("a submission is no answer")
	}
	if _, err := WhatIf(&l.plan, l.saved(), 3, time.Hour); err == nil {
		t.Error("an answer cannot come before its command")
	}
}

// TestDiff: two tasks of a plan part where the second charge was not answered.
func TestDiff(t *testing.T) {
	good, bad := processed(t, "o-1"), failed(t, "o-2")
	p, err := Diff(&good.plan, good.saved(), bad.saved())
	if err != nil {
		t.Fatal(err)
	}
	if p.Same != 2 || p.A == nil || p.A.Kind != core.KindDone || p.B == nil || p.B.Kind != core.KindOverdue {
		t.Errorf("they part after %d rows: %+v and %+v", p.Same, p.A, p.B)
	}
	if p, err = Diff(&good.plan, good.saved(), good.saved()); err != nil || p.A != nil || p.B != nil || p.Same != int64(len(good.rows)) {
		t.Errorf("a task and itself part after %d rows, %v", p.Same, err)
	}
	other := good.saved()
	other.Row.PlanVersion = 4
	if _, err := Diff(&good.plan, good.saved(), other); err == nil {
		t.Error("tasks of two versions of a plan were compared")
	}
}

// TestBadFiles: each is refused with what is wrong.
func TestBadFiles(t *testing.T) {
	l := processed(t, "o-1")
	good, err := Encode(&l.plan, l.saved())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"no JSON":        {"{", "", "invalid character"},
		"other format":   {"duly-task/1", "duly-task/2", `format is "duly-task/2"`},
		"gap":            {`"seq":2`, `"seq":3`, "follows row 1"},
		"step":           {`"step":0`, `"step":1000`, "want 0 to 999"},
		"step of none":   {`"step":0`, `"step":9`, "names step 10 of 3"},
		"time":           {`"at":"2026-11-25T12:00:00.000000Z"`, `"at":"noon"`, `at is "noon"`},
		"plan":           {`"plan":{`, `"plan":{"colour":"red",`, "colour"},
		"empty journal":  {`"journal":[`, `"journal":[],"x":[`, "journal is empty"},
		"too many bytes": {`"id":"o-1"`, `"id":"` + strings.Repeat("x", fileBytesMax) + `"`, "the limit is"},
	} {
		_, _, err := Decode([]byte(strings.Replace(string(good), test.old, test.new, 1)))
		if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestEveryKindHasWords: a row of each kind is told in words of its own.
//
// covers: L5
func TestEveryKindHasWords(t *testing.T) {
	for _, kind := range core.Kinds() {
		w := &words{r: &core.Record{Kind: kind, Step: -1, Next: -1}}
		if text := w.happened(); strings.HasPrefix(text, "row.") {
			t.Errorf("%s: %s", kind, text)
		}
	}
}

// TestWhatIfOfSeveral: of several commands that are out the row's own is answered at another time.
func TestWhatIfOfSeveral(t *testing.T) {
	l := &life{plan: core.Plan{Name: "order", Version: 3, Steps: []core.Step{
		{Name: "reserve", Agent: "warehouse", Undoable: true}, {Name: "charge", Agent: "payment", Undoable: true}, {Name: "approve", Kind: core.SignalStep},
	}}.WithDefaults()}
	l.task = core.Task{ID: "o-1", Type: "order", Input: []byte(`{}`), CreatedAt: birth}
	core.Birth(&l.plan, &l.task, &core.Event{At: birth, Actor: "node-a", Node: "node-a"}, &l.out)
	l.rows = append(l.rows, l.out.Records...)
	at := int64(len(l.rows) + 1)
	l.happen(t, core.Event{Kind: core.EventReply, At: l.task.UpdatedAt.Add(time.Second), Actor: "agent", Seq: l.task.Steps[1].Out, Result: []byte(`"charged"`)})
	l.happen(t, core.Event{Kind: core.EventSignal, At: l.task.UpdatedAt.Add(time.Second), Actor: "olga", Step: "approve", Result: []byte(`"yes"`)})
	f, err := WhatIf(&l.plan, l.saved(), at, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if f.Task.Steps[0].Status != core.StepRunning || f.Task.Steps[1].Status != core.StepDone {
		t.Errorf("charge answers earlier: reserve is %s, charge is %s", f.Task.Steps[0].Status, f.Task.Steps[1].Status)
	}
	if f, err = WhatIf(&l.plan, l.saved(), at+1, 100*time.Millisecond); err == nil {
		t.Errorf("a signal is taken for the answer of an agent: %s", f.Happened)
	}
}
