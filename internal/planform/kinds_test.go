package planform

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// kinds is a plan of every kind of step with every field that came with them.
func kinds() core.Plan {
	return core.Plan{
		Name: "trip", Version: 2, CompleteBy: time.Hour, Result: "results.book", InputSchema: `{"type":"object"}`, UndoReserve: time.Minute, Admission: core.AdmissionRefuse, QueueFor: 10 * time.Minute,
		Steps: []core.Step{
			{Name: "price", Agent: "price", When: "has(input.days)", Input: "input.days", Least: time.Second, KeyLasts: 72 * time.Hour, Probe: true, OnExhausted: core.PolicySkip,
				CompleteBy: 5 * time.Second, UndoCompleteBy: 6 * time.Second, AttemptsMax: 4, UndoAttemptsMax: 5, Backoff: time.Second, BackoffCap: 9 * time.Second,
				Pause: time.Minute, ResultMax: 1000, UndoPatience: time.Hour, UndoBackoffCap: time.Minute},
			{Name: "cool", Kind: core.WaitStep, For: 30 * time.Second},
			{Name: "until", Kind: core.WaitStep, Until: "timestamp(input.at)"},
			{Name: "approve", Kind: core.SignalStep, After: []int{0, 1}, Schema: `{"type":"boolean"}`, Ask: core.AskRequired, CompleteBy: time.Minute},
			{Name: "book", Kind: core.TaskStep, Child: "booking", After: []int{3}, Input: "results.price", Undoable: true},
			{Name: "pay", Kind: core.EachStep, Child: "payment", After: []int{3}, Elements: "input.payees", ElementsMax: 50, Parallel: 5, FailuresMax: 1, Undoable: true},
			{Name: "tell", Agent: "tell", After: []int{4, 5}, Uses: []int{4, 0}, Narrow: true, Undoable: true},
			{Name: "log", Agent: "log", After: []int{6}, Narrow: true},
		},
	}
}

// TestKindsRoundTrip: a plan of every kind of step comes back from its JSON as it was, and its canonical bytes are
// those of what was read back.
func TestKindsRoundTrip(t *testing.T) {
	p := kinds()
	data, err := Encode(&p)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if !reflect.DeepEqual(back, p) {
		t.Errorf("read back as\n%+v, want\n%+v", back, p)
	}
	a, err := Canonical(&p)
	if err != nil {
		t.Fatal(err)
	}
	normal, err := Decode(a)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Canonical(&normal)
	if err != nil || string(a) != string(b) {
		t.Errorf("%v: canonical\n%s, and of what was read\n%s", err, a, b)
	}
	if !reflect.DeepEqual(Normal(&p), Normal(&normal)) {
		t.Errorf("%+v, want\n%+v", Normal(&normal), Normal(&p))
	}
	before := p // queue_for came later: without it a plan is what it was
	before.QueueFor = 0
	if b, err = Canonical(&before); err != nil {
		t.Fatal(err)
	}
	for want, canonical := range map[string][]byte{"850ce14": a, "e8d3af0": b} {
		if got := Hash(canonical); !strings.HasPrefix(got, want) {
			t.Errorf("hash %.7s, want %s\n%s", got, want, canonical)
		}
	}
	for f := range reflect.TypeFor[core.Step]().Fields() {
		if !slices.ContainsFunc(p.Steps, func(s core.Step) bool { return !reflect.ValueOf(s).FieldByIndex(f.Index).IsZero() }) {
			t.Errorf("field %s is not in the plan of this test", f.Name)
		}
	}
}

// What means the same is the same plan: kind call, admission off, the order of uses and of a schema's members, its numbers.
func TestKindsCanonical(t *testing.T) {
	read := func(text string) string {
		t.Helper()
		p, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		form, err := Canonical(&p)
		if err != nil {
			t.Fatal(err)
		}
		return string(form)
	}
	a := read(`{"name":"p","version":1,"input_schema":{"type":"string","pattern":"<b>","maximum":1.50},"steps":[{"name":"a","agent":"x"},{"name":"b","agent":"x","after":["a"]},{"name":"c","agent":"x","after":["b"],"uses":["a","b"]},
		{"name":"d","kind":"each","child":"q","elements":"input","failures_max":0}]}`)
	b := read(`{"name":"p","version":1,"admission":"queue","input_schema":{ "maximum":15e-1, "pattern":"\u003cb>", "type":"string"},"steps":[{"name":"a","kind":"call","agent":"x"},{"name":"b","agent":"x"},{"name":"c","agent":"x","after":["b"],"uses":["b","a","b"]},
		{"name":"d","kind":"each","child":"q","elements":"input","undoable":true}]}`)
	if a != b {
		t.Errorf("%s\n%s", a, b)
	}
	if a == read(`{"name":"p","version":1,"steps":[{"name":"a","agent":"x"},{"name":"b","agent":"x","after":["a"]},{"name":"c","agent":"x","after":["b"],"uses":[]}]}`) {
		t.Error("uses that names none is the same as uses that is absent")
	}
}

