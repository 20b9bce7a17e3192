package planform

import (
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

func order() core.Plan {
	return core.Plan{Name: "order", Version: 1, Steps: []core.Step{
		{Name: "check", Agent: "credit.check"},
		{Name: "charge", Agent: "payment", After: []int{0}, Undoable: true},
		{Name: "ship", Agent: "ship", After: []int{0, 1}, Undoable: true},
	}}
}

// Plans of the same meaning have the same canonical bytes; of two others, the first
// difference is told by its place and both values.
func TestCanonical(t *testing.T) {
	p := order()
	canonical, err := Canonical(&p)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*core.Plan){
		"defaults said":         func(p *core.Plan) { *p = p.WithDefaults() },
		"order of after, twice": func(p *core.Plan) { p.Steps[2].After = []int{1, 0, 1} },
		"an empty after":        func(p *core.Plan) { p.Steps[0].After = []int{} },
	} {
		same := order()
		change(&same)
		if got, err := Canonical(&same); err != nil || string(got) != string(canonical) || Hash(got) != Hash(canonical) || Difference(canonical, got) != "" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for want, change := range map[string]func(*core.Plan){
		`complete_by_ms is 60000, not 61000`:      func(p *core.Plan) { p.CompleteBy = 61 * time.Second },
		`steps[1].agent is "payment", not "card"`: func(p *core.Plan) { p.Steps[1].Agent = "card" },
		`steps[1].undoable is true, not false`:    func(p *core.Plan) { p.Steps[1].Undoable = false },
		`steps[1].after has 0 elements, not 1`:    func(p *core.Plan) { p.Steps[1].After = []int{0} },
		`steps has 3 elements, not 2`:             func(p *core.Plan) { p.Steps = p.Steps[:2] },
		`steps[2].after has 2 elements, not 1`:    func(p *core.Plan) { p.Steps[2].After = []int{0} },
	} {
		have := order()
		if strings.Contains(want, "0 elements") {
			have.Steps[1].After = nil
		}
		other := order()
		change(&other)
		a, err := Canonical(&have)
		b, err2 := Canonical(&other)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if got := Difference(a, b); got != want || Hash(a) == Hash(b) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if p.Grace != 0 || p.Steps[0].Backoff != 0 {
		t.Error("the plan itself was changed")
	}
	p.CompleteBy = time.Nanosecond
	if _, err := Canonical(&p); err == nil || !strings.Contains(err.Error(), "whole milliseconds") {
		t.Errorf("a nanosecond: %v", err)
	}
}

// TestWhatAFileRefuses: what is refused in a file, because it can be read two ways, is refused over NATS and HTTP as well: a
// name twice or in another case, null, and empty text.
//
// covers: W1, W14, W15
func TestWhatAFileRefuses(t *testing.T) {
	const plan = `{"name":"order","version":1,"input_schema":{"maximum":1},"steps":[{"name":"approve","kind":"signal"},{"name":"pay","agent":"bank.pay","undoable":false}]}`
	if _, err := Decode([]byte(plan)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ old, new, want string }{
		{`"undoable":false`, `"undoable":false,"undoable":true`, `the name "undoable" twice`},
		{`"maximum":1`, `"maximum":1,"maximum":100000000`, `the name "maximum" twice`},
		{`]}`, `],"steps":[{"name":"pay","agent":"bank.pay"}]}`, `the name "steps" twice`},
		{`"undoable":false`, `"Undoable":false`, "steps[1].Undoable is written undoable"},
		{`"undoable":false`, `"After":[]`, "steps[1].After is written after"},
		{`"name":"order"`, `"NAME":"order"`, "NAME is written name"},
		{`"undoable":false`, `"after":null`, "steps[1].after is null"},
		{`"undoable":false`, `"undoable": null`, "steps[1].undoable is null"},
		{`"undoable":false`, `"key_lasts_ms":null`, "steps[1].key_lasts_ms is null"},
		{`"undoable":false`, `"when":""`, "steps[1].when is empty"},
		{`"undoable":false`, `"on_exhausted":""`, "steps[1].on_exhausted is empty"},
		{`"kind":"signal"`, `"kind":"signal","ask":""`, "steps[0].ask is empty"},
		{`"kind":"signal"`, `"kind":"signal","ask":null`, "steps[0].ask is null"},
		{`"kind":"signal"`, `"kind":"signal","schema":null`, "schema is null, want a JSON Schema"},
		{`{"maximum":1}`, `null`, "input_schema is null, want a JSON Schema"},
		{`"version":1`, `"version":1,"complete_by_ms":null`, "complete_by_ms is null"},
	} {
		_, err := Decode([]byte(strings.Replace(plan, x.old, x.new, 1)))
		if !errors.Is(err, core.ErrPlan) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.new, err, x.want)
		}
	}
}
