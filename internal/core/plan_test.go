package core

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A plan that cannot work is refused, and the error names field, value and limit.
func TestPlanRefused(t *testing.T) {
	for _, c := range []struct {
		change func(p *Plan)
		want   string
	}{
		{func(p *Plan) { p.Name = "or.der" }, `"or.der"`},
		{func(p *Plan) { p.Name = "" }, "0 bytes"},
		{func(p *Plan) { p.Version = 0 }, "version 0"},
		{func(p *Plan) { p.Steps = nil }, "0 steps, want 1 to 1000"},
		{func(p *Plan) { p.Steps = make([]Step, StepsMax+1) }, "1001 steps, want 1 to 1000"},
		{func(p *Plan) { p.CompleteBy = -time.Second }, "complete_by is -1s"},
		{func(p *Plan) { p.Grace = time.Microsecond }, "grace is 1µs, want 1ms"},
		{func(p *Plan) { p.Steps[1].Name = "a" }, "steps 1 and 2 are both named a"},
		{func(p *Plan) { p.Steps[1].Name = strings.Repeat("x", 65) }, "65 bytes, want 1 to 64"},
		{func(p *Plan) { p.Steps[1].Agent = "a..b" }, "step b"},
		{func(p *Plan) { p.Steps[1].Agent = "a.b.c.d.e" }, "more than 4 tokens"},
		{func(p *Plan) { p.Steps[1].After = []int{1} }, "step number 2, which is not an earlier step"},
		{func(p *Plan) { p.Steps[1].After = []int{2} }, "step number 3"},
		{func(p *Plan) { p.Steps[1].After = []int{-1} }, "step number 0"},
		{func(p *Plan) { p.Steps[1].AttemptsMax = AttemptsLimit + 1 }, "attempts_max is 1001, want 1 to 1000"},
		{func(p *Plan) { p.Steps[1].UndoAttemptsMax = -1 }, "undo_attempts_max is -1"},
		{func(p *Plan) { p.Steps[1].ResultMax = ResultBytesMax + 1 }, "result_max is 65537, want 1 to 65536"},
		{func(p *Plan) { p.Steps[1].OnExhausted = "retry" }, `on_exhausted is "retry"`},
		{func(p *Plan) { p.Steps[1].Backoff, p.Steps[1].BackoffCap = 2*time.Second, time.Second }, "backoff is 2s, want at most its cap of 1s"},
		{func(p *Plan) { p.Steps[1].CompleteBy, p.CompleteBy = 2*time.Second, time.Second }, "complete_by is"},
		{func(p *Plan) { p.Steps[1].Pause = 2 * DurationMax }, "pause is"},
		{func(p *Plan) { p.InputMax = InputBytesMax + 1 }, "input_max is 262145, want 1 to 262144"},
		{func(p *Plan) { p.InputMax = InputBytesMax }, "step b: its command could reach 401408 bytes (input 262144, results 131072, the rest 8192), over the server's max_payload of 400000; name in uses"},
		{func(p *Plan) { p.Admission = "maybe" }, `admission is "maybe", want queue, off, warn or refuse`},
		{func(p *Plan) { p.QueueFor = 2 * time.Hour }, "queue_for is 2h0m0s, want 1s to 1h0m0s"},
		{func(p *Plan) { p.UndoReserve = p.CompleteBy }, "undo_reserve is 1m0s, want less than the task's complete_by of 1m0s"},
		{func(p *Plan) { p.Steps[1].Kind = "sleep" }, `step b: kind is "sleep", want call, wait, signal, task or each`},
		{func(p *Plan) { p.Steps[1].Child = "other" }, "step b: child is said, but a step of kind call has none"},
		{func(p *Plan) { p.Steps[1].Uses = []int{0} }, "uses names steps, but narrow is false"},
		{func(p *Plan) { p.Steps[2].Narrow, p.Steps[2].After, p.Steps[2].Uses = true, []int{0}, []int{1} }, "step c: uses names b, which c does not come after"},
		{func(p *Plan) { p.Steps[1].Least = 11 * time.Second }, "least is 11s, want at most the step's complete_by of 10s"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: WaitStep} }, "step c: neither for nor until is said"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: WaitStep, For: 1, Until: "x"} }, "step c: for and until are said"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: WaitStep, For: 2 * time.Minute} }, "for is 2m0s, want at most the task's complete_by of 1m0s"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: WaitStep, For: 1, Agent: "a"} }, "agent is said, but a step of kind wait has none"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: WaitStep, For: time.Second, AttemptsMax: 2} }, "attempts_max is 2, want 1"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: SignalStep, Undoable: true} }, "undoable is said, but a step of kind signal has none"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: TaskStep} }, `step c: name refused: child "" has 0 bytes`},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: TaskStep, Child: "order"} }, "child is order, the plan itself"},
		{func(p *Plan) { p.Steps[2] = Step{Name: "c", Kind: EachStep, Child: "one"} }, "elements is not said"},
		{func(p *Plan) {
			p.Steps[2] = Step{Name: "c", Kind: EachStep, Child: "one", Elements: "input", ElementsMax: ElementsLimit + 1}
		}, "elements_max is 100001, want 1 to 100000"},
		{func(p *Plan) {
			p.Steps[2] = Step{Name: "c", Kind: EachStep, Child: "one", Elements: "input", ElementsMax: 5, FailuresMax: 6}
		}, "failures_max is 6, want 0 to 5"},
	} {
		p := stepsPlan(3)
		p.Steps[1].After = []int{0}
		p = p.WithDefaults()
		p.InputMax = 1000
		c.change(&p)
		if p.CompleteBy > 0 {
			p = p.WithDefaults() // of the steps that are other ones now
		}
		err := p.Validate(400_000)
		if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got: %v", c.want, err)
		}
	}
}

