package expr

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"duly.dev/duly/internal/core"
)

// TestGuide: the examples of the guide give what it says that they give.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	if len(blocks) < 6 {
		t.Fatalf("%d examples", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		var x struct {
			When, With, Until, Elements string
			Input, Gives                any
			Results                     map[string]any
			Fails                       string
		}
		if err := yaml.Unmarshal([]byte(block), &x); err != nil {
			t.Fatalf("%v\n%s", err, block)
		}
		input, err := json.Marshal(x.Input)
		if err != nil {
			t.Fatal(err)
		}
		step := core.Step{Name: "s", After: []int{0}, When: x.When, Input: x.With, Until: x.Until, Elements: x.Elements, Agent: "a"}
		switch {
		case x.Until != "":
			step.Kind, step.Agent = core.WaitStep, ""
		case x.Elements != "":
			step.Kind, step.Agent, step.Child = core.EachStep, "", "child"
		}
		plan := core.Plan{Name: "p", Version: 1, Steps: []core.Step{{Name: "risk", Agent: "r"}, step}}.WithDefaults()
		p := compile(t, &plan)
		task := &core.Task{Input: input, Steps: make([]core.StepState, 2)}
		task.Steps[0].Status = core.StepSkipped
		if risk, ok := x.Results["risk"]; ok {
			result, err := json.Marshal(risk)
			if err != nil {
				t.Fatal(err)
			}
			task.Steps[0].Status, task.Steps[0].Result = core.StepDone, result
		}
		got, err := answer(p, task, &step)
		if x.Fails != "" {
			if err == nil || err.Error() != x.Fails {
				t.Errorf("%s\nfails with %v", block, err)
			}
			continue
		}
		a, err2 := json.Marshal(x.Gives)
		var value any
		if err == nil {
			err = json.Unmarshal(got, &value)
		}
		b, err3 := json.Marshal(value)
		if err != nil || err2 != nil || err3 != nil || string(a) != string(b) {
			t.Errorf("%s\ngives %s: %v %v %v", block, got, err, err2, err3)
		}
	}
}

// answer is what the step's expression gives, as JSON.
func answer(p *Program, task *core.Task, step *core.Step) ([]byte, error) {
	switch {
	case step.When != "":
		yes, err := p.When(task, 1)
		if err != nil {
			return nil, err
		}
		return json.Marshal(yes)
	case step.Until != "":
		at, err := p.Until(task, 1)
		if err != nil {
			return nil, err
		}
		return json.Marshal(at.Time())
	case step.Elements != "":
		list, _, err := p.Elements(task, 1)
		return list, err
	}
	return p.Input(task, 1)
}
