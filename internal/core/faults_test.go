package core

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A command that was sent twice is in two pairs of hands. One refuses; the other
// may have done it: the step is undone like any other of unknown outcome.
//
// covers: T3, inv7
func TestRefusalOfOneCopyIsNotNoEffect(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.crash()
	due := r.task.Steps[0].Due
	r.answer(CodeRefused)
	if r.task.State != StateUndoing || r.task.Steps[0].Status != StepFailed {
		t.Fatalf("after one copy refused: %s", r.task)
	}
	r.wait()
	if at := due.Add(r.plan.Grace); r.now != at || r.task.Steps[0].Status != StepUndoing {
		t.Fatalf("its undo left at %d, want %d: %s", r.now, at, r.task)
	}
}

// A new owner does not know in how many hands a command is, whether or not it
// sends it again: the mark does not depend on Resume being called.
//
// covers: inv7
func TestReplayedCommandCountsAsResent(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.task = r.replayed()
	r.answer(0)
	r.must(Event{Kind: EventUndo, Actor: person})
	if r.task.Out() >= 0 {
		t.Fatalf("an undo left while a copy of its do may be at work: %s", r.task)
	}
}

// The do of a task that is being undone is not sent again: it would only make
// work for the undo. Its answer still counts.
func TestResumeSendsNoDoOfATaskBeingUndone(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.must(Event{Kind: EventCancel})
	r.crash()
	if len(r.out.Effects) != 0 {
		t.Fatalf("resumed with %+v", r.out.Effects)
	}
	if !r.task.Steps[0].Effect.resent() {
		t.Fatal("an earlier owner may have sent it twice: it must count as resent")
	}
	r.answer(0)
}

// locked_by names the owner, never the person or the supervisor whose request
// made it take the task up.
//
// covers: S19, S21
func TestLockedByIsTheOwner(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[0].OnExhausted = PolicyWait
	p.Steps[0].AttemptsMax = 1
	p.CompleteBy = time.Hour
	p.Steps[1].OnExhausted = PolicyError
	r := newRig(t, p)
	owner := func(when string) {
		t.Helper()
		if r.task.LockedBy != node {
			t.Fatalf("%s: locked by %q, want %q", when, r.task.LockedBy, node)
		}
	}
	r.birth(0)
	owner("born")
	r.answer(CodeAgentError) // paused
	r.now = r.task.NextDue(r.plan)
	r.must(Event{Kind: EventOverdue, Actor: "supervisor", Node: node})
	owner("pause over")
	r.answer(0)
	r.answer(CodeRefused)
	r.must(Event{Kind: EventResubmit, Actor: person, Node: node})
	owner("resubmitted")
	r.answer(CodeRefused)
	r.must(Event{Kind: EventUndo, Actor: person, Node: node})
	owner("being undone")
}

// With no failed step there is still just one step a resubmit can start from.
//
// covers: S15
func TestResubmitNamesTheStepThatIsNext(t *testing.T) {
	p := stepsPlan(2)
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	r.answer(CodeAgentError)
	if r.task.Out() >= 0 {
		t.Fatalf("b does not wait for its second try: %s", r.task)
	}
	r.must(Event{Kind: EventPoison, Error: "refused by the database"})
	for _, step := range []string{"a", "nonsense"} {
		if err := r.apply(Event{Kind: EventResubmit, Actor: person, Step: step}); !errors.Is(err, ErrNotAllowed) {
			t.Fatalf("resubmit from %q: %v", step, err)
		}
	}
	r.must(Event{Kind: EventResubmit, Actor: person, Step: "b"})
	if s := r.task.Steps[1]; s.Status != StepRunning || s.Attempt != 1 {
		t.Fatalf("resubmitted from b: %s", r.task)
	}
}

