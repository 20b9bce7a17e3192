package duly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

func TestOptionsReachThePlan(t *testing.T) {
	first := NewCheck[testOrder, int]("first", "a", CompleteBy(time.Second), Attempts(7), ResultMax(100))
	second := NewStep[testOrder, int]("second", "b.c", Backoff(time.Millisecond, time.Second),
		UndoCompleteBy(2*time.Second), UndoAttempts(4), OnExhausted(PolicyPause), Pause(time.Hour))
	plan := NewPlan("shop", 3, first, second).With(TaskCompleteBy(time.Minute), Grace(time.Second), InputMax(1000))
	want := core.Plan{
		Name: "shop", Version: 3, CompleteBy: time.Minute, Grace: time.Second, InputMax: 1000,
		Steps: []core.Step{
			{Name: "first", Agent: "a", CompleteBy: time.Second, AttemptsMax: 7, ResultMax: 100},
			{
				Name: "second", Agent: "b.c", After: []int{0}, Undoable: true,
				Backoff: time.Millisecond, BackoffCap: time.Second,
				UndoCompleteBy: 2 * time.Second, UndoAttemptsMax: 4, OnExhausted: core.PolicyWait, Pause: time.Hour,
			},
		},
	}.WithDefaults()
	if got, want := fmt.Sprintf("%+v", plan.spec), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if err := plan.check(1 << 20); err != nil {
		t.Error(err)
	}
	if plan.Name() != "shop" || plan.Version() != 3 {
		t.Errorf("plan is %s version %d", plan.Name(), plan.Version())
	}
}

func TestWithLeavesThePlanAlone(t *testing.T) {
	with := testPlan.With(InputMax(5))
	with.spec.Steps[0].AttemptsMax = 99
	if testPlan.spec.InputMax == 5 || testPlan.spec.Steps[0].AttemptsMax == 99 {
		t.Error("With changed its receiver")
	}
}

