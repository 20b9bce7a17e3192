package dulytest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
)

// costly is a condition that costs more than one evaluation may.
const costly = `input.list.all(a, input.list.all(b, input.list.all(c, a == b || c >= 0)))`

// An expression that fails when it is evaluated fails its step, with its text and under the step's policy; what was done
// before is undone, or kept, as the policy says.
func TestExpressionsFailUnderTheirPolicy(t *testing.T) {
	list := make([]int, 200)
	input, err := json.Marshal(map[string]any{"list": list, "text": "many", "number": 5})
	if err != nil {
		t.Fatal(err)
	}
	const (
		tooCostly = ": it costs more than 1000000, the limit of one evaluation"
		noKey     = `: at column 6 of input.nope: there is no "nope"; has() tells whether there is one`
	)
	steps := []struct {
		step core.Step
		want string // what the journal says of it
	}{
		{core.Step{Agent: "b", When: "input.nope"}, "when" + noKey},
		{core.Step{Agent: "b", When: costly}, "when: in " + costly + tooCostly},
		{core.Step{Agent: "b", When: "input.text"}, "when: it gives a string, want true or false"},
		{core.Step{Agent: "b", Undoable: true, Input: "input.nope"}, "with" + noKey},
		{core.Step{Agent: "b", Input: costly}, "with: in " + costly + tooCostly},
		{core.Step{Agent: "b", Input: "'a' + input.number"}, "with: at column 5 of 'a' + input.number: values of such types have no such operation; int(), double() and string() convert"},
		{core.Step{Kind: core.WaitStep, Until: "input.nope"}, "until" + noKey},
		{core.Step{Kind: core.WaitStep, Until: costly + " ? timestamp(0) : timestamp(1)"}, "until" + tooCostly},
		{core.Step{Kind: core.WaitStep, Until: "input.number"}, `until: it gives an int, want a timestamp, as timestamp("2027-01-31T09:00:00Z") is`},
		{core.Step{Kind: core.SignalStep, When: "input.nope"}, "when" + noKey},
		{core.Step{Kind: core.TaskStep, Child: "part", Input: "input.nope"}, "with" + noKey},
		{core.Step{Kind: core.EachStep, Child: "part", Elements: "input.nope", ElementsMax: 9}, "elements" + noKey},
		{core.Step{Kind: core.EachStep, Child: "part", Elements: costly + " ? [1] : []", ElementsMax: 9}, "elements" + tooCostly},
		{core.Step{Kind: core.EachStep, Child: "part", Elements: "input.text", ElementsMax: 9}, "elements: it gives a string, want a list"},
		{core.Step{Kind: core.EachStep, Child: "part", Elements: "input.list", ElementsMax: 9}, "elements: it gives 200 elements, elements_max is 9"},
	}
	for _, c := range steps {
		for _, policy := range []core.Policy{core.PolicyUndo, core.PolicyError, core.PolicySkip, core.PolicyWait} {
			t.Run(fmt.Sprintf("%s %s", strings.Split(c.want, ":")[0], policy), func(t *testing.T) {
				bad := c.step
				bad.Name, bad.After, bad.OnExhausted = "bad", []int{0}, policy
				plan := core.Plan{Name: "order", Version: 1, CompleteBy: 10 * time.Hour, Steps: []core.Step{
					{Name: "before", Agent: "a", Undoable: true, CompleteBy: time.Minute}, bad, {Name: "last", Agent: "a", After: []int{1}, CompleteBy: time.Minute},
				}}
				part := core.Plan{Name: "part", Version: 1, Steps: []core.Step{{Name: "only", Agent: "a"}}}
				e, task := failing(t, &plan, &part, input)
				e.Advance(time.Minute)
				row := failureOf(task, 1)
				if want := "step bad: " + c.want; row == nil || row.Error != want || row.Code != core.CodeRefused {
					t.Fatalf("the journal says %+v\nwant %s", row, want)
				}
				// A pause would change nothing: what it sees stays the same, as after a refusal by an agent.
				state := map[core.Policy]core.State{core.PolicyUndo: core.StateUndone, core.PolicyError: core.StateError, core.PolicySkip: core.StateProcessed, core.PolicyWait: core.StateUndone}[policy]
				undone := map[core.Policy][]string{core.PolicyUndo: {"before"}, core.PolicyWait: {"before"}}[policy]
				if task.task.State != state || !slices.Equal(task.Undone(), undone) {
					t.Errorf("%s, undone %v; want %s, undone %v: %v", task.task.State, task.Undone(), state, undone, task.Trail())
				}
				if policy != core.PolicySkip && !strings.Contains(task.task.Why, row.Error) {
					t.Errorf("the reason is %q, want %q in it", task.task.Why, row.Error)
				}
			})
		}
	}
}

