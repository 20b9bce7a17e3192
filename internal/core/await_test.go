package core

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// absent lets the command that is out come back unserved.
func (r *rig) absent() {
	r.t.Helper()
	i := r.task.Out()
	if i < 0 {
		r.t.Fatalf("no command is out: %s", r.task)
	}
	r.must(Event{Kind: EventUnserved, Seq: r.task.Steps[i].Out, Copy: r.task.Steps[i].Copy, Rand: 0.5})
}

// A step that no agent serves costs one row when its wait begins and one when it ends,
// however often it is tried in between; the end may be an answer, the deadline or a
// cancel.
//
// covers: B11
func TestWaitForAnAgentIsTwoRows(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(r *rig)
		kind Kind
		want State
	}{
		{"answered", func(r *rig) { r.wait(); r.answer(0) }, KindDone, StateProcessed},
		{"refused", func(r *rig) { r.wait(); r.answer(CodeRefused) }, KindRefused, StateUndone},
		{"deadline", func(r *rig) { r.now = r.task.Deadline; r.must(Event{Kind: EventOverdue}) }, KindExpired, StateUndone},
		{"cancelled", func(r *rig) { r.must(Event{Kind: EventCancel}) }, KindCancelled, StateUndone},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := stepsPlan(1)
			p.CompleteBy = time.Hour
			r := newRig(t, p)
			r.birth(0)
			r.absent()
			for range 100 {
				r.wait()
				r.absent()
			}
			if n := len(r.journal); n != 2 || r.journal[1].Kind != KindUnserved {
				t.Fatalf("%d rows after 100 retries: %+v", n, r.journal)
			}
			if r.row.Bound != r.task.Deadline {
				t.Errorf("the supervisor asks at %d, want the deadline %d", r.row.Bound, r.task.Deadline)
			}
			c.end(r)
			if n := len(r.journal); n != 3 || r.journal[2].Kind != c.kind || r.task.State != c.want {
				t.Fatalf("%d rows, ended as %s: %+v", n, r.task, r.journal)
			}
		})
	}
}

// An agent that cannot take a command has judged nothing: at work on an earlier one, full, not knowing how, about
// to stop. It is no attempt, costs one row, and counts as something that may have been
// tried. Each of its copies was answered, so the undo leaves at once.
//
// covers: B11, W6, W11
func TestBusyAgentIsNoAttempt(t *testing.T) {
	for _, code := range []int{CodeTooEarly, CodeTooMany, CodeUnable, CodeUnavailable} {
		p := stepsPlan(1)
		p.CompleteBy, p.Steps[0].AttemptsMax = time.Hour, 1
		r := newRig(t, p)
		r.birth(0)
		r.answer(code)
		for range 20 {
			r.wait()
			r.answer(code)
		}
		if n := len(r.journal); n != 2 || r.journal[1].Kind != KindUnserved || r.journal[1].Code != code {
			t.Fatalf("code %d: %d rows: %+v", code, n, r.journal)
		}
		if s := r.task.Steps[0]; !s.Effect.Possible() || r.task.Failures != 0 {
			t.Errorf("code %d: %d failures, %s", code, r.task.Failures, r.task)
		}
		r.must(Event{Kind: EventCancel})
		if due := r.task.NextDue(r.plan); due != r.now.Add(r.plan.Steps[0].UndoCompleteBy) {
			t.Errorf("code %d: the undo leaves at %d", code, due)
		}
		if s := r.task.Steps[0]; s.Status != StepUndoing {
			t.Errorf("code %d: not undone: %s", code, r.task)
		}
	}
}

// An agent that is missing and then full costs a row more, once.
func TestAbsentThenFull(t *testing.T) {
	p := stepsPlan(1)
	p.CompleteBy = time.Hour
	r := newRig(t, p)
	r.birth(0)
	for range 5 {
		r.absent()
		r.wait()
		r.answer(CodeTooMany)
		r.wait()
	}
	if n := len(r.journal); n != 3 {
		t.Fatalf("%d rows: %+v", n, r.journal)
	}
	r.answer(0)
	if r.task.State != StateProcessed {
		t.Fatalf("served: %s", r.task)
	}
}

