package versions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// What a change is about.
const (
	planField   = "plan_field"
	stepAdded   = "step_added"
	stepRemoved = "step_removed"
	stepMoved   = "step_moved"
	stepField   = "step_field"
)

// Change is one thing in which two plans differ.
type Change struct {
	What  string          `json:"what" enum:"plan_field,step_added,step_removed,step_moved,step_field"`
	Step  string          `json:"step,omitempty"`
	Field string          `json:"field,omitempty"`
	Was   json.RawMessage `json:"was,omitempty"` // absent: it was not said, and has no default
	Is    json.RawMessage `json:"is,omitempty"`
	Words string          `json:"words"`
	Means string          `json:"means"` // for a task in flight that is moved to the new version
}

// Diff is all in which two plans differ, in the order of the plan and its steps.
type Diff struct {
	Name    string   `json:"name"`
	From    int64    `json:"from"`
	To      int64    `json:"to"`
	Same    bool     `json:"same"` // but for the version
	Changes []Change `json:"changes"`
	Callers []Caller `json:"callers,omitempty"` // where the server is asked
}

// Compare lists in what two plans differ as they are understood: what one leaves out has its default. Versions and names are
// not compared. Errors wrap core.ErrPlan: one of them has no canonical form.
func Compare(from, to *core.Plan) (Diff, error) {
	d := Diff{Name: to.Name, From: from.Version, To: to.Version, Changes: []Change{}}
	a, err := fieldsOf(from)
	if err != nil {
		return d, err
	}
	b, err := fieldsOf(to)
	if err != nil {
		return d, err
	}
	for _, f := range differing(a.fields, b.fields) {
		d.Changes = append(d.Changes, f.change(planField, ""))
	}
	if was, is := from.Order(), to.Order(); was != is {
		d.Changes = append(d.Changes, Change{What: planField, Field: "order", Was: quoted(was), Is: quoted(is), Words: "the order is " + is + "; it was " + was,
			Means: "a task goes on in the new order; one in which a step has begun that comes after another now stays on its version"})
	}
	moved := movedSteps(a.names, b.names)
	for _, name := range b.names {
		was, there := a.steps[name]
		if !there {
			d.Changes = append(d.Changes, added(name, a, b))
			continue
		}
		if moved[name] {
			d.Changes = append(d.Changes, Change{What: stepMoved, Step: name, Was: number(slices.Index(a.names, name) + 1), Is: number(slices.Index(b.names, name) + 1),
				Words: fmt.Sprintf("step %s is number %d in the list, it was number %d", name, slices.Index(b.names, name)+1, slices.Index(a.names, name)+1),
				Means: "the order of the list alone starts nothing; a task in which a step has begun can be moved only if the step's number is the same"})
		}
		for _, f := range differing(was, b.steps[name]) {
			d.Changes = append(d.Changes, f.change(stepField, name))
		}
	}
	for _, name := range a.names {
		if _, there := b.steps[name]; !there {
			d.Changes = append(d.Changes, Change{What: stepRemoved, Step: name, Words: "step " + name + " is gone",
				Means: "a task in which it has begun stays on its version; others go on without it"})
		}
	}
	d.Same = len(d.Changes) == 0
	return d, nil
}

// form is a plan as its canonical JSON.
type form struct {
	fields map[string]json.RawMessage // of the plan alone
	names  []string                   // of the steps
	steps  map[string]map[string]json.RawMessage
}

func fieldsOf(p *core.Plan) (form, error) {
	f := form{steps: map[string]map[string]json.RawMessage{}}
	data, err := planform.Canonical(p)
	if err != nil {
		return f, fmt.Errorf("plan %s version %d: %w", p.Name, p.Version, err)
	}
	if err := json.Unmarshal(data, &f.fields); err != nil {
		return f, fmt.Errorf("plan %s version %d: %w", p.Name, p.Version, err)
	}
	var steps []map[string]json.RawMessage
	if err := json.Unmarshal(f.fields["steps"], &steps); err != nil {
		return f, fmt.Errorf("plan %s version %d: steps: %w", p.Name, p.Version, err)
	}
	for _, field := range []string{"steps", "v", "name", "version"} {
		delete(f.fields, field)
	}
	for i, s := range steps {
		delete(s, "name")
		f.names = append(f.names, p.Steps[i].Name)
		f.steps[p.Steps[i].Name] = s
	}
	return f, nil
}

