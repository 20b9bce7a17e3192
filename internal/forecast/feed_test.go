package forecast

import (
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// owner plays an owner of tasks: it applies events, and tells the feed what it would commit.
type owner struct {
	t    *testing.T
	plan *core.Plan
	feed *Feed
	next int64
}

// commit tells what was decided.
func (o *owner) commit(task *core.Task, out *core.Outcome, birth bool) {
	o.feed.Committed(func(yield func(*core.Plan, *core.TaskWrite) bool) {
		yield(o.plan, &core.TaskWrite{Task: task, Birth: birth, Records: out.Records})
	})
}

// born makes a task that was submitted at an instant, and waited in the stream.
func (o *owner) born(at core.Instant, waited time.Duration) *core.Task {
	o.next++
	task, out := &core.Task{Number: o.next, ID: "x", Type: o.plan.Name, CreatedAt: at}, &core.Outcome{}
	core.Birth(o.plan, task, &core.Event{At: at.Add(waited)}, out)
	o.commit(task, out, true)
	return task
}

func (o *owner) event(task *core.Task, ev core.Event) {
	o.t.Helper()
	var out core.Outcome
	if err := core.Apply(o.plan, task, &ev, &out); err != nil {
		o.t.Fatal(err)
	}
	o.commit(task, &out, false)
}

// answer answers the command that is out.
func (o *owner) answer(task *core.Task, at core.Instant, code int) {
	o.t.Helper()
	o.event(task, core.Event{Kind: core.EventReply, At: at, Seq: task.Steps[task.Out()].Out, Code: code, Rand: 0.9})
}

// TestFeed: waits and runs are told apart, attempts are part of a run, and what was said is compared with what became of it.
func TestFeed(t *testing.T) {
	b := NewBook(0)
	o := &owner{t: t, plan: chain(2), feed: NewFeed(b)}
	for i := range 100 {
		at := second.Add(time.Duration(i) * time.Second)
		task := o.born(at, 20*time.Millisecond)
		o.answer(task, at.Add(120*time.Millisecond), 0)
		o.answer(task, at.Add(220*time.Millisecond), 500)
		o.event(task, core.Event{Kind: core.EventWake, At: task.Steps[1].Due})
		o.answer(task, at.Add(1120*time.Millisecond), 0)
		if task.State != core.StateProcessed {
			t.Fatalf("the task is %s", task.State)
		}
	}
	for i, want := range []time.Duration{100 * time.Millisecond, time.Second} {
		s := b.series[Key{"order", 1, o.plan.Steps[i].Name}]
		if got := s.run.Quantile(0.5); (got - want).Abs() > want/part {
			t.Errorf("step %d runs for %v, want %v", i, got, want)
		}
	}
	for _, step := range []string{"s0", "s1"} { // the 20 ms until the task is born are those of the queue, which doors know
		if got := b.series[Key{"order", 1, step}].wait.Quantile(1); got > time.Millisecond {
			t.Errorf("step %s waits for %v, want not at all", step, got)
		}
	}
	if bin := b.Calibration()[Bins-1]; bin.N < 100 || bin.Made != bin.N {
		t.Errorf("all made it, and of %d said so %d did", bin.N, bin.Made)
	}
	if len(o.feed.tasks) != 0 {
		t.Errorf("%d tasks are followed after their end", len(o.feed.tasks))
	}
}

// TestFeedOfALaterStart: a task that was to begin later has waited from then on, not from its submission.
func TestFeedOfALaterStart(t *testing.T) {
	b := NewBook(0)
	o := &owner{t: t, plan: chain(1), feed: NewFeed(b)}
	for i := range 100 {
		at := second.Add(time.Duration(i) * time.Second)
		task, out := &core.Task{Number: int64(i), ID: "x", Type: o.plan.Name, CreatedAt: at, StartAt: at.Add(time.Hour)}, &core.Outcome{}
		core.Birth(o.plan, task, &core.Event{At: at}, out)
		o.commit(task, out, true)
		o.event(task, core.Event{Kind: core.EventOverdue, At: task.StartAt.Add(20 * time.Millisecond)})
		o.answer(task, task.StartAt.Add(120*time.Millisecond), 0)
		if task.State != core.StateProcessed {
			t.Fatalf("the task is %s", task.State)
		}
	}
	if got := b.series[Key{"order", 1, "s0"}].wait.Quantile(0.5); (got - 20*time.Millisecond).Abs() > 3*time.Millisecond {
		t.Errorf("the first step waits for %v, want 20ms from the start-at on", got)
	}
}

// TestFeedFailures: a step that is refused came to no end; one that the deadline cut ran for at least as long as it had;
// what a person cancelled says nothing.
func TestFeedFailures(t *testing.T) {
	b := NewBook(0)
	o := &owner{t: t, plan: chain(1), feed: NewFeed(b)}
	at := second
	refused := o.born(at, 0)
	o.answer(refused, at.Add(time.Second), 422)
	run := func() (weight, never float64) {
		s := b.series[Key{"order", 1, "s0"}]
		return s.run.total, s.run.never
	}
	if ran, never := run(); ran != 0 || never != 1 {
		t.Errorf("after a refusal: %v, %v, want 0 and 1", ran, never)
	}
	cancelled := o.born(at, 0)
	o.event(cancelled, core.Event{Kind: core.EventCancel, At: at.Add(time.Second)})
	if ran, never := run(); ran != 0 || never != 1 {
		t.Errorf("after a cancel: %v, %v, want 0 and 1 still", ran, never)
	}
	o.plan.Steps[0].AttemptsMax, o.plan.Steps[0].CompleteBy = 1, o.plan.CompleteBy
	late := o.born(at, 0)
	o.event(late, core.Event{Kind: core.EventOverdue, At: late.Deadline})
	if ran, never := run(); ran != 1 || never != 1 {
		t.Errorf("after the deadline (the task is %s): %v, %v, want 1 and 1", late.State, ran, never)
	}
	if got := b.series[Key{"order", 1, "s0"}].run.Quantile(1); got < 50*time.Second {
		t.Errorf("it ran for %v, want the minute", got)
	}
}

// TestFeedBound: of many tasks some are followed, and no more than its bound at a time.
func TestFeedBound(t *testing.T) {
	o := &owner{t: t, plan: chain(1), feed: NewFeed(NewBook(0))}
	for range 1000 {
		o.born(second, 0)
	}
	if n := len(o.feed.tasks); n != bornMost/4 {
		t.Errorf("of a thousand in a second %d are followed, want %d", n, bornMost/4)
	}
	for i := range 2 * followedMax {
		o.born(second.Add(time.Duration(i)*time.Second), 0)
	}
	if n := len(o.feed.tasks); n > followedMax || len(o.feed.order) > 2*followedMax {
		t.Errorf("%d tasks are followed, %d places kept; want at most %d", n, len(o.feed.order), followedMax)
	}
}

// BenchmarkTellOthers is what a commit pays for a task that is not followed.
func BenchmarkTellOthers(b *testing.B) {
	plan, f := chain(5), NewFeed(NewBook(0))
	task, out := &core.Task{Number: 1, ID: "x", Type: "order", CreatedAt: second}, &core.Outcome{}
	core.Birth(plan, task, &core.Event{At: second}, out)
	w := &core.TaskWrite{Task: task, Records: out.Records}
	for i := range followedMax {
		f.follow(place{1, int64(i)}, 5)
	}
	for b.Loop() {
		f.tell(plan, w)
	}
}

// TestEveryKind: the feed takes a row of each kind, of a task that has more, fewer or as many steps as before.
//
// covers: L5
func TestEveryKind(t *testing.T) {
	for _, kind := range core.Kinds() {
		for _, steps := range []int{1, 2, 3} {
			o := &owner{t: t, plan: chain(2), feed: NewFeed(NewBook(0))}
			task := o.born(second, 0)
			at := place{task.Partition, task.Number}
			if o.feed.tasks[at] == nil {
				t.Fatal("it is not followed")
			}
			o.plan = chain(steps)
			other := *task
			other.Steps = make([]core.StepState, steps)
			o.commit(&other, &core.Outcome{Records: []core.Record{{Kind: kind, Step: -1, Next: -1, Seq: 2}}}, false)
			if follows := o.feed.tasks[at] != nil; follows != (steps == 2 && !kind.Disturbs()) {
				t.Errorf("after %s, with %d steps of 2: followed %v", kind, steps, follows)
			}
		}
	}
}
