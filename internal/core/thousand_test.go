package core

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// shapeOf is a plan of n steps: in a line, side by side, or a fan out of the first and into the last.
func shapeOf(shape string, n int) *Plan {
	p := Plan{Name: "many", Version: 1, CompleteBy: 24 * time.Hour}
	for i := range n {
		s := Step{Name: fmt.Sprintf("%s%04d", strings.Repeat("s", NameBytesMax-4), i), Agent: "agent", Undoable: true, Narrow: true}
		switch {
		case shape == "line" && i > 0:
			s.After = []int{i - 1}
		case shape == "fan" && i == n-1:
			for a := 1; a < i; a++ {
				s.After = append(s.After, a)
			}
		case shape == "fan" && i > 0:
			s.After = []int{0}
		}
		p.Steps = append(p.Steps, s)
	}
	p = p.WithDefaults()
	return &p
}

var manyShapes = []string{"line", "beside", "fan"}

// BenchmarkManySteps is what the core costs a whole task: its birth and a reply to each command, in the order in which they
// leave. undo: the last step is refused, and all are undone.
func BenchmarkManySteps(b *testing.B) {
	for _, shape := range manyShapes {
		for _, undo := range []bool{false, true} {
			for _, n := range []int{5, 64, 250, StepsMax} {
				name := fmt.Sprintf("%s/%d", shape, n)
				if undo {
					name = fmt.Sprintf("%s-undo/%d", shape, n)
				}
				p := shapeOf(shape, n)
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						liveMany(b, p, undo, nil)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/step")
				})
			}
		}
	}
}

// liveMany lives a task by answering its commands in the order in which they leave; undo: the last step is refused. seen, if
// not nil, sees each outcome.
func liveMany(t testing.TB, p *Plan, undo bool, seen func(*Task, *Outcome)) *Task {
	refused := -1
	if undo {
		refused = len(p.Steps) - 1
	}
	return liveAny(t, p, refused, func(int) int { return 0 }, seen)
}

// liveAny is liveMany of which pick says which of so many open commands is answered next, and one step is refused; -1: none.
func liveAny(t testing.TB, p *Plan, refused int, pick func(int) int, seen func(*Task, *Outcome)) *Task {
	task := &Task{ID: "t1", CreatedAt: birthTime}
	var out Outcome
	var open []Effect
	look := func() {
		for _, x := range out.Effects {
			if x.Kind == EffectDo || x.Kind == EffectUndo {
				open = append(open, x)
			}
		}
		if seen != nil {
			seen(task, &out)
		}
	}
	Birth(p, task, &Event{At: birthTime, Actor: node}, &out)
	look()
	for n := 1; len(open) > 0; n++ {
		i := pick(len(open))
		x := open[i]
		if i == 0 {
			open = open[1:]
		} else {
			open = slices.Delete(open, i, i+1)
		}
		ev := Event{Kind: EventReply, At: birthTime + Instant(n), Actor: "agent", Seq: x.Seq, Result: []byte("1")}
		if x.Kind == EffectDo && x.Step == refused {
			ev.Code, ev.Error, ev.Result = CodeRefused, "no", nil
		}
		if err := Apply(p, task, &ev, &out); err != nil {
			t.Fatalf("step %d: %v", x.Step, err)
		}
		look()
	}
	want := StateProcessed
	if refused >= 0 {
		want = StateUndone
	}
	if task.State != want {
		t.Fatalf("it is %s, want %s: %s", task.State, want, task.Why)
	}
	return task
}

// orderly lives a task of a plan, and looks that its steps go forward and back in the order of the plan, that its journal
// replays to the same task, and that what people are told of it is bounded.
func orderly(t *testing.T, p *Plan, refused int, pick func(int) int) {
	t.Helper()
	if err := p.Validate(1 << 20); err != nil {
		t.Fatal(err)
	}
	before := p.AllAncestors()
	var over, left, back StepBuilder
	var journal []Record
	most := 0
	live := liveAny(t, p, refused, pick, func(task *Task, out *Outcome) {
		journal = append(journal, out.Records...)
		for i := range out.Records {
			if r := &out.Records[i]; r.Kind == KindDone {
				over.Add(r.Step)
			}
		}
		for _, x := range out.Effects {
			switch x.Kind {
			case EffectDo:
				if left.Add(x.Step); !before[x.Step].AndNot(over.set).Empty() {
					t.Fatalf("step %d begins before all that it comes after is done", x.Step)
				}
			case EffectUndo:
				back.Add(x.Step)
				for j := x.Step + 1; j < len(p.Steps); j++ {
					if task.Steps[j].Effect.Possible() && before[j].Has(x.Step) {
						t.Fatalf("step %d is undone before step %d", x.Step, j)
					}
				}
			}
		}
		if task.Seq%97 == 0 {
			most = max(most, len(task.Sentence(p, nil, task.UpdatedAt)))
		}
	})
	if undone := back.set.Len(); refused < 0 && left.set.Len() != len(p.Steps) || refused >= 0 && undone != over.set.Len() {
		t.Fatalf("%d steps have left, %d are done, %d are undone", left.set.Len(), over.set.Len(), undone)
	}
	if most > 16<<10 {
		t.Errorf("a sentence of %d bytes", most)
	}
	again, err := Replay(p, &Saved{Row: *live, Journal: journal})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Steps, live.Steps) || again.State != live.State {
		t.Error("the journal replays to another task")
	}
}