// A retry that is neither answered nor given back has been heard: the journal says so,
// and from then on it is a command like any other.
func TestRetryIsHeard(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.absent()
	r.wait()
	number, due := r.task.Steps[0].Out, r.task.Steps[0].Due
	r.wait()
	s := r.task.Steps[0]
	if rec := r.journal[2]; rec.Kind != KindStarted || rec.Due != due || s.Out != number || s.Status != StepRunning {
		t.Fatalf("heard: %+v, %s", rec, r.task)
	}
	if r.row.Bound > due {
		t.Errorf("the supervisor asks at %d, want %d", r.row.Bound, due)
	}
	r.late()
	if rec := r.journal[3]; rec.Kind != KindOverdue || rec.Attempt != 1 || !r.task.Steps[0].Effect.Possible() || r.task.Failures != 1 {
		t.Fatalf("silent: %+v, %s", rec, r.task)
	}
}

// A retry that is given back after it counted as heard waits again.
func TestHeardAndGivenBack(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.absent()
	r.wait()
	r.wait()
	r.absent()
	if s := r.task.Steps[0]; s.Awaits != 4 || s.Attempt != 0 || s.Effect.Possible() {
		t.Fatalf("given back: %s", r.task)
	}
	r.wait()
	r.answer(0)
}

// The row of the wait tells a new owner all it needs. What the old one may have sent is
// not known, so no undo leaves before that is over.
func TestWaitSurvivesATakeover(t *testing.T) {
	p := stepsPlan(1)
	p.CompleteBy = time.Hour
	r := newRig(t, p)
	r.birth(0)
	r.absent()
	r.now = r.now.Add(time.Minute)
	r.crash()
	if e := r.out.Effects; len(e) != 1 || e[0].Kind != EffectWake || e[0].At != r.now {
		t.Fatalf("effects %+v", e)
	}
	// A retry of the owner before may have left until then.
	if quiet, want := r.task.Steps[0].Effect.Open, r.now.Add(OwnedFor+r.plan.Steps[0].CompleteBy+r.plan.Grace); quiet != want {
		t.Fatalf("quiet at %d after the takeover, want %d", quiet, want)
	}
	for range 10 {
		r.wait()
		r.absent()
	}
	if n := len(r.journal); n != 2 {
		t.Fatalf("%d rows: %+v", n, r.journal)
	}
	last := r.task.Steps[0].Effect.Open
	if want := r.now.Add(r.plan.Grace); last < want {
		t.Fatalf("quiet at %d, want %d at least", last, want)
	}
	r.must(Event{Kind: EventCancel})
	if due := r.task.NextDue(r.plan); r.task.State != StateUndoing || due != last {
		t.Fatalf("the undo leaves at %d, want %d: %s", due, last, r.task)
	}
	r.crash()
	if due := r.task.NextDue(r.plan); due != last {
		t.Fatalf("after another takeover it leaves at %d, want %d", due, last)
	}
	r.wait()
	r.answer(0)
	if r.task.State != StateUndone {
		t.Fatalf("undone: %s", r.task)
	}
}

// That one copy of a command that was sent twice was unserved says nothing of the other:
// only its answer or its complete-by counts.
func TestUnservedCopySpeaksForItselfAlone(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.crash() // which sends it again
	out, rows := r.task.Steps[0].Out, len(r.journal)
	if err := r.apply(Event{Kind: EventUnserved, Seq: out, Rand: 0.5}); !errors.Is(err, ErrStale) {
		t.Fatalf("%v: %s", err, r.task)
	}
	if r.task.Steps[0].Out != out || len(r.journal) != rows {
		t.Fatalf("the command is over: %s", r.task)
	}
	r.answer(0)
	if r.task.State != StateProcessed {
		t.Fatalf("after the answer: %s", r.task)
	}
}