// All that is wrong is told, one error of each field, and nothing that follows from another error.
func TestPlanRefusedForAll(t *testing.T) {
	p := stepsPlan(3)
	p = p.WithDefaults()
	p.Version, p.CompleteBy = 0, -time.Second
	p.Steps[0].Kind, p.Steps[0].AttemptsMax = "sleep", -1
	p.Steps[1].Name, p.Steps[1].AttemptsMax, p.Steps[1].BackoffCap = "b b", -1, -1
	p.Steps[2].After = []int{7, 8}
	const want = `plan cannot work: plan order: version 0 is below 1
plan cannot work: plan order: complete_by is -1s, want 1ms to 8760h0m0s
plan cannot work: plan order: step a: kind is "sleep", want call, wait, signal, task or each
plan cannot work: plan order: step number 2: name refused: step "b b": character 2 is ' ', want A–Z a–z 0–9 _ -
plan cannot work: plan order: step number 2: attempts_max is -1, want 1 to 1000
plan cannot work: plan order: step number 2: backoff_cap is -1ns, want 1ms to 8760h0m0s
plan cannot work: plan order: step c: after names step number 8, which is not an earlier step (a cycle cannot run)`
	err := p.Validate(0)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	p.Steps = make([]Step, StepsMax)
	if all, ok := errors.AsType[PlanErrors](p.Validate(0)); !ok || len(all) != PlanErrorsMax {
		t.Errorf("%d errors, want %d", len(all), PlanErrorsMax)
	}
}

func TestPlanAccepted(t *testing.T) {
	given := stepsPlan(3)
	p := given.WithDefaults()
	p.Steps[2].After = []int{0, 1}
	if err := p.Validate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if given.Steps[0].AttemptsMax != 0 {
		t.Error("WithDefaults changed the plan it was called on")
	}
	s := p.Steps[0]
	if s.OnExhausted != PolicyUndo || s.AttemptsMax != DefaultAttemptsMax || s.UndoCompleteBy != DefaultStepCompleteBy {
		t.Errorf("defaults: %+v", s)
	}
	if p.StepIndex("c") != 2 || p.StepIndex("x") != -1 {
		t.Error("StepIndex")
	}
}

