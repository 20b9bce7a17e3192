package planform

import (
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