// What is put in error while it waits may have been replayed for that: a retry may be
// in an agent's hands.
func TestPoisonedWait(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.absent()
	r.task = r.replayed()
	r.must(Event{Kind: EventPoison})
	if s := r.task.Steps[0]; !s.Effect.Possible() || s.Effect.Open < r.now.Add(OwnedFor+r.plan.Steps[0].CompleteBy+r.plan.Grace) {
		t.Fatalf("poisoned: %s", r.task)
	}
}

// An event that comes while a retry is out makes the journal know of it first.
func TestCancelOfARetry(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.absent()
	r.wait()
	r.must(Event{Kind: EventCancel})
	if n := len(r.journal); n != 4 || r.journal[2].Kind != KindStarted || r.journal[3].Kind != KindCancelled {
		t.Fatalf("rows %+v", r.journal)
	}
	r.answer(0)
	r.answer(0)
	if r.task.State != StateUndone || r.journal[len(r.journal)-1].Kind != KindUndone {
		t.Fatalf("undone: %s", r.task)
	}
}

// News that the agent is there lets the retry leave at once; a full agent is not asked
// by all that wait whenever it answers one.
func TestServedEndsTheBackoff(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	for range 4 {
		r.absent()
		r.wait()
	}
	r.absent()
	if r.nextWake() == r.now {
		t.Fatal("it does not wait")
	}
	r.must(Event{Kind: EventServed})
	if r.task.Out() < 0 {
		t.Fatalf("nothing left: %s", r.task)
	}
	r.answer(CodeTooMany)
	if err := r.apply(Event{Kind: EventServed}); err == nil {
		t.Fatalf("a full agent is asked again: %s", r.task)
	}
}

// An undo that fails goes on for a day by default; an operator hears of it after ten
// attempts or a minute, once. When its time is up it gives up, and the task names it. Asked for again it has all that once more.
//
// covers: C6, T2, inv8
func TestUndoIsPatient(t *testing.T) {
	p := stepsPlan(1)
	p.Steps[0].UndoCompleteBy, p.Steps[0].KeyLasts = time.Second, 7*24*time.Hour
	for _, failing := range []string{"failing", "unserved", "full", "silent"} {
		t.Run(failing, func(t *testing.T) {
			r := newRig(t, p)
			r.birth(0)
			r.answer(0)
			for range 2 { // the second time an hour after it gave up
				r.now = r.now.Add(time.Hour)
				before := len(r.journal)
				r.must(Event{Kind: EventUndo})
				since := r.now
				alerts, tries, told := 0, 0, Instant(0)
				for ; r.task.State == StateUndoing; tries++ {
					if tries > 100_000 {
						t.Fatalf("it does not end: %s", r.task)
					}
					switch {
					case r.task.Out() < 0:
						r.wait()
					case failing == "unserved":
						r.absent()
					case failing == "full":
						r.answer(CodeTooMany)
					case failing == "silent":
						r.now = r.task.NextDue(r.plan)
						r.must(Event{Kind: EventOverdue, Rand: 0.5})
					default:
						r.answer(CodeAgentError)
					}
					for _, e := range r.out.Effects {
						if e.Kind == EffectAlert {
							alerts++
							told = r.now
						}
					}
				}
				if alerts != 1 || told.Sub(since) > 2*undoAlertAfter {
					t.Errorf("%d alerts, the last %v after it began", alerts, told.Sub(since))
				}
				if took := r.now.Sub(since); took < defaultUndoPatience-defaultUndoBackoffCap || took > defaultUndoPatience+defaultUndoBackoffCap {
					t.Errorf("gave up after %v", took)
				}
				if failing == "unserved" || failing == "full" {
					if n := len(r.journal) - before; n != 4 { // undo asked, its wait, its alert, its end
						t.Errorf("%d rows", n)
					}
				} else if n := len(r.journal) - before; n < 200 || n > 2000 {
					t.Errorf("%d rows", n)
				}
				if r.task.State != StateError || r.task.FailedStep != 1 || !strings.HasPrefix(r.task.Why, "the undo of step a gave up: ") {
					t.Errorf("%s: step %d, %s", r.task, r.task.FailedStep, r.task.Why)
				}
				if r.journal[len(r.journal)-1].Kind != KindUndoGaveUp {
					t.Errorf("last row %+v", r.journal[len(r.journal)-1])
				}
			}
		})
	}
}

