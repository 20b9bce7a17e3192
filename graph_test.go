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

// flight is the input of a child, seat its result, nod what a signal is answered.
type (
	flight struct{ To string }
	seat   struct{ Row int }
	nod    struct{ By string }
)

// trip is the parts of a plan with every kind of step.
var (
	tripSearch  = NewCheck[flight, seat]("search", "air.search")
	tripReserve = NewStep[flight, seat]("reserve", "air.reserve")
	tripFlight  = ResultOf(NewPlan("flight", 1, tripSearch, tripReserve), tripReserve)
)

func TestGraphReachesThePlan(t *testing.T) {
	quote := NewCheck[testOrder, int]("quote", "desk.quote", Optional(), Least(time.Second))
	cool := NewWait[testOrder]("cool", For(time.Hour), After())
	notice := NewWait[testOrder]("notice", Until("timestamp(input.at)"), After(cool))
	approve := NewSignal[testOrder, nod]("approve", CompleteBy(time.Hour), After(quote, cool), When("results.quote > 5"), OnExhausted(PolicyError))
	air := With[testOrder](NewChild("air", tripFlight, CompleteBy(time.Minute)), "input.flight")
	all := NewEach[testOrder]("all", tripFlight, Elements("input.flights", 500), Parallel(7), FailuresMax(3), After(approve))
	pack := NewStep[testOrder, int]("pack", "desk.pack", Uses(approve, air), After(air, all))
	plan := NewPlan("trip", 2, quote, cool, notice, approve, air, all, pack).
		With(TaskCompleteBy(2*time.Hour), UndoReserve(time.Minute), Admission(AdmissionWarn), QueueFor(10*time.Minute), Result("results.pack"))
	want := core.Plan{
		Name: "trip", Version: 2, CompleteBy: 2 * time.Hour, UndoReserve: time.Minute, Admission: core.AdmissionWarn, QueueFor: 10 * time.Minute, Result: "results.pack",
		Steps: []core.Step{
			{Name: "quote", Agent: "desk.quote", OnExhausted: core.PolicySkip, Least: time.Second},
			{Name: "cool", Kind: core.WaitStep, For: time.Hour},
			{Name: "notice", Kind: core.WaitStep, Until: "timestamp(input.at)", After: []int{1}},
			{Name: "approve", Kind: core.SignalStep, CompleteBy: time.Hour, After: []int{0, 1}, When: "results.quote > 5", OnExhausted: core.PolicyError},
			{Name: "air", Kind: core.TaskStep, Child: "flight", Input: "input.flight", CompleteBy: time.Minute, After: []int{3}},
			{Name: "all", Kind: core.EachStep, Child: "flight", Elements: "input.flights", ElementsMax: 500, Parallel: 7, FailuresMax: 3, After: []int{3}},
			{Name: "pack", Agent: "desk.pack", Undoable: true, Uses: []int{3, 4}, Narrow: true, After: []int{4, 5}},
		},
	}.WithDefaults()
	if got, want := fmt.Sprintf("%+v", plan.spec), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if plan.err != nil {
		t.Error(plan.err)
	}
	if got := tripFlight.spec.Result; got != `results["reserve"]` {
		t.Errorf("the result of a step is %s", got)
	}
	if named := tripFlight.With(TaskCompleteBy(time.Minute)); named.spec.Result == "" || named.spec.CompleteBy != time.Minute {
		t.Errorf("With lost something: %+v", named.spec)
	}
}

