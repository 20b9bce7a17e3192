package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// askPlan is stock, then the approval, then shipping, then the capture: what fails stops the task.
func askPlan() Plan {
	p := Plan{Name: "order", Version: 1, CompleteBy: time.Hour}
	for i, name := range []string{"stock", "approve", "ship", "capture"} {
		s := Step{Name: name, Agent: "agent." + name, Undoable: true, OnExhausted: PolicyError}
		if i > 0 {
			s.After = []int{i - 1}
		}
		p.Steps = append(p.Steps, s)
	}
	p.Steps[1] = Step{Name: "approve", Kind: SignalStep, After: []int{0}, CompleteBy: time.Minute}
	return p
}

func approval(token string) Event {
	return Event{Kind: EventSignal, Actor: person, Step: "approve", Result: []byte(`"yes"`), AskToken: token}
}

func (r *rig) refuses(step int) {
	r.t.Helper()
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[step].Out, Code: 422, Error: "no"})
	if r.task.State != StateError {
		r.t.Fatalf("refused: %s", r.task)
	}
}

func (r *rig) edited() {
	r.t.Helper()
	if void := r.task.Voids(r.plan); !slices.Equal(void, []string{"approve"}) {
		r.t.Fatalf("an edit would void %v, want the answer to approve", void)
	}
	r.must(Event{Kind: EventEdit, Actor: person, Input: []byte(`{"cents":999900}`)})
}

// TestEditVoidsAnswers: an answer that came early, and one on which an open step rests, is for the input of that time. An edit
// and a new version ask again, also where a step between has been done; a plain resubmit keeps the answers.
//
// covers: W2
func TestEditVoidsAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		early, asked bool
		again        func(r *rig)
	}{
		"early, edited":      {true, true, (*rig).edited},
		"early, resubmitted": {true, false, func(r *rig) { r.must(Event{Kind: EventResubmit, Actor: person}) }},
		"done, edited":       {false, true, (*rig).edited},
		"done, resubmitted":  {false, false, func(r *rig) { r.must(Event{Kind: EventResubmit, Actor: person}) }},
		"done, moved": {false, true, func(r *rig) {
			next := askPlan()
			next.Version = 2
			next = next.WithDefaults()
			r.must(Event{Kind: EventMigrate, Actor: person, Version: 2, Plan: &next})
			r.plan = &next
			r.must(Event{Kind: EventResubmit, Actor: person})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, askPlan())
			r.birth(0)
			if c.early {
				r.must(approval(""))
				r.refuses(0)
				c.again(r)
				r.answer(0)
			} else {
				r.answer(0)
				r.must(approval(""))
				r.answer(0)
				r.refuses(3)
				c.again(r)
			}
			if asked := r.task.Steps[1].Out != 0; asked != c.asked {
				t.Fatalf("it asks for the approval: %v, want %v: %s", asked, c.asked, r.task)
			}
			if !c.asked {
				return
			}
			if r.task.Steps[3].Out != 0 {
				t.Fatalf("the capture leaves by an answer for another input: %s", r.task)
			}
			if err := r.apply(approval("")); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "say which ask") {
				t.Errorf("an answer that does not say for what: %v", err)
			}
			r.must(approval(r.task.AskToken(r.plan, 1)))
			if !c.early && r.task.Steps[3].Out == 0 {
				t.Errorf("answered, and the capture does not leave: %s", r.task)
			}
		})
	}
}

// TestEditAsksWhatWasSkipped: an edit reopens an approval that was skipped for the old input.
//
// covers: W2
func TestEditAsksWhatWasSkipped(t *testing.T) {
	for name, ev := range map[string]Event{
		"silence": {Kind: EventOverdue},
		"refused": {Kind: EventSignal, Actor: person, Step: "approve", Code: 422, Reason: "no"},
	} {
		p := askPlan()
		p.Steps[1].OnExhausted = PolicySkip
		r := newRig(t, p)
		r.birth(0)
		r.answer(0)
		if ev.Kind == EventOverdue {
			r.now = r.task.Steps[1].Due
		}
		r.must(ev)
		if r.task.Steps[1].Status != StepSkipped {
			t.Fatalf("%s: %s", name, r.task)
		}
		r.refuses(2)
		r.edited()
		if r.task.Steps[1].Out == 0 || r.task.Steps[2].Out != 0 {
			t.Errorf("%s: edited, and it goes on without asking: %s", name, r.task)
		}
	}
}

// dearAsker says that a condition holds for dear input alone.
type dearAsker struct {
	Asker
	r *rig
}

func (a dearAsker) When(int) (bool, error) {
	return strings.Contains(string(a.r.task.Input), "999900"), nil
}

