package plancheck

import (
	"errors"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// A key that its service forgets while the task may still try is told, unless the agent can be asked.
func TestDoubts(t *testing.T) {
	p := core.Plan{Name: "order", Version: 1, CompleteBy: 48 * time.Hour, Steps: []core.Step{
		{Name: "pay", Agent: "x"}, {Name: "ship", Agent: "x", Probe: true}, {Name: "mail", Agent: "x", KeyLasts: 48 * time.Hour}, {Name: "ok", Kind: core.SignalStep},
	}}
	p = p.WithDefaults()
	want := []string{"step pay: key_lasts is 24h0m0s, less than the plan's complete_by of 48h0m0s: it is not tried again later than that; say how long its service remembers keys, or probe: true"}
	if doubts := Doubts(&p); !slices.Equal(doubts, want) {
		t.Errorf("%q", doubts)
	}
}

// One look tells what is wrong with limits, schemas and expressions, each in a line of its own.
func TestCheckTellsAll(t *testing.T) {
	p := core.Plan{Name: "order", Version: 1, InputSchema: `{"type":"objekt"}`, Steps: []core.Step{
		{Name: "pay", Agent: "x", When: "inptu.ok", AttemptsMax: -1},
		{Name: "ok", Kind: core.SignalStep, Schema: `{"$ref":"#/$defs/yes"}`},
	}}
	p = p.WithDefaults()
	const want = `plan cannot work: plan order: step pay: attempts_max is -1, want 1 to 1000
plan cannot work: plan order: input_schema: schema refused: at "/type": value must be one of 'array', 'boolean', 'integer', 'null', 'number', 'object', 'string'
plan cannot work: plan order: step ok: schema: schema refused: it refers to "#/$defs/yes", which it does not have
plan cannot work: plan order: step pay: when, line 1, column 1: there is no "inptu": is input meant?
 | inptu.ok
 | ^`
	if err := Check(&p, 0); err == nil || err.Error() != want || !errors.Is(err, core.ErrPlan) {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	p.Steps = make([]core.Step, core.StepsMax+1)
	if err := Check(&p, 0); err == nil || err.Error() != "plan cannot work: plan order: 1001 steps, want 1 to 1000" {
		t.Errorf("too many steps: %v", err)
	}
	good := core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "pay", Agent: "x"}}}
	if good = good.WithDefaults(); Check(&good, 1<<20) != nil {
		t.Error("a good plan is refused")
	}
}