// The undo of a step that gives up leaves just that step: the others are undone, and
// the task names what is left.
//
// covers: C6
func TestUndoGivesUpAndTheOthersAreUndone(t *testing.T) {
	for _, after := range []bool{false, true} {
		p := stepsPlan(4)
		for i := 1; i < len(p.Steps) && after; i++ {
			p.Steps[i].After = []int{i - 1}
		}
		r := newRig(t, p)
		r.birth(0)
		for range 4 {
			r.answer(0)
		}
		r.must(Event{Kind: EventUndo})
		r.answer(0)           // d
		r.answer(CodeRefused) // c, for good
		if i := r.task.Out(); i != 1 {
			t.Fatalf("after %v: step %d is undone next, want b: %s", after, i, r.task)
		}
		r.answer(0)
		r.answer(0)
		want := "the undo of step c gave up: code 422"
		if r.task.State != StateError || r.task.Why != want || r.task.FailedStep != 3 {
			t.Fatalf("after %v: %s, step %d, why %q", after, r.task, r.task.FailedStep, r.task.Why)
		}
		for i, s := range r.task.Steps {
			if s.Effect.Possible() != (i == 2) {
				t.Errorf("after %v: step %d: %s", after, i, r.task)
			}
		}
		r.must(Event{Kind: EventUndo}) // once it is repaired
		r.answer(0)
		if r.task.State != StateUndone {
			t.Errorf("after %v: undone again: %s", after, r.task)
		}
	}
}

// While an undo is in trouble the steps that it does not come after are undone; those
// that it does wait for it.
//
// covers: C6
func TestIndependentUndosGoOn(t *testing.T) {
	p := stepsPlan(4)
	p.Steps[1].After, p.Steps[2].After, p.Steps[3].After = nil, []int{0}, []int{1} // a, then c; b, then d
	r := newRig(t, p)
	r.birth(0)
	for range 4 {
		r.answer(0)
	}
	r.must(Event{Kind: EventUndo})
	for n := 0; n < 40 && (r.task.Steps[0].Status != StepUndone || !r.task.Steps[3].Alerted); n++ {
		s := r.task.Steps
		switch {
		case s[1].Out != 0:
			t.Fatalf("b is undone before d, which came after it: %s", r.task)
		case s[0].Out != 0 && s[2].Status != StepUndone:
			t.Fatalf("a is undone before c, which came after it: %s", r.task)
		case s[2].Out != 0:
			r.must(Event{Kind: EventReply, Seq: s[2].Out})
		case s[0].Out != 0:
			r.must(Event{Kind: EventReply, Seq: s[0].Out})
		case s[3].Out != 0:
			r.must(Event{Kind: EventReply, Seq: s[3].Out, Code: CodeAgentError, Rand: 0.5})
		default:
			r.wait()
		}
	}
	if r.task.Steps[0].Status != StepUndone || !r.task.Steps[3].Alerted || r.task.State != StateUndoing {
		t.Fatalf("the undo of a and c waits for d: %s", r.task)
	}
	for r.task.Out() < 0 {
		r.wait()
	}
	r.answer(0)
	r.answer(0)
}

