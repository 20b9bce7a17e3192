package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// planOf makes a plan of calls; after names the indexes of each step.
func planOf(after ...[]int) *core.Plan {
	p := core.Plan{Name: "order", Version: 1, CompleteBy: time.Minute}
	for i, a := range after {
		p.Steps = append(p.Steps, core.Step{Name: fmt.Sprintf("s%d", i), Agent: fmt.Sprintf("a%d", i), After: a, Undoable: true})
	}
	p = p.WithDefaults()
	return &p
}

// chain is a plan of so many calls one after the other.
func chain(steps int) *core.Plan {
	after := make([][]int, steps)
	for i := 1; i < steps; i++ {
		after[i] = []int{i - 1}
	}
	return planOf(after...)
}

// learn has each step of a plan run for a duration that is drawn, so many times.
func learn(b *Book, p *core.Plan, times int, draw func(step int) time.Duration) {
	for range times {
		for i := range p.Steps {
			b.Ran(p, i, draw(i), second)
		}
	}
}

func near(got, want, most float64) bool { return math.Abs(got-want) <= most }

// TestNeeds: the critical path goes along the graph: one after the other adds, side by side takes the longer.
func TestNeeds(t *testing.T) {
	of := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 50 * time.Millisecond}
	for _, c := range []struct {
		name string
		plan *core.Plan
		want time.Duration
	}{
		{"chain", chain(4), 750 * time.Millisecond},
		{"diamond", planOf(nil, []int{0}, []int{0}, []int{1, 2}), 550 * time.Millisecond},
		{"side by side", planOf(nil, nil, nil, nil), 400 * time.Millisecond},
	} {
		b := NewBook(0)
		learn(b, c.plan, 50, func(i int) time.Duration { return of[i] })
		got, newest, known := b.Needs(c.plan, 0.95, second)
		if !known || newest != second || (got-c.want).Abs() > c.want/part {
			t.Errorf("%s needs %v (%v, newest %v), want %v", c.name, got, known, newest, c.want)
		}
	}
}

// TestChance compares with the same plan played many times at random: a diamond whose branches share what is before them.
func TestChance(t *testing.T) {
	p, b, r := planOf(nil, []int{0}, []int{0}, []int{1, 2}), NewBook(0), rand.New(rand.NewPCG(5, 6))
	mean := []float64{100, 50, 80, 20}
	draw := func(i int) time.Duration { return time.Duration(r.ExpFloat64() * mean[i] * float64(time.Millisecond)) }
	learn(b, p, 4000, draw)
	for _, left := range []time.Duration{50, 100, 200, 300, 500, 1000} {
		left *= time.Millisecond
		made := 0
		const runs = 20000
		for range runs {
			if draw(0)+max(draw(1), draw(2))+draw(3) <= left {
				made++
			}
		}
		got, known := b.Chance(p, nil, left, second)
		if !known || !near(got, float64(made)/runs, 0.05) {
			t.Errorf("the chance with %v left is %.3f (%v), want %.3f", left, got, known, float64(made)/runs)
		}
		if again, _ := b.Chance(p, nil, left, second); again != got {
			t.Errorf("the same question had the answers %v and %v", got, again)
		}
	}
}

// TestProgress: what is over takes no more time, and what has run for a while is one of those that take longer.
func TestProgress(t *testing.T) {
	p, b := chain(2), NewBook(0)
	learn(b, p, 100, func(int) time.Duration { return 100 * time.Millisecond })
	learn(b, p, 100, func(int) time.Duration { return time.Second })
	for _, c := range []struct {
		name     string
		progress []Progress
		least    float64
		most     float64
	}{
		{"nothing has begun", []Progress{{}, {}}, 0.2, 0.3}, // both short
		{"the first is done", []Progress{{Over: true}, {}}, 0.45, 0.55},
		{"the first has run for longer than a short one", []Progress{{Begun: true, For: 300 * time.Millisecond}, {}}, 0, 0.01},
		{"the last has run for nearly as long as a long one", []Progress{{Over: true}, {Begun: true, For: 900 * time.Millisecond}}, 0.99, 1},
		{"a wait that is over soon", []Progress{{Begun: true, Known: time.Millisecond}, {}}, 0.45, 0.55},
	} {
		if got, known := b.Chance(p, c.progress, 300*time.Millisecond, second); !known || got < c.least || got > c.most {
			t.Errorf("%s: %.3f (%v), want %v to %v", c.name, got, known, c.least, c.most)
		}
	}
}

// TestFailures: a step that fails one time in four lets a task miss its deadline, however long it has.
func TestFailures(t *testing.T) {
	p, b := chain(1), NewBook(0)
	learn(b, p, 300, func(int) time.Duration { return time.Millisecond })
	for range 100 {
		b.Failed(p, 0, second)
	}
	if got, _ := b.Chance(p, nil, time.Hour, second); !near(got, 0.75, 0.01) {
		t.Errorf("the chance is %.3f, want 0.75", got)
	}
	if got, _, _ := b.Needs(p, 0.95, second); got > 2*time.Millisecond {
		t.Errorf("of those that come to an end it needs %v, want about 1 ms", got)
	}
}