// A task whose plan is gone can be put in error; what its steps did is unknown,
// so only a person who looked may call it undone.
func TestPlanGone(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	task := r.row // as a new owner finds it: without steps
	task.Seq = 1
	var out Outcome
	if err := Apply(nil, &task, &Event{Kind: EventPoison, At: r.now, Error: "its plan is gone"}, &out); err != nil {
		t.Fatal(err)
	}
	if task.State != StateError || !out.Row || out.Records[0].Seq != 2 {
		t.Fatalf("poisoned: %s %+v", &task, out)
	}
	saved := Saved{Row: task, Journal: append(r.journal, out.Records...)}
	for _, kind := range []EventKind{EventCancel, EventUndo, EventResubmit, EventExtend} {
		if err := Apply(r.plan, &task, &Event{Kind: kind, At: r.now}, &out); !errors.Is(err, ErrNotAllowed) {
			t.Fatalf("event %d of a task whose steps are unknown: %v", kind, err)
		}
	}
	if without, err := Replay(nil, &saved); err != nil || without.State != StateError || without.Steps != nil {
		t.Fatalf("replayed without its plan: %v %v", without, err)
	}
	if err := Apply(nil, &task, &Event{Kind: EventResolve, At: r.now, As: StateUndone}, &out); err != nil {
		t.Fatal(err)
	}
}

