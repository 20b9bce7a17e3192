package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// approvalPlan is a call, a signal that has a minute, and a call.
func approvalPlan() Plan {
	p := stepsPlan(3)
	p.CompleteBy = time.Hour
	p.Steps[1] = Step{Name: "approve", Kind: SignalStep, After: []int{0}, CompleteBy: time.Minute}
	return p
}

// TestSignal: one that comes in time counts once; one that comes at its complete-by does not.
func TestSignal(t *testing.T) {
	yes := Event{Kind: EventSignal, Actor: person, Step: "approve", Result: []byte(`"yes"`)}
	r := newRig(t, approvalPlan())
	r.birth(0)
	r.answer(0)
	if r.task.State != StatePending || r.task.Active() {
		t.Fatalf("it waits for a signal alone: %s", r.task)
	}
	if open := r.task.OpenSignals(); !open.Equal(OpenSignals{Steps: StepSetOf(1), Since: r.now, Due: r.task.Steps[1].Due}) {
		t.Fatalf("what it waits for: %+v", open)
	}
	r.must(yes)
	if !r.task.OpenSignals().Equal(OpenSignals{}) {
		t.Fatalf("it waits for a signal that has come: %+v", r.task.OpenSignals())
	}
	if r.task.Steps[2].Out == 0 || string(r.task.Steps[1].Result) != `"yes"` {
		t.Fatalf("answered: %s", r.task)
	}
	if err := r.apply(yes); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("a second answer: %v", err)
	}

	late := newRig(t, approvalPlan())
	late.birth(0)
	late.answer(0)
	late.now = late.task.Steps[1].Due
	if err := late.apply(yes); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("an answer at the complete-by: %v", err)
	}
	late.must(Event{Kind: EventOverdue})
	if late.task.State != StateUndoing {
		t.Fatalf("not answered in time: %s", late.task)
	}

	early := newRig(t, approvalPlan())
	early.birth(0)
	early.must(yes)
	early.answer(0)
	if early.task.Steps[1].Status != StepDone || early.task.Steps[2].Out == 0 {
		t.Fatalf("answered before it was asked: %s", early.task)
	}
}

// TestUndoReserve: no do begins, and none has time, in what is kept for the undo.
func TestUndoReserve(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy, p.UndoReserve = 30*time.Second, 25*time.Second
	r := newRig(t, p)
	r.birth(0)
	until := r.task.Deadline.Add(-25 * time.Second)
	if due := r.task.Steps[0].Due; due != until {
		t.Fatalf("the do of a has time until %d, want %d", due, until)
	}
	r.now = until - 1
	r.answer(0)
	r.late()
	if r.task.State != StateUndoing || r.now >= r.task.Deadline {
		t.Fatalf("its time for work is over: %s", r.task)
	}
}

// TestLeast: a call does not begin with less time than it needs.
func TestLeast(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy, p.Steps[1].Least = 12*time.Second, 5*time.Second
	r := newRig(t, p)
	r.birth(0)
	r.now = r.now.Add(8 * time.Second)
	r.answer(0)
	if r.task.State != StateUndoing || r.task.Steps[0].Status != StepUndoing || r.task.Steps[1].Attempt != 0 {
		t.Fatalf("4s are left, and b needs 5s: %s", r.task)
	}
}

// TestStartAt: nothing begins before it, and a cancel before it leaves nothing.
func TestStartAt(t *testing.T) {
	start := birthTime.Add(time.Hour)
	born := func() *rig {
		r := newRig(t, stepsPlan(1))
		r.task = &Task{ID: "t1", Type: r.plan.Name, Number: 1, CreatedAt: r.now, StartAt: start, Input: []byte(`{}`)}
		Birth(r.plan, r.task, &Event{At: r.now, Actor: node}, &r.out)
		r.commit(&Task{})
		return r
	}
	r := born()
	if r.task.State != StatePending || r.row.Bound != start || r.task.Deadline != start.Add(r.plan.CompleteBy) {
		t.Fatalf("it starts in an hour: %s", r.task)
	}
	if err := r.apply(Event{Kind: EventClaim}); !errors.Is(err, ErrStale) {
		t.Fatalf("claimed before: %v", err)
	}
	r.now = start
	r.must(Event{Kind: EventOverdue})
	if r.task.State != StateProcessing || r.task.Steps[0].Out == 0 {
		t.Fatalf("its time has come: %s", r.task)
	}
	c := born()
	c.must(Event{Kind: EventCancel})
	if c.task.State != StateUndone || len(c.out.Effects) != 1 {
		t.Fatalf("cancelled before it starts: %s %+v", c.task, c.out.Effects)
	}
}