// A number of undo attempts that the plan names is a limit, whichever it is, each time that the undo is asked for; without one
// there is none.
//
// covers: W14
func TestUndoAttemptsOfThePlan(t *testing.T) {
	for _, most := range []int{3, 9, 10, 11, 0} {
		p := stepsPlan(2)
		p.Steps[0].UndoAttemptsMax, p.Steps[1].UndoAttemptsMax, p.Steps[1].After = most, most, nil
		r := newRig(t, p)
		r.birth(0)
		r.answer(0)
		r.answer(0)
		want := 2 * most
		if most == 0 {
			want = 40
		}
		for range 2 { // the second time by an operator, once it gave up
			if r.task.State != StateUndoing {
				r.must(Event{Kind: EventUndo})
			}
			tries := 0
			for r.task.State == StateUndoing && tries < 40 {
				if tries++; r.task.Out() < 0 {
					r.wait()
				}
				r.answer(CodeAgentError)
			}
			if tries != want || (most == 0) != (r.task.State == StateUndoing) {
				t.Errorf("undo_attempts_max %d: %s after %d tries, want %d", most, r.task.State, tries, want)
			}
		}
	}
}

// What would fail again is not tried again, and undone: it may have had its effect. An undo is tried again all the same.
//
// covers: W7
func TestFailedForGood(t *testing.T) {
	for _, policy := range []Policy{PolicyUndo, PolicyWait, PolicySkip, PolicyError} {
		p := stepsPlan(2)
		p.Steps[1].OnExhausted = policy
		r := newRig(t, p)
		r.birth(0)
		r.answer(0)
		r.answer(CodeFailed)
		if s := r.task.Steps[1]; s.Attempt != 1 || !s.Effect.Possible() || policy != PolicyError && (r.task.State != StateUndoing && r.task.State != StateProcessing || s.Status != StepUndoing) {
			t.Errorf("policy %s: %s, step 2 %s after try %d, may have an effect: %v", policy, r.task, s.Status, s.Attempt, s.Effect.Possible())
		}
	}
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.answer(0)
	r.must(Event{Kind: EventUndo})
	r.answer(CodeFailed)
	if r.task.State != StateUndoing {
		t.Errorf("an undo that fails so: %s", r.task)
	}
}

// A text of a time-out has no value in it, so that failures of one kind group.
//
// covers: C14
func TestTextOfATimeOutIsTheSame(t *testing.T) {
	texts := map[string]bool{}
	for i := range 3 {
		r := newRig(t, stepsPlan(1))
		r.now = r.now.Add(time.Duration(i) * 31 * 24 * time.Hour)
		r.birth(0)
		r.late()
		texts[r.journal[1].Error] = true
	}
	if len(texts) != 1 {
		t.Errorf("texts %v", texts)
	}
}

// A task whose first step waits is looked at when the wait is over, and not before: a million of them cost nothing till
// then. One that is at work is looked at early, so that no later step has to lower its bound.
func TestBoundOfATaskThatBeginsWithAWait(t *testing.T) {
	p := Plan{Name: "p", Version: 1, CompleteBy: 24 * time.Hour, Steps: []Step{{Name: "a", Kind: WaitStep, For: 8 * time.Hour}, {Name: "b", Agent: "b", After: []int{0}, CompleteBy: time.Second}}}.WithDefaults()
	r := newRig(t, p)
	r.birth(0)
	if want := r.now.Add(8 * time.Hour); r.task.State != StatePending || r.task.Bound != want {
		t.Errorf("the bound of a wait is %d, want %d: %s", r.task.Bound, want, r.task)
	}
	p.Steps[0] = Step{Name: "a", Agent: "a", CompleteBy: time.Hour}
	r = newRig(t, p.WithDefaults())
	r.birth(0)
	if want := r.now.Add(time.Second); r.task.Bound != want {
		t.Errorf("the bound of a call is %d, want %d: %s", r.task.Bound, want, r.task)
	}
}

