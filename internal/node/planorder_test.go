package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planfile"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/wire"
)

// drawnStep is a step that says nothing of its order (nil), or what it comes after, by number.
type drawnStep struct{ after *[]int }

func drawSteps(draw *rand.Rand) []drawnStep {
	steps := make([]drawnStep, 1+draw.IntN(6))
	for i := range steps {
		if draw.IntN(2) == 0 {
			continue
		}
		after := []int{}
		for before := range i {
			if draw.IntN(3) == 0 {
				after = append(after, before)
			}
		}
		steps[i].after = &after
	}
	return steps
}

func stepName(i int) string { return fmt.Sprint("s", i) }

// spoken are the steps as JSON and as YAML.
func spoken(steps []drawnStep) (asJSON, asYAML string) {
	var j, y []string
	for i, s := range steps {
		said, told := "", ""
		if s.after != nil {
			names := []string{}
			for _, a := range *s.after {
				names = append(names, stepName(a))
			}
			data, _ := json.Marshal(names)
			said, told = `,"after":`+string(data), "\n    after: ["+strings.Join(names, ", ")+"]"
		}
		j = append(j, fmt.Sprintf(`{"name":%q,"agent":"a"%s}`, stepName(i), said))
		y = append(y, fmt.Sprintf("  - name: %s\n    agent: a%s\n", stepName(i), told))
	}
	return `{"name":"order","version":1,"steps":[` + strings.Join(j, ",") + `]}`, "name: order\nversion: 1\nsteps:\n" + strings.Join(y, "")
}

// inGo is the plan as a program builds it.
func inGo(t *testing.T, steps []drawnStep) core.Plan {
	t.Helper()
	var named []*duly.Step[int, int]
	var all []duly.StepOf[int]
	for i, s := range steps {
		var options []duly.StepOption
		if s.after != nil {
			var after []duly.Named
			for _, a := range *s.after {
				after = append(after, named[a])
			}
			options = append(options, duly.After(after...))
		}
		step := duly.NewStep[int, int](stepName(i), "a", options...)
		named, all = append(named, step), append(all, step)
	}
	p, err := duly.NewPlan("order", 1, all...).Spec()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The same words mean the same order at every door: a step that says nothing comes after the one before it, and [] begins at
// once, in a file, over NATS and HTTP, and in Go. What a plan is stored as, and is written as again, says it.
//
// covers: W1
func TestOneOrderAtEveryDoor(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	canonical := func(p *core.Plan, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		data, err := planform.Canonical(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for range 500 {
		steps := drawSteps(draw)
		asJSON, asYAML := spoken(steps)
		built := inGo(t, steps)
		want := canonical(&built, nil)
		doors := map[string]string{}
		for name, data := range map[string]string{"plan.json": asJSON, "plan.yaml": asYAML} {
			p, err := planfile.Read(name, []byte(data), 1<<20)
			doors[name] = canonical(&p, err)
		}
		p, err := wire.DecodePlan([]byte(asJSON))
		doors["NATS"] = canonical(&p, err)
		p, err = wire.DecodePlan([]byte(want))
		doors["stored"] = canonical(&p, err)
		text, err := planfile.Write(&built)
		if err != nil {
			t.Fatal(err)
		}
		p, err = planfile.Read("written.yaml", text, 1<<20)
		doors["written as a file"] = canonical(&p, err)
		for door, got := range doors {
			if got != want {
				t.Fatalf("%s\n%s: %s\nin Go: %s", asYAML, door, got, want)
			}
		}
		if bytes.Count([]byte(want), []byte(`"after":`)) != len(steps) {
			t.Fatalf("a step of %s does not say what it comes after", want)
		}
	}
}