// What is no plan is refused, and the text names the step and the field.
func TestKindsRefused(t *testing.T) {
	for _, c := range []struct{ plan, want string }{
		{`"steps":[{"name":"a","agent":"x","whenn":"true"}]`, `plan cannot work: step a: a step has no "whenn": is when meant?`},
		{`"steps":[{"name":"a","agent":"x"},{"agent":"x","attempts":3}]`, `plan cannot work: step number 2: a step has no "attempts": is attempts_max meant?`},
		{`"steps":[{"name":"a","agent":"x","undo":"y"}]`, `step a: a step has no "undo": its agent is told to undo, on a subject of its own (undo.<agent>)`},
		{`"steps":[{"name":"a","agent":"x","complete_by":"30s"}]`, `step a: a step has no "complete_by" in JSON that a door takes: is complete_by_ms meant, in milliseconds?`},
		{`"grace":"1s","steps":[]`, `plan cannot work: a plan has no "grace" in JSON`},
		{`"colour":{"red":1},"steps":7`, `plan cannot work: a plan has no "colour"`},
		{`"steps":[{"name":"a","kind":"task","child":"q","undoable":false}]`, `plan p: step a: undoable is false, but a step of kind task is undone as its child is`},
		{`"steps":[{"name":"a","agent":"x","uses":["b"]},{"name":"b","agent":"x"}]`, `plan p: step a: uses names "b", which stands behind it: put the steps in an order in which each stands behind those that it names`},
		{`"steps":[{"name":"a","agent":"x","uses":["z"]}]`, `plan p: step a: uses names "z", which is no step, and there is no other`},
		{`"steps":[{"name":"a","kind":"signal","schema":7}]`, `step a: schema is 7, want a JSON Schema: an object, true or false`},
		{`"steps":[{"name":"a","kind":"each","child":"q","elements":"input","elements_max":0}]`, `elements_max is 0, want 1 or more`},
		{`"input_schema":{"maximum":1e999},"steps":[{"name":"a","agent":"x"}]`, `input_schema: number 1e999 is out of range`},
		{`"input_schema":{"not":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `},"steps":[{"name":"a","agent":"x"}]`, `input_schema nests 201 deep, the limit is 200`},
		{`"input_schema":"text","steps":[{"name":"a","agent":"x"}]`, `input_schema is "text", want a JSON Schema`},
		{`"steps":[{"name":"a","kind":"wait","for_ms":"30s"}]`, `plan cannot work: steps.for_ms: want a whole number, got string, in byte 73`},
		{`"steps":[{"name":"pay","agent":"x","after":["ship"]},{"name":"pack","agent":"x","after":["pay"]},{"name":"ship","agent":"x","after":["pack"]}]`, `step pay: the steps come after each other in a circle: pay after ship after pack after pay`},
		{`"steps":[{"name":"a","agent":"x","after":["a"]}]`, `step a: after names the step itself`},
		{`"steps":[}]`, `plan cannot work: it is no JSON: invalid character '}' looking for beginning of value, in byte 34`},
	} {
		_, err := Decode([]byte(`{"name":"p","version":1,` + c.plan + `}`))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %s, got: %v", c.want, err)
		}
	}
	_, err := Decode([]byte(`{"name":"p","version":1,"grace_ms":0,"steps":[{"name":"a","agent":"x","after":["b","c"]},{"name":"b","agent":"x","uses":["q"],"backoff_ms":0}]}`))
	if all, ok := errors.AsType[core.PlanErrors](err); !ok || len(all) != 5 || all[4].Field != "uses" || all[4].Step != 1 {
		t.Errorf("all that is wrong: %v", err)
	}
	p := kinds()
	p.InputSchema = "{"
	if _, err := Canonical(&p); err == nil || !strings.Contains(err.Error(), "input_schema is no JSON") {
		t.Errorf("a broken schema: %v", err)
	}
	p = kinds()
	p.Steps[6].Uses = []int{99}
	if _, err := Encode(&p); err == nil || !strings.Contains(err.Error(), "step tell uses step number 100 of 8") {
		t.Errorf("uses of no step: %v", err)
	}
}