// TestPossibleSignal: a signal is said to be possible exactly where Apply takes one, of a child too.
func TestPossibleSignal(t *testing.T) {
	yes := Event{Kind: EventSignal, Actor: person, Step: "approve", Result: []byte(`"yes"`)}
	for name, c := range map[string]struct {
		build func(r *rig)
		want  bool
	}{
		"before its step begins": {func(*rig) {}, true},
		"while it waits":         {func(r *rig) { r.answer(0) }, true},
		"after an early one":     {func(r *rig) { r.must(yes) }, false},
		"after its answer":       {func(r *rig) { r.answer(0); r.must(yes) }, false},
		"while it is undone":     {func(r *rig) { r.answer(0); r.must(Event{Kind: EventCancel, ByParent: true}) }, false},
	} {
		for _, parent := range []int64{0, 7} {
			r := newRig(t, approvalPlan())
			r.birth(0)
			c.build(r)
			task := r.task.clone()
			task.Parent = parent
			if got := slices.Contains(task.Possible(r.plan, r.now), "signal"); got != c.want {
				t.Errorf("%s, parent %d: %v, want signal: %v", name, parent, task.Possible(r.plan, r.now), c.want)
			}
			yes.At = r.now
			if err := Apply(r.plan, task, &yes, &r.out); (err == nil) != c.want {
				t.Errorf("%s, parent %d: Apply says %v, want it taken: %v", name, parent, err, c.want)
			}
		}
	}
}

// TestSignalTouchesRow: the row of a task follows when a signal is waited for beside a command that is out, and when it has
// come: what waits for an answer is found by the rows.
func TestSignalTouchesRow(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy = time.Hour
	p.Steps[1] = Step{Name: "c", Agent: "c", CompleteBy: time.Minute, After: []int{0}}
	p.Steps = append(p.Steps, Step{Name: "approve", Kind: SignalStep, After: []int{0}, CompleteBy: 30 * time.Minute}, Step{Name: "last", Agent: "z", After: []int{1, 2}})
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	if r.task.State != StateProcessing || !r.task.OpenSignals().Steps.Equal(StepSetOf(2)) || !r.out.Row {
		t.Fatalf("a signal beside a call: %s, open %+v, row %v", r.task, r.task.OpenSignals(), r.out.Row)
	}
	r.must(Event{Kind: EventSignal, Actor: person, Step: "approve", Result: []byte("1")})
	if r.task.State != StateProcessing || !r.task.OpenSignals().Steps.Empty() || !r.out.Row {
		t.Fatalf("answered beside a call: %s, row %v", r.task, r.out.Row)
	}
}

// startsLater is a task that is born an hour before its start.
func startsLater(t *testing.T, p Plan) *rig {
	r := newRig(t, p)
	r.task = &Task{ID: "t1", Type: r.plan.Name, Number: 1, CreatedAt: r.now, StartAt: r.now.Add(time.Hour), Input: []byte(`{}`)}
	Birth(r.plan, r.task, &Event{At: r.now, Actor: node}, &r.out)
	r.commit(&Task{})
	return r
}

// A task whose start comes while its agent has no room is parked there, and begins when there is some.
//
// covers: inv11
func TestStartFindsNoRoom(t *testing.T) {
	r := startsLater(t, stepsPlan(2))
	r.now = r.task.StartAt
	r.must(Event{Kind: EventOverdue, Full: StepSetOf(0)})
	if r.task.State != StatePending || r.task.WaitsFor != "agent.a" {
		t.Fatalf("its start found no room, it waits for %q: %s", r.task.WaitsFor, r.task)
	}
	if err := r.apply(Event{Kind: EventClaim, Full: StepSetOf(0)}); !errors.Is(err, ErrStale) {
		t.Errorf("claimed without room: %v", err)
	}
	r.must(Event{Kind: EventClaim})
	if r.task.Out() != 0 {
		t.Errorf("there is room: %s", r.task)
	}
}