// TestEditAsksWhatTheConditionSkipped: that nothing had to be approved is for the input of that time, too.
//
// covers: W2
func TestEditAsksWhatTheConditionSkipped(t *testing.T) {
	p := askPlan()
	p.Steps[1].When = "input.cents > 1000"
	r := newRig(t, p)
	r.birth(0)
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Copy: r.task.Steps[0].Copy, Ask: dearAsker{r: r}})
	if r.task.Steps[1].Status != StepSkipped {
		t.Fatalf("the approval is not skipped: %s", r.task)
	}
	r.answer(0)
	r.refuses(3)
	r.must(Event{Kind: EventEdit, Actor: person, Input: []byte(`{"cents":999900}`), Ask: dearAsker{r: r}})
	if r.task.Steps[1].Out == 0 || r.task.Steps[3].Out != 0 {
		t.Fatalf("it does not ask for the approval of another input: %s", r.task)
	}
	r.must(approval(r.task.AskToken(r.plan, 1)))
	if r.task.Steps[3].Out == 0 {
		t.Errorf("answered, and the capture does not leave: %s", r.task)
	}
}

// Elements says that dear input alone has a list of something.
func (a dearAsker) Elements(step int) ([]byte, int, error) {
	if dear, _ := a.When(step); dear {
		return []byte(`["a"]`), 1, nil
	}
	return []byte(`[]`), 0, nil
}

// Until says that only dear input has time.
func (a dearAsker) Until(step int) (Instant, error) {
	if dear, _ := a.When(step); dear {
		return a.r.now.Add(time.Minute), nil
	}
	return a.r.now, nil
}

// TestEditAsksWhatNothingRanFor: a step of which nothing ran by one input may run by another, and what comes after it waits for
// it. What has run is not done again.
func TestEditAsksWhatNothingRanFor(t *testing.T) {
	for name, step := range map[string]Step{
		"condition": {Name: "check", Agent: "agent.check", When: "input.cents > 1000"},
		"list":      {Name: "parts", Kind: EachStep, Child: "part", Elements: "input.parts", Undoable: true},
		"wait":      {Name: "wait", Kind: WaitStep, Until: "input.from"},
	} {
		p := askPlan()
		step.After = []int{0}
		p.Steps[1] = step
		r := newRig(t, p)
		r.birth(0)
		r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Copy: r.task.Steps[0].Copy, Ask: dearAsker{r: r}})
		if !r.task.Steps[1].Status.over() {
			t.Fatalf("%s: something runs: %s", name, r.task)
		}
		r.answer(0)
		r.refuses(3)
		edit := func(input string) {
			r.must(Event{Kind: EventEdit, Actor: person, Input: []byte(input), Ask: dearAsker{r: r}})
		}
		edit(`{"cents":999900}`)
		if r.task.Steps[1].Out == 0 || r.task.Steps[3].Out != 0 {
			t.Errorf("%s: it goes on by what the input before said: %s", name, r.task)
			continue
		}
		if step.Kind == WaitStep {
			r.late()
		} else {
			r.must(Event{Kind: map[bool]EventKind{true: EventChild, false: EventReply}[step.Kind == EachStep], Seq: r.task.Steps[1].Out, Result: []byte(`{}`)})
		}
		r.refuses(3)
		edit(`{"cents":1}`)
		if r.task.Steps[1].Status != StepDone || r.task.Steps[3].Out == 0 {
			t.Errorf("%s: what has run is asked again: %s", name, r.task)
		}
	}
}

