package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Corners that a random storm meets too seldom to rely on it.

// A retry that finds no room is parked like a first attempt: it waits for room, not
// for its backoff, and no supervisor asks about it before the deadline.
func TestRetryParks(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.answer(CodeAgentError)
	r.now = r.task.NextDue(r.plan)
	r.must(Event{Kind: EventWake, Full: StepSetOf(0)})
	if r.task.State != StatePending || r.row.Bound != r.task.Deadline {
		t.Fatalf("parked: %s, bound of the row %d", r.task, r.row.Bound)
	}
	r.must(Event{Kind: EventClaim})
}

// So does one beside a step that waits by itself, however long that has yet to wait: nothing of the task is at work.
func TestRetryParksBesideAWait(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[1] = Step{Name: "w", Kind: WaitStep, For: 10 * time.Second}
	r := newRig(t, p)
	r.birth(0)
	r.answer(CodeAgentError)
	r.now = r.task.NextDue(r.plan)
	r.must(Event{Kind: EventWake, Full: StepSetOf(0)})
	if wait := r.task.Steps[1].Due; r.task.State != StatePending || r.task.WaitsFor != "agent.a" || r.row.Bound != wait {
		t.Fatalf("parked: %s, waits for %q, bound of the row %d, want %d", r.task, r.task.WaitsFor, r.row.Bound, wait)
	}
	r.must(Event{Kind: EventClaim})
}

// One beside a command that is out waits as well, and a supervisor that asks about it gets one row: its bound moves to
// what is due.
func TestRetryWaitsBesideACommand(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[1].After, p.Steps[1].CompleteBy = nil, 30*time.Second
	r := newRig(t, p)
	r.birth(0)
	r.answer(CodeAgentError)
	r.now = r.task.NextDue(r.plan)
	r.must(Event{Kind: EventOverdue, Full: StepSetOf(0)})
	if out := r.task.Steps[1].Due; r.journal[len(r.journal)-1].Kind != KindAsked || r.row.Bound != out {
		t.Fatalf("%s, its last row is %s, bound of the row %d, want %d", r.task, r.journal[len(r.journal)-1].Kind, r.row.Bound, out)
	}
	if err := r.apply(Event{Kind: EventOverdue, Full: StepSetOf(0)}); err == nil {
		t.Fatal("the question is answered twice")
	}
	r.must(Event{Kind: EventClaim})
}

// A task that is about to stop for an operator has nothing to do about a wait when its deadline comes: the command
// that is out ends first. A row for it would lead to the next one, at the same instant and without end.
func TestDeadlineWhileItStops(t *testing.T) {
	p := stepsPlan(3)
	p.CompleteBy = 10 * time.Second
	p.Steps[0].OnExhausted, p.Steps[0].AttemptsMax = PolicyError, 1
	p.Steps[1] = Step{Name: "w", Kind: WaitStep, For: 10 * time.Second}
	p.Steps[2].After = nil
	r := newRig(t, p)
	r.birth(0)
	r.answer(CodeRefused)
	if r.task.State != StateProcessing {
		t.Fatalf("%s", r.task)
	}
	r.now = r.task.Deadline
	rows := len(r.journal)
	if err := r.apply(Event{Kind: EventWake}); !errors.Is(err, ErrStale) || len(r.journal) != rows {
		t.Fatalf("%v, %d rows more, and it wakes at %d of %d", err, len(r.journal)-rows, r.task.nextWake(r.plan, r.now), r.now)
	}
	r.must(Event{Kind: EventOverdue})
	if r.task.State != StateUndoing { // the policy of the step that is late now
		t.Fatalf("%s", r.task)
	}
}

// A wait has no result, so that one which has failed is no step to accept: what is possible says so.
func TestAWaitIsNotAccepted(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[1] = Step{Name: "w", Kind: WaitStep, Until: "input.at", After: []int{0}, OnExhausted: PolicyError}
	r := newRig(t, p)
	r.birth(0)
	r.answer(0) // and nothing can evaluate until
	if r.task.State != StateError || slices.Contains(r.task.Possible(r.plan, r.now), "accept") {
		t.Fatalf("%s: possible are %v", r.task, r.task.Possible(r.plan, r.now))
	}
	if err := r.apply(Event{Kind: EventAccept, Result: []byte("1")}); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "step w is a wait") {
		t.Fatal(err)
	}
}

// A submission may name a deadline shorter than any time-out of its plan.
func TestOwnDeadlineBoundsTheRow(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.own = r.now.Add(time.Second)
	r.birth(1)
	if r.row.Bound > r.own {
		t.Fatalf("bound %d above the deadline %d", r.row.Bound, r.own)
	}
	late := newRig(t, stepsPlan(1))
	late.own = late.now
	late.birth(0)
	if late.task.State != StateUndone || late.row.Bound != 0 {
		t.Fatalf("born after its deadline: %s", late.task)
	}
}

// EffectsPossibleUntil never moves back: a resubmit with a short deadline gives the second attempt a
// complete-by before that of the first, one copy of which may still be at work.
//
// covers: inv7
func TestQuietIsTheLatestOfAllTries(t *testing.T) {
	p := stepsPlan(1)
	p.Steps[0].OnExhausted, p.Steps[0].AttemptsMax = PolicyError, 1
	r := newRig(t, p)
	r.birth(0)
	first := r.task.Steps[0].Due
	r.crash()
	r.answer(CodeAgentError)
	r.must(Event{Kind: EventResubmit, Until: r.now.Add(time.Second)})
	r.late()
	r.must(Event{Kind: EventUndo})
	if due := r.task.NextDue(r.plan); due != first.Add(r.plan.Grace) {
		t.Fatalf("the undo may leave at %d, want %d", due, first.Add(r.plan.Grace))
	}
}