// TestReserve: a call that may not begin so late takes its time from the deadline.
func TestReserve(t *testing.T) {
	p, b := chain(2), NewBook(0)
	learn(b, p, 100, func(int) time.Duration { return 100 * time.Millisecond })
	p.UndoReserve = time.Second
	if got, _ := b.Remaining(p, nil, 0.95, second); (got - 1100*time.Millisecond).Abs() > 20*time.Millisecond {
		t.Errorf("with a reserve of a second it needs %v, want 1.1s: the second begins after the first", got)
	}
	p.UndoReserve, p.Steps[1].Least = 0, 3*time.Second
	if got, _ := b.Chance(p, nil, 3*time.Second, second); got != 0 {
		t.Errorf("a call that wants 3 s, and has less, has a chance of %v", got)
	}
}

// TestUnknown: without enough history there is no answer; a fixed wait needs none; an agent stands in for its step.
func TestUnknown(t *testing.T) {
	p, b := chain(2), NewBook(0)
	p.Steps[0].Kind, p.Steps[0].Agent, p.Steps[0].For = core.WaitStep, "", time.Hour
	learn(b, p, weightLeast-1, func(int) time.Duration { return time.Millisecond })
	if _, known := b.Chance(p, nil, 2*time.Hour, second); known {
		t.Error("29 observations are enough")
	}
	other := *chain(2)
	other.Name = "refund"
	b.Ran(&other, 1, time.Millisecond, second)
	now := second.Add(shapeFor)
	got, _, known := b.Needs(p, 0.95, now)
	if !known || (got-time.Hour).Abs() > time.Second {
		t.Errorf("the agent has 30 observations; it needs %v (%v), want an hour", got, known)
	}
	if got, known := b.Chance(p, []Progress{{Over: true}, {}}, time.Second, now); !known || got != 1 {
		t.Errorf("after the wait: %v, %v", got, known)
	}
}

// TestWaits: for how long steps wait for room counts.
func TestWaits(t *testing.T) {
	p, b := chain(2), NewBook(0)
	learn(b, p, 50, func(int) time.Duration { return 10 * time.Millisecond })
	for range 50 {
		b.Waited(p, 1, 5*time.Second, second)
	}
	if got, _, _ := b.Needs(p, 0.5, second); got < 4*time.Second {
		t.Errorf("it needs %v, want the 5 s for which the second step waits", got)
	}
	got, known := b.Remaining(p, []Progress{{Over: true}, {For: 4900 * time.Millisecond}}, 0.5, second)
	if !known || got > time.Second {
		t.Errorf("a step that has waited for 4.9 s needs %v (%v) more", got, known)
	}
}

// TestBound: a book of many steps forgets those that were not seen for longest.
func TestBound(t *testing.T) {
	b := NewBook(64)
	for i := range 1000 {
		p := chain(1)
		p.Name = fmt.Sprintf("t%d", i)
		b.Ran(p, 0, time.Second, second.Add(time.Duration(i)*time.Second))
	}
	if n := len(b.series); n > 64 {
		t.Errorf("%d series, want at most 64", n)
	}
	if b.series[Key{"t999", 1, "s0"}] == nil || b.series[Key{"t1", 1, "s0"}] != nil {
		t.Error("it forgot the newest, or kept the oldest")
	}
}

// TestRows: a node that begins again knows what it knew, and others know it too, once.
func TestRows(t *testing.T) {
	p, a := chain(2), NewBook(0)
	learn(a, p, 100, func(int) time.Duration { return time.Second })
	rows := a.Changed(100)
	if len(rows) != 4 { // two steps, two agents
		t.Fatalf("%d rows, want 4", len(rows))
	}
	if again := a.Changed(100); len(again) != 0 {
		t.Errorf("%d rows changed without a change", len(again))
	}
	restarted, other := NewBook(0), NewBook(0)
	if err := restarted.Restore(rows); err != nil {
		t.Fatal(err)
	}
	for range 3 { // as it is read again and again
		if err := other.Others(rows); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range map[string]*Book{"restarted": restarted, "another node": other} {
		if got, _, known := b.Needs(p, 0.95, second); !known || (got-2*time.Second).Abs() > 250*time.Millisecond {
			t.Errorf("%s: it needs %v (%v), want 2s", name, got, known)
		}
	}
	if w := other.series[Key{"order", 1, "s0"}].others.run.Weight(); !near(w, 100, 0.1) {
		t.Errorf("another node counts %v observations, want 100", w)
	}
	if len(other.Changed(100)) != 0 {
		t.Error("another node would store what is not its own")
	}
	rows[0].Data = rows[0].Data[:2]
	if err := other.Others(rows); err == nil || !strings.Contains(err.Error(), rows[0].Step) {
		t.Errorf("a row that is cut: %v, want the step's name", err)
	}
}

// BenchmarkChance is one question about a plan of five steps. The bound is 20 µs.
func BenchmarkChance(b *testing.B) {
	for _, plan := range []*core.Plan{chain(5), chain(core.StepsMax)} {
		b.Run(fmt.Sprint(len(plan.Steps)), func(b *testing.B) {
			book, r := NewBook(0), rand.New(rand.NewPCG(7, 8))
			learn(book, plan, 100, func(int) time.Duration { return time.Duration(r.ExpFloat64() * 1e8) })
			for i := range plan.Steps {
				for range 50 {
					book.Waited(plan, i, time.Second, second)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				book.Chance(plan, nil, time.Second, second)
			}
		})
	}
}

// Remaining is how much time a task needs yet, in a part q of the cases, that is so far.
func (b *Book) Remaining(p *core.Plan, progress []Progress, q float64, now core.Instant) (d time.Duration, known bool) {
	return needs(b.shape(p, now), p, progress, true, q)
}
