package versions

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

func order(version int64, change func(*core.Plan)) core.Plan {
	p := core.Plan{Name: "order", Version: version, Steps: []core.Step{
		{Name: "check", Agent: "credit.check"},
		{Name: "charge", Agent: "payment", After: []int{0}, Undoable: true},
		{Name: "ship", Agent: "ship", After: []int{1}, Undoable: true},
	}}
	if change != nil {
		change(&p)
	}
	return p.WithDefaults()
}

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*core.Plan)
		words  []string
	}{
		"the same":      {nil, nil},
		"defaults said": {func(p *core.Plan) { *p = p.WithDefaults() }, nil},
		"fields": {func(p *core.Plan) {
			p.CompleteBy, p.Steps[1].Agent, p.Steps[1].AttemptsMax = 2*time.Minute, "card", 5
		}, []string{
			"complete_by_ms is 2m0s, it was 1m0s",
			`step charge: agent is "card", it was "payment"`,
			"step charge: attempts_max is 5, it was 3",
		}},
		"a step in between": {func(p *core.Plan) {
			p.Steps = slices.Insert(p.Steps, 2, core.Step{Name: "pack", Agent: "pack", After: []int{1}, Undoable: true})
			p.Steps[3].After = []int{2}
		}, []string{"step pack is new", `step ship: after is ["pack"], it was ["charge"]`, "the order is check, then charge, then pack, then ship; it was check, then charge, then ship"}},
		"renamed": {func(p *core.Plan) { p.Steps[2].Name = "send" }, []string{
			"step send is new; step ship, which is gone, had the same agent: a step is known by its name, so this is another one", "step ship is gone",
			"the order is check, then charge, then send; it was check, then charge, then ship"}},
		"moved": {func(p *core.Plan) {
			p.Steps = []core.Step{{Name: "charge", Agent: "payment", Undoable: true}, {Name: "check", Agent: "credit.check"}, {Name: "ship", Agent: "ship", After: []int{0}, Undoable: true}}
		}, []string{"step check is number 2 in the list, it was number 1", `step charge: after is [], it was ["check"]`,
			"the order is charge and check side by side; ship after charge; it was check, then charge, then ship"}},
	} {
		from, to := order(3, nil), order(4, c.change)
		d, err := Compare(&from, &to)
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, change := range d.Changes {
			words = append(words, change.Words)
			if change.Means == "" {
				t.Errorf("%s: %s means nothing", name, change.Words)
			}
		}
		slices.Sort(words)
		slices.Sort(c.words)
		if !slices.Equal(words, c.words) || d.Same != (len(c.words) == 0) || d.From != 3 || d.To != 4 {
			t.Errorf("%s: %q, want %q", name, words, c.words)
		}
		if data, err := json.Marshal(&d); err != nil || !json.Valid(data) {
			t.Errorf("%s: %v", name, err)
		}
	}
	odd := order(1, func(p *core.Plan) { p.CompleteBy = time.Nanosecond })
	if _, err := Compare(&odd, &odd); err == nil {
		t.Error("a plan without a form is compared")
	}
}
