package duly

import (
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
		UndoCompleteBy(2*time.Second), UndoAttempts(4), OnExhausted(WaitLonger), Pause(time.Hour))
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
		{"after a stranger", step("c", After(step("x"))), nil, "plan p: step c comes after x, which is not an earlier step"},
		{"after itself", step("c", After(step("c"))), nil, "step c comes after c"},
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