// What cannot be is refused with a sentence where the plan is used, and names the step.
func TestGraphsThatCannotBe(t *testing.T) {
	one := NewCheck[testOrder, int]("one", "a")
	plan := func(steps ...StepOf[testOrder]) *Plan[testOrder] {
		return NewPlan("p", 1, append([]StepOf[testOrder]{one}, steps...)...)
	}
	foreign := NewCheck[testOrder, int]("one", "b")
	nowhere := NewCheck[testOrder, int]("nowhere", "b")
	bad := NewPlan[flight]("bad", 0)
	var (
		noWait   *Wait[testOrder]
		noSignal *Signal[testOrder, nod]
		noChild  *Child[testOrder, NoResult]
		noEach   *Each[testOrder]
		noMapped *Mapped[testOrder, int]
		noPlan   *Plan[testOrder]
	)
	flights := func(options ...EachOption) *Each[testOrder] {
		return NewEach[testOrder]("all", tripFlight, Elements("input", 5), options...)
	}
	for want, plan := range map[string]*Plan[testOrder]{
		"step w: For(0), want 1ms to 8760h0m0s":                      plan(NewWait[testOrder]("w", For(0))),
		"step w: Until: the expression is empty":                     plan(NewWait[testOrder]("w", Until(" "))),
		"step w: Until: the expression is empty ":                    plan(NewWait[testOrder]("w", WaitEnd{})),
		"step w: When: the expression is empty":                      plan(NewWait[testOrder]("w", For(time.Second), When(""))),
		`When("b"): there is another already, "a"`:                   plan(NewWait[testOrder]("w", For(time.Second), When("a"), When("b"))),
		"step two: after names one, which is a step of another plan": plan(NewCheck[testOrder, int]("two", "a", After(foreign))),
		"step two: uses names one, which is a step of another plan":  plan(NewCheck[testOrder, int]("two", "a", Uses(foreign))),
		"step two: uses names nowhere, which is not an earlier step": plan(NewCheck[testOrder, int]("two", "a", Uses(nowhere))),
		"step two: Uses: argument 1 is nil or has no name":           plan(NewCheck[testOrder, int]("two", "a", Uses(nil))),
		"step two: Least(0), want 1ms":                               plan(NewCheck[testOrder, int]("two", "a", Least(0))),
		"step c: its plan: plan cannot work: plan bad: version 0":    plan(With[testOrder](NewChild("c", bad), "input")),
		"step c: its plan: plan cannot work: the plan is nil":        plan(NewChild("c", noPlan)),
		"step c: its plan is nil":                                    plan(NewChild[testOrder, NoResult]("c", nil)),
		"step c: With: the expression is empty":                      plan(With[testOrder](NewChild("c", tripFlight), "")),
		`With("b"): there is another already, "a"`:                   plan(With[testOrder](With[testOrder](NewChild("c", tripFlight), "a"), "b")),
		"step all: Elements(0), want 1 to 100000":                    plan(NewEach[testOrder]("all", tripFlight, Elements("input", 0))),
		"step all: Elements: the expression is empty":                plan(NewEach[testOrder]("all", tripFlight, Elements("", 1))),
		"step all: Parallel(0), want 1 to 10000":                     plan(flights(Parallel(0))),
		"step all: ElementInput: the expression is empty":            plan(flights(ElementInput(" "))),
		"step all: FailuresMax(-1), want 0 or more":                  plan(flights(FailuresMax(-1))),
		"plan p: UndoReserve(0), want":                               plan().With(UndoReserve(0)),
		"plan p: QueueFor(0), want 1s to 1h0m0s":                     plan().With(QueueFor(0)),
		"plan p: queue_for is 2h0m0s, want 1s to 1h0m0s":             plan().With(QueueFor(2 * time.Hour)),
		"plan p: Result: the expression is empty":                    plan().With(Result("")),
		"plan p: ResultAs: it has no result, see Result":             ResultAs[int](plan()).Plan,
		"plan p: ResultOf: nowhere is not a step of it":              ResultOf(plan(), nowhere).Plan,
		"plan p: ResultOf: one is not a step of it":                  ResultOf(plan(), foreign).Plan,
		"plan p: a step is nil":                                      plan(noWait),
		"plan p: a step is nil ":                                     plan(noSignal),
		"plan p: a step is nil  ":                                    plan(noChild),
		"plan p: a step is nil   ":                                   plan(noEach),
		"plan p: a step is nil    ":                                  plan(noMapped),
	} {
		err := plan.check(0)
		if want = strings.TrimSpace(want); !errors.Is(err, ErrRefused) || !errors.Is(err, core.ErrPlan) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// What is told a signal is looked at before anything is sent.
func TestAnswersThatCannotBe(t *testing.T) {
	approve := NewSignal[testOrder, nod]("approve", ResultMax(20))
	other := NewSignal[testOrder, nod]("approve")
	number := NewSignal[testOrder, func()]("number")
	plan := NewPlan("p", 1, approve, number)
	for want, answer := range map[string]Answer[testOrder]{
		"the answer is of no signal":                                     {},
		"signal approve is not a step of plan p version 1":               other.Answer(nod{}),
		"refusal of signal approve: no reason is given":                  approve.Refuse(""),
		"payload of signal approve has 35 bytes, the limit is 20 (413)":  approve.Answer(nod{By: strings.Repeat("x", 26)}),
		"payload of signal number: json: unsupported type: func() (400)": number.Answer(func() {}),
	} {
		if _, _, _, _, err := plan.PlayAnswer("t-1", answer); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	step, payload, reason, _, err := plan.PlayAnswer("t-1", approve.Answer(nod{By: "olga"}))
	if err != nil || step != "approve" || string(payload) != `{"By":"olga"}` || reason != "" {
		t.Errorf("%s %s %q: %v", step, payload, reason, err)
	}
	if step, payload, reason, _, err = plan.PlayAnswer("t-1", approve.Refuse("too dear")); err != nil || step != "approve" || payload != nil || reason != "too dear" {
		t.Errorf("%s %s %q: %v", step, payload, reason, err)
	}
}

// A step's results are read by the types of the plan that it is in.
func TestMappedResult(t *testing.T) {
	mapped := With[testOrder](tripSearch, "input.flight")
	call := Call[testOrder]{Task: "t", results: []core.StepResult{{Step: "search", Result: []byte(`{"Row":12}`)}, {Step: "approve", Result: []byte(`{"By":"olga"}`)}, {Step: "air", Result: []byte(`{"Row":13}`)}}}
	if got, err := mapped.Result(call); err != nil || got.Row != 12 {
		t.Errorf("%+v: %v", got, err)
	}
	if got, err := NewSignal[testOrder, nod]("approve").Result(call); err != nil || got.By != "olga" {
		t.Errorf("%+v: %v", got, err)
	}
	if got, err := With[testOrder](NewChild("air", tripFlight), "input").Result(call); err != nil || got.Row != 13 {
		t.Errorf("%+v: %v", got, err)
	}
	if names := []string{mapped.Name(), NewWait[flight]("w", For(1)).Name(), NewEach[flight]("e", tripFlight, Elements("input", 1)).Name()}; !slices.Equal(names, []string{"search", "w", "e"}) {
		t.Errorf("names %v", names)
	}
}