// Each kind of step has the defaults that its kind needs, and no others.
func TestDefaultsOfKinds(t *testing.T) {
	p := Plan{Name: "order", Version: 1, Steps: []Step{
		{Name: "cool", Kind: WaitStep, For: time.Second},
		{Name: "approve", Kind: SignalStep, After: []int{0}},
		{Name: "book", Kind: TaskStep, Child: "booking", After: []int{1}},
		{Name: "pay", Kind: EachStep, Child: "payment", Elements: "input.payees", After: []int{2}},
	}}.WithDefaults()
	if err := p.Validate(1 << 20); err != nil {
		t.Fatal(err)
	}
	for i, want := range []Step{
		{AttemptsMax: 1},
		{AttemptsMax: 1, CompleteBy: p.CompleteBy, Backoff: defaultBackoff, BackoffCap: defaultBackoffCap, ResultMax: ResultBytesMax},
		{AttemptsMax: 1, CompleteBy: p.CompleteBy, Backoff: defaultBackoff, BackoffCap: defaultBackoffCap, ResultMax: ResultBytesMax,
			Undoable: true, UndoCompleteBy: defaultUndoPatience},
		{AttemptsMax: 1, CompleteBy: p.CompleteBy, Backoff: defaultBackoff, BackoffCap: defaultBackoffCap, ResultMax: ResultBytesMax,
			Undoable: true, UndoCompleteBy: defaultUndoPatience, ElementsMax: defaultElementsMax, Parallel: defaultParallel},
	} {
		was := p.Steps[i]
		want.Name, want.Kind, want.After, want.For, want.Child, want.Elements = was.Name, was.Kind, was.After, was.For, was.Child, was.Elements
		want.OnExhausted, want.Pause = PolicyUndo, defaultPause
		if !reflect.DeepEqual(was, want) {
			t.Errorf("%s:\n%+v, want\n%+v", was.Kind, was, want)
		}
	}
	if again := p.WithDefaults(); !reflect.DeepEqual(again, p) {
		t.Error("the defaults of a plan with defaults are others")
	}
	if got := p.ShortestTimeout(); got != time.Second {
		t.Errorf("shortest time-out %v, want the wait's", got)
	}
}

// What a step comes after, directly or through others, is what its commands carry unless uses is said.
func TestAncestors(t *testing.T) {
	p := stepsPlan(5)
	p.Steps[1].After, p.Steps[2].After, p.Steps[3].After = []int{0}, []int{0}, []int{1, 1}
	p.Steps[4].After = []int{3, 2}
	all := p.AllAncestors()
	for i, n := range []int{0, 1, 1, 2, 4} {
		want := StepsBelow(n)
		if got := p.Ancestors(i); !got.Equal(want) || !p.Carried(i).Equal(want) || !all[i].Equal(want) {
			t.Errorf("step %d: %v, carried %v, of all %v, want the first %d", i, got, p.Carried(i), all[i], n)
		}
	}
	p.Steps[4].Narrow, p.Steps[4].Uses = true, []int{3, 0}
	if got := p.Carried(4); !got.Equal(StepSetOf(0, 3)) || !p.AllCarried(all)[4].Equal(got) || p.AllCarried(all)[3].Len() != 2 {
		t.Errorf("carried %v", got)
	}
	wide := Plan{Steps: make([]Step, StepsMax)}
	for i := 1; i < StepsMax; i++ {
		wide.Steps[i].After = []int{i - 1}
	}
	if got := wide.Ancestors(StepsMax - 1); !got.Equal(StepsBelow(StepsMax-1)) || !wide.AllAncestors()[StepsMax-1].Equal(got) {
		t.Errorf("of a chain of %d: %v", StepsMax, got)
	}
	wide.Steps[1].After = []int{7, -1}
	if got := wide.Ancestors(2); !got.Equal(StepSetOf(1)) || !wide.AllAncestors()[2].Equal(got) {
		t.Errorf("a step number that is none: %v", got)
	}
}