// A step whose pause ends while its agent has no room is parked there, also while a signal is waited for, and it is asked about
// though another row came between the end of its pause and the question.
//
// covers: inv11
func TestPauseEndsWithoutRoom(t *testing.T) {
	p := stepsPlan(1)
	p.CompleteBy, p.Steps[0].OnExhausted, p.Steps[0].AttemptsMax, p.Steps[0].Pause = time.Hour, PolicyWait, 1, time.Minute
	p.Steps = append(p.Steps, Step{Name: "approve", Kind: SignalStep})
	for _, between := range []bool{false, true} {
		r := newRig(t, p)
		r.birth(0)
		r.answer(500)
		r.now = r.task.Steps[0].Due
		if between {
			r.must(Event{Kind: EventExtend, Actor: person, Until: r.task.Deadline.Add(time.Hour)})
		}
		r.must(Event{Kind: EventOverdue, Full: StepSetOf(0)})
		if r.task.WaitsFor != "agent.a" {
			t.Errorf("extended %v: its pause is over, and it waits for %q until %v: %s", between, r.task.WaitsFor, r.row.Bound.Sub(r.now), r.task)
		}
	}
}

// A signal that comes in the pause of its step is taken when that is over.
//
// covers: inv11
func TestSignalInThePause(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy, p.Steps[0] = 12*time.Hour, Step{Name: "approve", Kind: SignalStep, CompleteBy: time.Hour, OnExhausted: PolicyWait, Pause: time.Minute}
	r := newRig(t, p)
	r.birth(0)
	r.late()
	until := r.task.Steps[0].Due
	r.now = r.now.Add(time.Second)
	r.must(Event{Kind: EventSignal, Actor: person, Step: "approve", Result: []byte(`"yes"`)})
	r.now = until
	r.must(Event{Kind: EventOverdue})
	if r.task.Steps[0].Status != StepDone || r.task.Out() != 1 {
		t.Errorf("approved after its pause: no wake-up for %v: %s", r.row.Bound.Sub(r.now), r.task)
	}
}

// An extension, and a signal that comes early, do not hide why a step failed.
func TestWhyOutlastsWhatExplainsNothing(t *testing.T) {
	p := stepsPlan(1)
	p.CompleteBy = time.Hour
	p.Steps = append(p.Steps, Step{Name: "approve", Kind: SignalStep, After: []int{0}})
	r := newRig(t, p)
	r.birth(0)
	r.answer(500)
	r.must(Event{Kind: EventExtend, Actor: person, Until: r.task.Deadline.Add(time.Hour), Reason: "more time"})
	r.must(Event{Kind: EventSignal, Actor: person, Step: "approve", Result: []byte(`1`), Reason: "fine with me"})
	if r.task.FailedStep != 1 || r.task.Why != "code 500" {
		t.Errorf("step %d failed with %q", r.task.FailedStep, r.task.Why)
	}
}

// A task whose plan was not known when it came, and which starts later, has the plan's time from its start when it is resubmitted
// before, and no deadline before its start.
//
// covers: inv11
func TestResubmitBeforeItsStart(t *testing.T) {
	p, start := stepsPlan(1).WithDefaults(), birthTime.Add(time.Hour)
	task := &Task{ID: "t1", Type: p.Name, Number: 1, CreatedAt: birthTime, StartAt: start, Input: []byte(`{}`)}
	var out Outcome
	Birth(nil, task, &Event{At: birthTime, Actor: node, Error: "unknown"}, &out)
	ev := Event{Kind: EventResubmit, At: birthTime.Add(time.Second), Actor: person, Until: start}
	if err := Apply(&p, task, &ev, &out); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "not after its start") {
		t.Errorf("a deadline before its start: %v", err)
	}
	ev.Until = 0
	if err := Apply(&p, task, &ev, &out); err != nil || task.State != StatePending || task.Deadline != start.Add(p.CompleteBy) {
		t.Errorf("its deadline is %v from its start, want %v: %s, %v", task.Deadline.Sub(start), p.CompleteBy, task.State, err)
	}
}