// The input of an element that cannot be made fails its child, and the each where no more may fail; a result that cannot
// be made stops its task in error, with all that was done.
func TestElementsAndResultsFail(t *testing.T) {
	part := core.Plan{Name: "part", Version: 1, Steps: []core.Step{{Name: "only", Agent: "a"}}}
	each := core.Plan{Name: "order", Version: 1, Steps: []core.Step{
		{Name: "before", Agent: "a", Undoable: true},
		{Name: "bad", Kind: core.EachStep, Child: "part", Elements: "input.list", Input: "element.nope", ElementsMax: 9, After: []int{0}},
	}}
	e, task := failing(t, &each, &part, []byte(`{"list":[{"nope":1},{}]}`))
	e.Run()
	const want = `step bad: with: at column 8 of element.nope: there is no "nope"; has() tells whether there is one (element 1)`
	if row := failureOf(task, 1); row == nil || !strings.Contains(row.Error, want) || task.task.State != core.StateUndone || !slices.Contains(task.Undone(), "before") {
		t.Errorf("%s, undone %v, %+v\nwant %s", task.task.State, task.Undone(), row, want)
	}
	for result, want := range map[string]string{
		"input.nope":  `result: at column 6 of input.nope: there is no "nope"; has() tells whether there is one`,
		costly:        "result: in " + costly + ": it costs more than 1000000, the limit of one evaluation",
		"'a' + input": "result: at column 5 of 'a' + input: values of such types have no such operation; int(), double() and string() convert",
	} {
		whole := core.Plan{Name: "order", Version: 1, Result: result, Steps: []core.Step{{Name: "before", Agent: "a", Undoable: true}}}
		e, task := failing(t, &whole, &part, []byte(`{"list":[`+strings.Repeat("1,", 199)+`1]}`))
		e.Run()
		if task.task.State != core.StateError || !strings.Contains(task.task.Why, want) || len(task.Undone()) != 0 {
			t.Errorf("%s: %s, undone %v, %q\nwant %s", result, task.task.State, task.Undone(), task.task.Why, want)
		}
	}
}

// failing is an engine with a task of a plan whose agents answer.
func failing(t *testing.T, plan, part *core.Plan, input []byte) (*Engine, *Task) {
	t.Helper()
	e := NewEngine(t)
	for _, p := range []*core.Plan{part, plan} {
		if *p = p.WithDefaults(); p.Validate(1<<20) != nil {
			t.Fatal(p.Validate(1 << 20))
		}
		if _, err := e.apply(specOf{p}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []string{"before", "last", "only"} {
		e.On(duly.NewCheck[int, int](step, "a")).Answer(1)
	}
	task := e.newest(plan.Name).task(e)
	task.task = core.Task{ID: "t-1", Type: plan.Name, Number: 1, Input: input, InputHash: core.HashInput(plan.Name, input), CreatedAt: e.now}
	e.bear(task)
	return e, task
}

// failureOf is the first row that a step failed by; nil: it did not.
func failureOf(t *Task, step int) *core.Record {
	for i := range t.journal {
		if r := &t.journal[i]; r.Step == step && r.Kind == core.KindRefused {
			return r
		}
	}
	return nil
}

// specOf is a plan that is one already.
type specOf struct{ plan *core.Plan }

func (s specOf) Spec() (core.Plan, error) { return *s.plan, nil }