// An error of a plan says where it is, so that a file can be pointed into.
func TestPlanErrorPlace(t *testing.T) {
	p := stepsPlan(2).WithDefaults()
	p.Steps[1].Backoff = time.Nanosecond
	err := p.Validate(0)
	var wrong *PlanError
	if !errors.As(err, &wrong) || wrong.Plan != "order" || wrong.Step != 1 || wrong.Field != "backoff" || wrong.Text() != "backoff is 1ns, want 1ms to 8760h0m0s" {
		t.Errorf("%+v", wrong)
	}
	p.Name = "a b"
	if err := p.Validate(0); !errors.As(err, &wrong) || wrong.Step != -1 || wrong.Field != "name" || !errors.Is(err, ErrName) {
		t.Errorf("%+v", wrong)
	}
}

func TestShortestTimeout(t *testing.T) {
	p := stepsPlan(2).WithDefaults()
	p.Steps[1].UndoCompleteBy = time.Second
	if got := p.ShortestTimeout(); got != time.Second {
		t.Errorf("with an undo of one second: %v", got)
	}
	p.Steps[1].Undoable = false
	if got := p.ShortestTimeout(); got != DefaultStepCompleteBy {
		t.Errorf("a check is never undone: %v", got)
	}
}

// covers: I18, D8
func TestFinalCode(t *testing.T) {
	for code, want := range map[int]bool{
		0: false, 302: false, 400: true, 404: true, CodeTimeout: false, CodeGone: true, CodeRefused: true,
		CodeTooEarly: false, CodeTooMany: false, 499: true, 500: false, CodeFailed: false, -1: false,
	} {
		if FinalCode(code) != want {
			t.Errorf("FinalCode(%d) = %v", code, !want)
		}
	}
}

// covers: I23
func TestKey(t *testing.T) {
	for round, want := range map[int]string{0: "t1/drone/0", 9: "t1/drone/9", 10: "t1/drone/10"} {
		c := Command{Task: "t1", Step: "drone", Round: round}
		if got := c.Key(); got != want {
			t.Errorf("round %d: %q", round, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	s := Step{Backoff: 200 * time.Millisecond, BackoffCap: time.Second}
	for attempt, want := range []time.Duration{1: 200, 2: 400, 3: 800, 4: 1000, 5: 1000, 1000: 1000} {
		if attempt == 0 || want == 0 {
			continue
		}
		if got := backoff(&s, attempt, 0.5); got != want*time.Millisecond/2 {
			t.Errorf("before try %d: %v", attempt+1, got)
		}
	}
	if got := backoff(&s, 3, 0); got != 0 {
		t.Errorf("full jitter begins at 0, got %v", got)
	}
}

// Times keep the microsecond that every store keeps.
func TestInstant(t *testing.T) {
	i := InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 1234567, time.UTC))
	if i.Add(1500*time.Nanosecond) != i+1 || i.Add(time.Second).Sub(i) != time.Second {
		t.Error("Add and Sub")
	}
	if got := i.Time(); got.Nanosecond() != 1_234_000 || got.Location() != time.UTC {
		t.Errorf("%v", got)
	}
}

func TestLongErrorIsCut(t *testing.T) {
	if got := len(cut(strings.Repeat("x", 2*ErrorBytesMax))); got != ErrorBytesMax {
		t.Errorf("%d bytes kept", got)
	}
}

// Replay refuses a journal that cannot be this task's.
//
// covers: I24
func TestReplayRefuses(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.answer(0)
	stranger := r.journal[1]
	stranger.Step = 5
	for name, journal := range map[string][]Record{
		"empty": nil, "a gap": r.journal[1:], "a step that is not there": {r.journal[0], stranger},
	} {
		if _, err := Replay(r.plan, &Saved{Row: r.row, Journal: journal}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Requests with a deadline in the past and unknown kinds of event change nothing.
func TestBadRequests(t *testing.T) {
	p := stepsPlan(1)
	p.Steps[0].OnExhausted = PolicyError
	r := newRig(t, p)
	r.birth(0)
	if err := r.apply(Event{Kind: 99}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("kind 99: %v", err)
	}
	r.answer(CodeRefused)
	if err := r.apply(Event{Kind: EventResubmit, Until: r.now}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("resubmit until now: %v", err)
	}
}