// TestManySteps: tasks of a thousand steps, forward and back.
func TestManySteps(t *testing.T) {
	for _, shape := range manyShapes {
		for _, refused := range []int{-1, StepsMax - 1} {
			t.Run(fmt.Sprintf("%s, refused %d", shape, refused), func(t *testing.T) {
				orderly(t, shapeOf(shape, StepsMax), refused, func(int) int { return 0 })
			})
		}
	}
}

// TestDrawnManySteps draws graphs of up to a thousand steps, the order of their answers, and a step that is refused.
func TestDrawnManySteps(t *testing.T) {
	for seed := range uint64(12) {
		draw := rand.New(rand.NewPCG(seed, 62))
		n := 65 + draw.IntN(StepsMax-64)
		p := shapeOf("beside", n)
		for i := 1; i < n; i++ {
			for range draw.IntN(4) {
				if a := max(0, i-1-draw.IntN(50)); !slices.Contains(p.Steps[i].After, a) {
					p.Steps[i].After = append(p.Steps[i].After, a)
				}
			}
		}
		refused := -1
		if seed%2 == 1 {
			refused = draw.IntN(n)
		}
		t.Run(fmt.Sprintf("seed %d, %d steps, refused %d", seed, n, refused), func(t *testing.T) { orderly(t, p, refused, draw.IntN) })
	}
}

// TestTooManySteps names the number that there may be.
func TestTooManySteps(t *testing.T) {
	err := shapeOf("line", StepsMax+1).Validate(0)
	if want := "plan cannot work: plan many: 1001 steps, want 1 to 1000"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestCommandOfManyResults: the names of the results that ride on a command count in what a message must hold.
func TestCommandOfManyResults(t *testing.T) {
	p := shapeOf("line", StepsMax)
	p.InputMax = 1024
	for i := range p.Steps {
		p.Steps[i].Narrow, p.Steps[i].ResultMax = false, 100
	}
	input, rest := 1024+StepsMax*100, envelopeBytesMax+(StepsMax-1-envelopeNames)*resultNameBytesMax
	if err := p.Validate(input + rest); err != nil {
		t.Error(err)
	}
	err := p.Validate(input + rest - 1)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the rest %d", rest)) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a message one byte too small: %v", err)
	}
}

// TestNamesThatDifferInTheLastLetter: results ride under the names of their steps, and are not mixed up.
func TestNamesThatDifferInTheLastLetter(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	p := shapeOf("line", len(letters))
	for i := range p.Steps {
		p.Steps[i].Name = strings.Repeat("s", NameBytesMax-1) + letters[i:i+1]
		p.Steps[i].Narrow = false
	}
	if err := p.Validate(0); err != nil {
		t.Fatal(err)
	}
	task := liveMany(t, p, false, nil)
	for i := range p.Steps {
		if p.StepIndex(p.Steps[i].Name) != i {
			t.Fatalf("the name of step %d is that of %d", i, p.StepIndex(p.Steps[i].Name))
		}
	}
	results := task.AppendResults(nil, p, p.Carried(len(letters)-1))
	if len(results) != len(letters)-1 {
		t.Fatalf("%d results", len(results))
	}
	for i, r := range results {
		if r.Step != p.Steps[i].Name {
			t.Errorf("result %d is of %s", i, r.Step)
		}
	}
}

// TestGraphsOfManySteps puts larger graphs through the storms of TestGraphs.
//
//	go test ./internal/core -run TestGraphsOfManySteps -lives 2000
func TestGraphsOfManySteps(t *testing.T) {
	for i := range max(1, *lives/100) {
		seed := *livesSeed + uint64(i)
		size := 65 + int(seed*37%64)
		if what := liveGraphOf(newTape(seed), size, nil, nil); what != "" {
			t.Errorf("seed %d, %d steps: %s", seed, size, what)
		}
	}
}