// covers: S2
func TestOrderOfSteps(t *testing.T) {
	step := func(name string, options ...CheckOption) *Check[testOrder, int] {
		return NewCheck[testOrder, int](name, "agent", options...)
	}
	a, b := step("a"), step("b")
	for _, test := range []struct {
		name string
		last *Check[testOrder, int]
		want []int
		err  string
	}{
		{"after the one before", step("c"), []int{1}, ""},
		{"after one named", step("c", After(a)), []int{0}, ""},
		{"after two named", step("c", After(a, b)), []int{0, 1}, ""},
		{"after none", step("c", After()), nil, ""},
		{"after a stranger", step("c", After(step("x"))), nil, "plan p: step c: after names x, which is not an earlier step"},
		{"after itself", step("c", After(step("c"))), nil, "plan p: step c: after names the step itself"},
		{"a name twice", step("a"), []int{1}, "both named a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := NewPlan("p", 1, a, b, test.last)
			if got := plan.spec.Steps[2].After; test.err == "" && !slices.Equal(got, test.want) {
				t.Errorf("after %v, want %v", got, test.want)
			}
			err := plan.check(0)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}

func TestImpossiblePlanIsFinal(t *testing.T) {
	for _, plan := range []*Plan[testOrder]{
		NewPlan[testOrder]("empty", 1),
		NewPlan("old", 0, testCredit),
		NewPlan("a b", 1, testCredit),
		testPlan.With(InputMax(1 << 30)),
	} {
		if err := plan.check(0); !errors.Is(err, core.ErrPlan) || !errors.Is(err, ErrRefused) {
			t.Errorf("plan %s: got %v", plan.Name(), err)
		}
	}
	if err := testPlan.check(64 << 10); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("a plan over the server's limit: %v", err)
	}
}

// What an option says counts as it was said, or is refused: a zero does not become a
// default, and no two settings contradict each other.
//
// covers: C15
func TestOptionsThatCannotBe(t *testing.T) {
	step := func(options ...StepOption) *Plan[testOrder] {
		return NewPlan("p", 1, NewStep[testOrder, int]("s", "a", options...))
	}
	var noCheck *Check[testOrder, int]
	var noStep *Step[testOrder, int]
	var none StepOf[testOrder]
	for want, plan := range map[string]*Plan[testOrder]{
		"step s: Attempts(0), want 1 to 1000":                          step(Attempts(0)),
		"step s: UndoAttempts(0), want 1 to 1000":                      step(UndoAttempts(0)),
		"attempts_max is -1, want 1 to 1000":                           step(Attempts(-1)),
		"step s: CompleteBy(0), want 1ms to 8760h0m0s":                 step(CompleteBy(0)),
		"step s: UndoCompleteBy(0), want":                              step(UndoCompleteBy(0)),
		"step s: Pause(0), want":                                       step(Pause(0)),
		"step s: ResultMax(0), want 1 to 65536":                        step(ResultMax(0)),
		"step s: Backoff(0), want":                                     step(Backoff(0, time.Second)),
		"step s: Backoff(0), want 1ms":                                 step(Backoff(time.Second, 0)),
		"step s: backoff is 10s, want at most its cap of 1s":           step(Backoff(10*time.Second, time.Second)),
		"step s: complete_by is 2m0s, want at most the task's of 1m0s": step(CompleteBy(2 * time.Minute)),
		"plan p: TaskCompleteBy(0), want 1ms to 8760h0m0s":             step().With(TaskCompleteBy(0)),
		"plan p: Grace(0), want":                                       step().With(Grace(0)),
		"plan p: InputMax(0), want 1 to 262144":                        step().With(InputMax(0)),
		"step s: complete_by is 20s, want at most the task's of 10s":   step(CompleteBy(20 * time.Second)).With(TaskCompleteBy(10 * time.Second)),
		"step s: After: argument 1 is nil or has no name":              step(After(nil)),
		"step s: After: argument 2 is nil":                             NewPlan("p", 1, testCredit, NewStep[testOrder, int]("s", "a", After(testCredit, noCheck))),
		"step s: After: argument 1 is nil or":                          step(After(noStep)),
		"plan p: step number 2 is nil":                                 NewPlan("p", 1, testCredit, none),
		"plan p: a step is nil":                                        NewPlan[testOrder]("p", 1, noCheck),
		"plan cannot work: plan p: a step is nil":                      NewPlan[testOrder]("p", 1, noStep),
		`on_exhausted is "never", want undo, wait, error or skip`:      step(OnExhausted("never")),
	} {
		err := plan.check(0)
		if !errors.Is(err, ErrRefused) || !errors.Is(err, core.ErrPlan) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if err != nil && strings.Count(err.Error(), "plan cannot work") != 1 {
			t.Errorf("not said once: %v", err)
		}
	}
	agent, err := NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewCheck[testOrder, int]("s", "a", Attempts(0)).Serve(agent, func(context.Context, Call[testOrder]) (int, error) { return 0, nil }); err == nil || !strings.Contains(err.Error(), "Attempts(0)") {
		t.Errorf("served: %v", err)
	}
}

// A default gives way to what was said.
func TestDefaultsDoNotContradict(t *testing.T) {
	plan := NewPlan("p", 1, NewStep[testOrder, int]("s", "a")).With(TaskCompleteBy(3 * time.Second))
	if err := plan.check(0); err != nil || plan.spec.Steps[0].CompleteBy != 3*time.Second {
		t.Errorf("a task of 3s has a step of %v: %v", plan.spec.Steps[0].CompleteBy, err)
	}
	if plan = plan.With(TaskCompleteBy(time.Hour)); plan.spec.Steps[0].CompleteBy != core.DefaultStepCompleteBy {
		t.Errorf("a task of an hour has a step of %v", plan.spec.Steps[0].CompleteBy)
	}
}

// covers: C15
func TestAgentOptionsThatCannotBe(t *testing.T) {
	for want, option := range map[string]AgentOption{
		"Running(0), want 1 or more": Running(0), "Waiting(0), want 1 or more": Waiting(0), "Retries(-1), want 0 or more": Retries(-1),
		"Drain(0s), want 1ms or more": Drain(0), "Running(-5), want": Running(-5),
		"name refused: Variant \"a.b\"": Variant("a.b"), "DryRun and Variant": agentOption(func(c *agentConfig) {
			DryRun().forAgent(c)
			Variant("canary").forAgent(c)
		}),
	} {
		if _, err := NewAgent(nil, option); err == nil || !strings.Contains(err.Error(), "new agent: "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