// A plan that comes back finds a command that was out when the task was stopped.
// It may have been done: the task can be undone, but not taken up.
func TestPlanGoneAndBack(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	bare := r.row
	bare.Seq = 1
	var out Outcome
	if err := Apply(nil, &bare, &Event{Kind: EventPoison, At: r.now}, &out); err != nil {
		t.Fatal(err)
	}
	task, err := Replay(r.plan, &Saved{Row: bare, Journal: append(r.journal, out.Records...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(r.plan, task, &Event{Kind: EventReply, At: r.now, Seq: 1}, &out); !errors.Is(err, ErrStale) {
		t.Fatalf("a reply to a task in error: %v", err)
	}
	if err := Apply(r.plan, task, &Event{Kind: EventResubmit, At: r.now}, &out); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("resubmit: %v", err)
	}
	if err := Apply(r.plan, task, &Event{Kind: EventUndo, At: r.now}, &out); err != nil || task.State != StateUndoing {
		t.Fatalf("undo: %v %s", err, task)
	}
	if err := Apply(r.plan, task, &Event{Kind: EventOverdue, At: task.NextDue(r.plan)}, &out); err != nil || !task.Steps[0].Effect.Possible() {
		t.Fatalf("overdue: %v %s", err, task)
	}
}

// Another step that could begin makes no difference to that.
func TestPlanGoneAndBackWithAStepToGo(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[1].After = nil
	r := newRig(t, p)
	r.birth(0)
	bare := r.row
	bare.Seq = int64(len(r.journal))
	var out Outcome
	if err := Apply(nil, &bare, &Event{Kind: EventPoison, At: r.now}, &out); err != nil {
		t.Fatal(err)
	}
	task, err := Replay(r.plan, &Saved{Row: bare, Journal: append(r.journal, out.Records...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(r.plan, task, &Event{Kind: EventResubmit, At: r.now}, &out); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("resubmit while a command is out: %v, %s", err, task)
	}
}

// A refusal says that its own attempt left nothing; it does not speak for the attempt
// before, which failed without saying so.
func TestRefusalDoesNotSpeakForTheTryBefore(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.answer(CodeAgentError)
	r.wait()
	r.answer(CodeRefused)
	if s := r.task.Steps[0]; r.task.State != StateUndoing || s.Status != StepUndoing {
		t.Fatalf("refused after a failure: %s", r.task)
	}
}

// A task that is poisoned with a command out: the command may act until the
// grace is over, and its undo waits for that.
func TestPoisonedCommandMayStillAct(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	quiet := r.task.Steps[0].Due.Add(r.plan.Grace)
	r.must(Event{Kind: EventPoison})
	r.must(Event{Kind: EventUndo})
	if due := r.task.NextDue(r.plan); r.task.Out() >= 0 || due != quiet {
		t.Fatalf("the undo may leave at %d, want %d: %s", due, quiet, r.task)
	}
}

// The clock of a new owner may be behind: the journal's does not go back.
func TestJournalTimeDoesNotGoBack(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(0)
	r.must(Event{Kind: EventReply, Seq: 1, At: r.now.Add(-time.Minute)})
	if first, second := r.journal[0].At, r.journal[1].At; second < first {
		t.Fatalf("row 2 is %v older than row 1", first.Sub(second))
	}
}

// Nothing is issued under the number 0: an answer without a number answers
// nothing.
func TestAnswerWithoutANumber(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	for _, kind := range []EventKind{EventReply, EventUnserved} {
		if err := r.apply(Event{Kind: kind}); !errors.Is(err, ErrStale) {
			t.Errorf("event %d without a number: %v, %s", kind, err, r.task)
		}
	}
}

// The same input of another type is another task, and no type can be continued
// by an input.
func TestHashOfTypeAndInput(t *testing.T) {
	seen := map[string]string{}
	for _, task := range [][2]string{{"order", "{}"}, {"refund", "{}"}, {"order", "[]"}, {"order{", "}"}, {"", "order{}"}} {
		hash := string(HashInput(task[0], []byte(task[1])))
		if other, taken := seen[hash]; taken {
			t.Errorf("type %q with input %q has the hash of %s", task[0], task[1], other)
		}
		seen[hash] = fmt.Sprintf("type %q with input %q", task[0], task[1])
	}
}

// A deadline that has passed extends nothing.
func TestExtendIntoThePast(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.now = r.task.Deadline.Add(time.Minute)
	if err := r.apply(Event{Kind: EventExtend, Until: r.task.Deadline.Add(time.Second)}); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("extend into the past: %v", err)
	}
}

// The journal keeps the number of the attempt that failed last, also when there is
// no time left for the pause after it.
func TestAttemptIsKeptWhenThereIsNoTimeToPause(t *testing.T) {
	p := stepsPlan(1)
	p.Steps[0].OnExhausted, p.Steps[0].AttemptsMax = PolicyWait, 1
	r := newRig(t, p) // the pause is longer than the task
	r.birth(0)
	r.answer(CodeAgentError)
	if rec := r.journal[1]; rec.StepStatus != StepFailed || rec.Attempt != 1 {
		t.Fatalf("journal row: %+v", rec)
	}
}

// Record.Attempt is that of Next when the row ends no attempt.
func TestAttemptOfARowThatOnlyIssues(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	if r.journal[0].Attempt != 1 {
		t.Fatalf("attempt %d of the first row", r.journal[0].Attempt)
	}
}

// A plan that was never known cannot be carried over from ingest's request:
// version 0 is how the row says that there are no steps.
func TestBirthWithoutPlanHasVersionZero(t *testing.T) {
	task := &Task{ID: "t1", Type: "order", PlanVersion: 7}
	var out Outcome
	Birth(nil, task, &Event{At: birthTime, Error: "no plan"}, &out)
	if task.PlanVersion != 0 || task.State != StateError {
		t.Fatalf("version %d: %s", task.PlanVersion, task)
	}
}

// A request that names another type than the task's is about another task.
func TestRequestForAnotherType(t *testing.T) {
	for _, kind := range []EventKind{EventCancel, EventUndo, EventResubmit, EventResolve, EventExtend} {
		for _, situation := range []string{"at work", "error by policy", "undone", "plan unknown"} {
			r := newRig(t, stepsPlan(3))
			situations[situation](r)
			was := r.task.clone()
			ev := Event{Kind: kind, At: r.now, Actor: person, Type: "refund", As: StateUndone, Until: r.now.Add(time.Hour)}
			if err := Apply(r.plan, r.task, &ev, &r.out); !errors.Is(err, ErrNotAllowed) {
				t.Errorf("event %d of a task that is %s: %v", kind, situation, err)
			}
			if diff := differ(was, r.task); diff != "" {
				t.Errorf("event %d of a task that is %s changed it: %s", kind, situation, diff)
			}
		}
	}
	r := newRig(t, stepsPlan(3))
	situations["at work"](r)
	r.must(Event{Kind: EventCancel, Type: "order"})
}
