package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// counted is a task whose rows are counted as its owner does.
type counted struct {
	*testing.T
	tally tally
	entry entry
	now   core.Instant
	out   core.Outcome
}

// goldenPlan has a call of each of two agents, and a wait.
func goldenPlan() core.Plan {
	return core.Plan{Name: "order", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
		{Name: "reserve", Agent: "stock", Undoable: true, AttemptsMax: 2, CompleteBy: time.Minute},
		{Name: "pause", Kind: core.WaitStep, For: time.Second, After: []int{0}},
		{Name: "pay", Agent: "bank", Undoable: true, AttemptsMax: 2, CompleteBy: time.Minute, After: []int{1}},
	}}.WithDefaults()
}

func (c *counted) begin() {
	c.entry.task = &core.Task{ID: "o-1", Type: "order", Number: 1, CreatedAt: c.now, Input: []byte(`{}`)}
	core.Birth(c.entry.plan.plan, c.entry.task, &core.Event{At: c.now}, &c.out)
	c.commit()
}

func (c *counted) commit() {
	for i := range c.out.Records {
		c.entry.plan.count(&c.out.Records[i], c.entry.task)
	}
	for _, e := range c.out.Effects {
		if e.Kind == core.EffectEnded {
			c.tally.countEnd(&c.entry, false)
		}
	}
}

func (c *counted) apply(ev core.Event) {
	c.Helper()
	if ev.At == 0 {
		ev.At = c.now
	}
	if err := core.Apply(c.entry.plan.plan, c.entry.task, &ev, &c.out); err != nil {
		c.Fatal(err)
	}
	c.commit()
}

// answer answers the command that is out after a time.
func (c *counted) answer(after time.Duration, code int) {
	c.Helper()
	c.now = c.now.Add(after)
	s := &c.entry.task.Steps[c.entry.task.Out()]
	c.apply(core.Event{Kind: core.EventReply, Seq: s.Out, Copy: s.Copy, Code: code, Result: []byte(`1`)})
}

func (c *counted) pass(after time.Duration) {
	c.Helper()
	c.now = c.now.Add(after)
	c.apply(core.Event{Kind: core.EventOverdue})
}

// TestGoldenSignals: what is committed is counted by type and agent: how long tasks and steps took, waits left out; errors;
// missed deadlines; and an undo that was asked for apart from those of failures.
//
// covers: O8
func TestGoldenSignals(t *testing.T) {
	p := goldenPlan()
	c := &counted{T: t, now: 1_000_000}
	c.entry.plan = &planRef{plan: &p, counts: c.tally.types.of(p.Name), steps: c.tally.steps(&p)}

	c.begin() // done after a failed attempt
	c.answer(time.Second, 500)
	c.answer(3*time.Second, 0)
	c.pass(time.Second)
	c.answer(50*time.Millisecond, 0)
	c.apply(core.Event{Kind: core.EventUndo, Reason: "not wanted"})
	c.answer(0, 500) // its undo fails once
	c.answer(0, 0)
	c.answer(0, 0)

	c.begin() // refused
	c.answer(0, core.CodeRefused)

	c.begin() // its deadline passes while it waits for an answer
	c.now = c.entry.task.Deadline
	c.apply(core.Event{Kind: core.EventOverdue})

	var s Snapshot
	c.tally.read(&s)
	of := func(l Latency) string {
		n := int64(0)
		for _, one := range l.Counts {
			n += one
		}
		return fmt.Sprintf("%d in %v", n, l.Sum)
	}
	for _, x := range s.Types {
		if got := fmt.Sprintf("created %d, %v, asked %d, missed %d", x.Created, x.Ended, x.Asked, x.Missed); x.Type == p.Name && got != "created 0, map[error:0 processed:1 undone:1], asked 1, missed 1" {
			t.Errorf("%s: %s", x.Type, got)
		}
		if x.Type == p.Name && of(x.Took) != "3 in 10.1s" {
			t.Errorf("tasks took %s", of(x.Took))
		}
	}
	steps := map[string]string{}
	for _, x := range s.Steps {
		steps[x.Type+" "+x.Agent] = of(x.Took)
	}
	if want := map[string]string{"order stock": "1 in 4s", "order bank": "1 in 50ms", "other other": "0 in 0s"}; fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("steps took %v, want %v", steps, want)
	}
	slices.SortFunc(s.Agents, func(x, y AgentCount) int { return strings.Compare(x.Agent, y.Agent) })
	if want := "[{bank 1 0 0} {other 0 0 0} {stock 1 1 1}]"; fmt.Sprint(s.Agents) != want {
		t.Errorf("errors are %v, want %s", s.Agents, want)
	}
}

// TestCountedApartIsBounded: a shard tells so many apart and counts all others as one.
//
// covers: O8
func TestCountedApartIsBounded(t *testing.T) {
	var t0 tally
	for i := range 10_000 {
		p := goldenPlan()
		p.Name, p.Steps[0].Agent = fmt.Sprint("type", i), fmt.Sprint("agent", i)
		for _, s := range t0.steps(&p) {
			if s.took != nil {
				s.took.add(time.Second)
				s.agent.failed.Add(1)
			}
		}
		t0.types.of(p.Name).created.Add(1)
	}
	var s Snapshot
	t0.read(&s)
	if len(s.Types) != countedMax+1 || len(s.Steps) != countedMax+1 || len(s.Agents) != countedMax+1 {
		t.Errorf("%d types, %d steps, %d agents", len(s.Types), len(s.Steps), len(s.Agents))
	}
	sum := int64(0)
	for _, a := range s.Agents {
		sum += a.Failed
	}
	if sum != 20_000 {
		t.Errorf("%d errors", sum)
	}
}

// BenchmarkGoldenSignals is what the counting costs a task of five steps, beside all that its commits cost.
func BenchmarkGoldenSignals(b *testing.B) {
	p := core.Plan{Name: "order", Version: 1}
	task := &core.Task{ID: "o-1", Type: "order", State: core.StateProcessed, EndedAt: 2_000_000}
	var rows []core.Record
	for i := range 5 {
		p.Steps = append(p.Steps, core.Step{Name: fmt.Sprint(i), Agent: fmt.Sprint("agent", i), Kind: core.CallStep})
		task.Steps = append(task.Steps, core.StepState{Used: 1_000_000})
		rows = append(rows, core.Record{Kind: core.KindDone, Step: i, At: 1_200_000, Result: []byte(`1`)})
	}
	var t tally
	e := &entry{task: task, plan: &planRef{plan: &p, counts: t.types.of(p.Name), steps: t.steps(&p)}}
	b.ReportAllocs()
	for b.Loop() {
		for i := range rows {
			e.plan.count(&rows[i], task)
		}
		t.countEnd(e, false)
	}
}