// A cancel while the undo of an optional step is at its agent, or waits for it, leaves that undo all of its time: it is tried
// again after an error, for as long as any other.
//
// covers: inv8
func TestCancelLeavesUndosTheirTime(t *testing.T) {
	p := stepsPlan(3)
	for i := range p.Steps {
		p.Steps[i].After, p.Steps[i].AttemptsMax, p.Steps[i].OnExhausted = nil, 1, PolicySkip
	}
	p.Steps[0].OnExhausted = ""
	for _, away := range []bool{false, true} {
		r := newRig(t, p)
		r.birth(0)
		for i := 1; i < 3; i++ {
			r.must(Event{Kind: EventReply, Seq: r.task.Steps[i].Out, Code: CodeAgentError, Error: "no"})
			if away {
				r.must(Event{Kind: EventUnserved, Seq: r.task.Steps[i].Out, Rand: 0.5})
			}
		}
		r.must(Event{Kind: EventCancel, Reason: "not wanted"})
		cancelled := r.now
		r.crash()
		for r.now < cancelled.Add(23*time.Hour) && r.task.State == StateUndoing {
			idle := true
			for i := range r.task.Steps {
				s := &r.task.Steps[i]
				ev := Event{Kind: EventReply, Seq: s.numberOut(), Copy: s.Copy, Rand: 0.5}
				switch {
				case s.Out == 0:
					continue
				case i > 0 && away:
					ev.Kind = EventUnserved
				case i > 0:
					ev.Code, ev.Error = CodeAgentError, "no"
				}
				r.must(ev)
				idle = false
			}
			if idle {
				r.wait()
			}
		}
		if r.task.State != StateUndoing || r.task.Steps[1].Left != "" || r.task.Steps[2].Left != "" || !r.task.Steps[2].Alerted {
			t.Errorf("away %v: after %v: %s: %q, %q", away, r.now.Sub(cancelled), r.task, r.task.Steps[1].Left, r.task.Steps[2].Left)
		}
	}
}

// Where the owner's timer is lost, the supervisor's question lets the undo of an optional step tell an operator, and give up.
//
// covers: inv11
func TestQuestionEndsTheWaitOfAnOptionalUndo(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy = 23 * time.Hour
	p.Steps[0].CompleteBy, p.Steps[1].After, p.Steps[1].UndoPatience = 23*time.Hour, nil, time.Hour
	p.Steps[1].AttemptsMax, p.Steps[1].OnExhausted = 1, PolicySkip
	r := newRig(t, p)
	r.birth(0)
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[1].Out, Code: CodeAgentError, Error: "no"})
	r.must(Event{Kind: EventUnserved, Seq: r.task.Steps[1].Out, Rand: 0.5})
	for n := 0; n < 1000 && r.task.Steps[1].Left == ""; n++ {
		r.late()
		if s := &r.task.Steps[1]; s.again() && s.Out != 0 {
			r.must(Event{Kind: EventUnserved, Seq: s.numberOut(), Copy: s.Copy, Rand: 0.5})
		}
	}
	s := &r.task.Steps[1]
	if !s.Alerted || s.Left == "" || r.now.Sub(birthTime) > 2*time.Hour {
		t.Errorf("told %v, left %q after %v: %s", s.Alerted, s.Left, r.now.Sub(birthTime), r.task)
	}
}

// A cancel while the undo of an optional step is tried again at an agent that was not there counts its attempts from one, and a new
// owner knows of the one that is out.
//
// covers: inv6
func TestCancelWhileAnOptionalUndoIsRetried(t *testing.T) {
	p := stepsPlan(2)
	p.Steps[1].AttemptsMax, p.Steps[1].OnExhausted = 1, PolicySkip
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	r.answer(500)
	r.answer(500) // its undo
	r.wait()
	r.must(Event{Kind: EventUnserved, Seq: r.task.Steps[1].Out, Rand: 0.5})
	r.wait()
	if s := &r.task.Steps[1]; !s.again() || s.Status != StepUndoing || r.task.State != StateProcessing {
		t.Fatal(r.task)
	}
	r.must(Event{Kind: EventCancel, Reason: "not wanted"}) // which compares what a replay makes of it
	r.crash()
	if r.task.Out() != 1 {
		t.Fatalf("the undo that is out is not known: %s", r.task)
	}
	for r.task.State == StateUndoing {
		if r.task.Out() < 0 {
			r.wait()
			continue
		}
		r.answer(0)
	}
	if r.task.State != StateUndone {
		t.Fatal(r.task)
	}
}