// TestAskToken: which answers are taken, by what they say of the ask: a token that is given must be that of the ask; one that
// is not counts where there has been one ask, unless the step requires it.
//
// covers: W2
func TestAskToken(t *testing.T) {
	for name, c := range map[string]struct {
		required, resubmitted bool
		token                 string // first, is
		want                  string // empty: taken
	}{
		"none, at first":        {false, false, "", ""},
		"none, taken up":        {false, true, "", "say which ask of step approve it answers"},
		"none, required":        {true, false, "", "say which ask of step approve it answers"},
		"its own, at first":     {false, false, "is", ""},
		"its own, taken up":     {true, true, "is", ""},
		"an earlier one":        {false, true, "first", "another ask of step approve"},
		"of another round":      {false, false, "1.00000000000000000000000000000000", "in round 1, and the task is in round 0"},
		"no token of this task": {false, false, "0.00000000000000000000000000000000", "another ask of step approve"},
	} {
		t.Run(name, func(t *testing.T) {
			p := askPlan()
			if c.required {
				p.Steps[1].Ask = AskRequired
			}
			r := newRig(t, p)
			r.birth(0)
			tokens := map[string]string{"first": r.task.AskToken(r.plan, 1)}
			if c.resubmitted {
				r.refuses(0)
				r.must(Event{Kind: EventResubmit, Actor: person})
			}
			r.answer(0)
			tokens["is"] = r.task.AskToken(r.plan, 1)
			token, named := tokens[c.token]
			if !named {
				token = c.token
			}
			err := r.apply(approval(token))
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestRequiredAskWaits: a step that requires its ask takes no answer, and shows no token, before the results are there that it
// asks about; one that does not takes an answer early.
//
// covers: W2
func TestRequiredAskWaits(t *testing.T) {
	for _, required := range []bool{false, true} {
		p := askPlan()
		if required {
			p.Steps[1].Ask = AskRequired
		}
		r := newRig(t, p)
		r.birth(0)
		early := r.task.askToken(r.plan, 1)
		if shown := r.task.AskToken(r.plan, 1); (shown == "") != required {
			t.Errorf("required %v: before the result the token is %q", required, shown)
		}
		if !required {
			if err := r.apply(approval(early)); err != nil {
				t.Errorf("an early answer: %v", err)
			}
			continue
		}
		if err := r.apply(approval(early)); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "step approve asks nothing yet") {
			t.Errorf("an answer before what it is about is known: %v", err)
		}
		r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Result: []byte(`{"cents":999900}`)})
		if err := r.apply(approval(early)); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "another ask of step approve") {
			t.Errorf("an answer by the token of before: %v", err)
		}
		r.must(approval(r.task.AskToken(r.plan, 1)))
	}
}

// TestAcceptedAsksAgain: what was asked before an operator accepted a step is not what is asked afterwards.
//
// covers: W2
func TestAcceptedAsksAgain(t *testing.T) {
	r := newRig(t, askPlan())
	r.birth(0)
	before := r.task.AskToken(r.plan, 1)
	r.refuses(0)
	r.must(Event{Kind: EventAccept, Actor: person, Result: []byte(`{"by":"hand"}`)})
	for token, want := range map[string]string{"": "say which ask of step approve it answers", before: "another ask of step approve"} {
		if err := r.apply(approval(token)); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), want) {
			t.Errorf("token %q: %v, want %q", token, err, want)
		}
	}
	r.must(approval(r.task.AskToken(r.plan, 1)))
}

// TestAnswerOrRefusal: null beside a reason is neither.
//
// covers: W2
func TestAnswerOrRefusal(t *testing.T) {
	for _, x := range []struct {
		payload, reason string
		wrong           bool
	}{{"null", "", false}, {"null", "too dear", true}, {"{}", "by phone", false}, {"", "too dear", false}} {
		if err := CheckAnswer([]byte(x.payload), x.reason); (err != nil) != x.wrong {
			t.Errorf("%q with %q: %v", x.payload, x.reason, err)
		}
	}
}

// TestAskTokenNamesAll: what is asked of another task, step, version, round, taking up, input or result before it has another
// token.
//
// covers: W2
func TestAskTokenNamesAll(t *testing.T) {
	token := func(change func(*Task, *Plan)) string {
		p := askPlan()
		r := newRig(t, p)
		r.birth(0)
		change(r.task, &p)
		return r.task.AskToken(&p, 1)
	}
	is := token(func(*Task, *Plan) {})
	for name, change := range map[string]func(*Task, *Plan){
		"type":     func(t *Task, _ *Plan) { t.Type += "2" },
		"id":       func(t *Task, _ *Plan) { t.ID += "2" },
		"step":     func(_ *Task, p *Plan) { p.Steps[1].Name += "2" },
		"version":  func(_ *Task, p *Plan) { p.Version++ },
		"round":    func(t *Task, _ *Plan) { t.Round++ },
		"taken up": func(t *Task, _ *Plan) { t.TakenUp++ },
		"result":   func(t *Task, _ *Plan) { t.Steps[0].Result = []byte(`{"cents":999900}`) },
		"input":    func(t *Task, _ *Plan) { t.Input = []byte(`{"amount":999900}`) },
	} {
		if other := token(change); other == is || other == "" {
			t.Errorf("of another %s the token is %s too", name, other)
		}
	}
}

// TestNewRoundAsksAgain: the token of a round that was undone is not that of the next, though all else is the same.
func TestNewRoundAsksAgain(t *testing.T) {
	r := newRig(t, askPlan())
	r.birth(0)
	first := r.task.AskToken(r.plan, 1)
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Code: 422, Error: "no"})
	r.must(Event{Kind: EventUndo, Actor: person})
	if r.task.State != StateUndone {
		t.Fatalf("undone: %s", r.task)
	}
	r.must(Event{Kind: EventResubmit, Actor: person})
	if err := r.apply(approval(first)); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "in round 0, and the task is in round 1") {
		t.Errorf("the answer of the round before: %v", err)
	}
	r.must(approval(r.task.AskToken(r.plan, 1)))
}