// An attempt that reached no agent ends with the task's deadline, and the same row undoes
// another step: its Due is the undo's, not the lost attempt's.
func TestUnservedAtTheDeadline(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(0)
	r.answer(0)
	r.now = r.task.Deadline
	r.must(Event{Kind: EventUnserved, Seq: r.task.Seq, Rand: 0.5})
	if s := r.task.Steps; s[0].Status != StepUndoing || s[1].Due != 0 {
		t.Fatalf("unserved at the deadline: %s", r.task)
	}
}

// Unserved commands are no attempts, of an undo neither, and the backoff begins again
// at its first pause once an agent was there.
func TestUnservedIsNoAttempt(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	unserved := func(attempt int, wait time.Duration) {
		t.Helper()
		if got := r.task.Steps[0].Attempt; got != attempt {
			t.Fatalf("try %d is out, want %d", got, attempt)
		}
		r.must(Event{Kind: EventUnserved, Seq: r.task.Steps[0].Out, Rand: 0.5})
		if got := r.nextWake().Sub(r.now); got != wait {
			t.Fatalf("waits %v, want %v", got, wait)
		}
		r.wait()
	}
	unserved(1, time.Second/2)
	unserved(1, time.Second)
	r.answer(CodeAgentError)
	r.wait()
	unserved(2, time.Second/2)
	r.answer(0)
	r.must(Event{Kind: EventUndo})
	unserved(1, time.Second/2)
	unserved(1, time.Second)
}

// The set a step comes after decides, not its place in the plan.
//
// covers: S2
func TestAfterSetDecides(t *testing.T) {
	p := stepsPlan(3)
	p.Steps[1].After, p.Steps[2].After = []int{0}, nil
	task := Task{Steps: []StepState{{Status: StepRunning}, {}, {}}}
	if i := task.nextStep(&p); i != 2 {
		t.Fatalf("while a runs, step %d may start, want 2", i)
	}
}

// What comes after a step waits for it: a chain has one command out.
//
// covers: S2
func TestChainRunsOneAtATime(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(0)
	r.must(Event{Kind: EventExtend, Until: r.task.Deadline + 1})
	if len(r.out.Effects) != 0 || r.task.Steps[1].Out != 0 {
		t.Fatalf("b starts while a runs: %s", r.task)
	}
}

// Resume sends again, so of one copy it makes two.
func TestResumeMarksResent(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	Resume(r.plan, r.task, r.now, &r.out)
	if !r.task.Steps[0].Effect.resent() || len(r.out.Effects) != 1 {
		t.Fatalf("resumed: %s %+v", r.task, r.out)
	}
	Resume(r.plan, r.task, r.task.Steps[0].Due, &r.out)
	if len(r.out.Effects) != 0 {
		t.Fatalf("sent again after its complete-by: %+v", r.out.Effects)
	}
}

// Current is what a supervisor's list shows of a task.
func TestCurrent(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(0)
	r.answer(0)
	if i := r.task.Current(r.plan); i != 1 {
		t.Errorf("at work: step %d", i)
	}
	r.answer(CodeAgentError)
	if i := r.task.Current(r.plan); i != 1 {
		t.Errorf("between tries: step %d", i)
	}
	r.must(Event{Kind: EventPoison})
	if i := r.task.Current(r.plan); i != -1 {
		t.Errorf("in error: step %d", i)
	}
}

// A task that stops while its children are at work waits for room at no agent, wherever it waited before and by whichever
// event it stops, and can say why it is where it is.
func TestStoppedTaskWaitsForNoRoom(t *testing.T) {
	p := Plan{Name: "order", Version: 1, CompleteBy: time.Hour, Steps: []Step{
		{Name: "parts", Kind: TaskStep, Child: "part", Undoable: true, CompleteBy: time.Minute},
		{Name: "b", Agent: "agent.b", After: []int{0}},
		{Name: "others", Kind: TaskStep, Child: "part", Undoable: true, CompleteBy: time.Minute, After: []int{0}},
		{Name: "approve", Kind: SignalStep, After: []int{0}, OnExhausted: PolicyError},
	}}
	no := Event{Kind: EventSignal, Actor: person, Step: "approve", Code: CodeRefused, Error: "no"}
	for name, refused := range map[string]func(r *rig, parts Event){
		"refused when it is asked": func(r *rig, parts Event) { r.must(parts); r.must(no) },
		"refused before":           func(r *rig, parts Event) { r.must(no); r.must(parts) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, p)
			r.birth(0)
			refused(r, Event{Kind: EventChild, Seq: 1, Result: []byte("1"), Full: StepSetOf(1)})
			if !r.task.stopping(r.plan) || r.task.State != StatePending || r.task.WaitsFor != "" {
				t.Errorf("it waits for %q: %s", r.task.WaitsFor, r.task)
			}
			if v := r.task.View(r.plan, r.journal, r.now); !strings.Contains(v.Sentence, "others") {
				t.Errorf("it says %q", v.Sentence)
			}
		})
	}
}