// difference is one field of two objects.
type difference struct {
	field   string
	was, is json.RawMessage
}

func differing(a, b map[string]json.RawMessage) (all []difference) {
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(a[name], b[name]) {
			all = append(all, difference{name, a[name], b[name]})
		}
	}
	return all
}

func (f *difference) change(what, step string) Change {
	c := Change{What: what, Step: step, Field: f.field, Was: f.was, Is: f.is, Means: meaning(what, f.field)}
	of := ""
	if step != "" {
		of = "step " + step + ": "
	}
	c.Words = fmt.Sprintf("%s%s is %s, it was %s", of, f.field, shown(f.field, f.is), shown(f.field, f.was))
	return c
}

// shown is a value in words.
func shown(field string, v json.RawMessage) string {
	if len(v) == 0 {
		return "not said"
	}
	var ms int64
	if strings.HasSuffix(field, "_ms") && json.Unmarshal(v, &ms) == nil {
		return (time.Duration(ms) * time.Millisecond).String()
	}
	return core.ShortText(string(v), 200)
}

func quoted(text string) json.RawMessage {
	data, _ := json.Marshal(text) // which never fails
	return data
}

func number(n int) json.RawMessage { return json.RawMessage(fmt.Sprint(n)) }

// added tells of a new step, and whether it looks like one that is gone.
func added(name string, a, b form) Change {
	c := Change{What: stepAdded, Step: name, Words: "step " + name + " is new",
		Means: "a task does it too, unless a step that comes after it has begun: then the task stays on its version"}
	for _, gone := range a.names {
		if _, there := b.steps[gone]; !there && bytes.Equal(a.steps[gone]["agent"], b.steps[name]["agent"]) && len(b.steps[name]["agent"]) > 0 {
			c.Words += "; step " + gone + ", which is gone, had the same agent: a step is known by its name, so this is another one"
		}
	}
	return c
}

// fixed are the fields that a step which has begun keeps: see core.Movable.
var fixed = map[string]bool{"agent": true, "kind": true, "undoable": true, "after": true, "child": true}

// meaning says what another value means for a task that is moved.
func meaning(what, field string) string {
	switch {
	case what == stepField && fixed[field]:
		return "a task in which the step has begun stays on its version"
	case what == planField && field == "complete_by_ms":
		return "a task keeps the deadline that it has; one that is resubmitted gets the new time"
	case what == planField && (field == "input_max" || field == "input_schema"):
		return "a task whose input does not fit stays on its version"
	case field == "result_max":
		return "a task whose step has answered more stays on its version"
	case what == planField:
		return "it counts for what a task does from then on"
	case field == "when" || field == "with" || field == "until" || field == "elements" || field == "for_ms":
		return "what was answered for a step that has begun stays"
	}
	return "it counts from the step's next try on"
}

// movedSteps are the names in both lists that are not in the longest run which both have in the same order.
func movedSteps(a, b []string) map[string]bool {
	var at []int // in a, of the steps of b that a has
	var names []string
	for _, name := range b {
		if i := slices.Index(a, name); i >= 0 {
			at, names = append(at, i), append(names, name)
		}
	}
	longest, before := make([]int, len(at)), make([]int, len(at))
	best := -1
	for i := range at {
		longest[i], before[i] = 1, -1
		for k := range i {
			if at[k] < at[i] && longest[k]+1 > longest[i] {
				longest[i], before[i] = longest[k]+1, k
			}
		}
		if best < 0 || longest[i] > longest[best] {
			best = i
		}
	}
	moved := map[string]bool{}
	for _, name := range names {
		moved[name] = true
	}
	for ; best >= 0; best = before[best] {
		delete(moved, names[best])
	}
	return moved
}
