package planfile

import (
	"fmt"
	"reflect"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// readSteps reads the steps, which may stand in any order, and sorts them so that each stands behind those that it comes
// after; otherwise they keep the order of the file. One that does not say what it comes after comes after the one that is
// written before it.
func (r *reader) readSteps(form *planform.Plan) {
	steps := r.root.member("steps")
	if steps == nil {
		return
	}
	if steps.value.kind != list {
		r.wrong(steps.value.at, "steps: want a list, got %s", kindNames[steps.value.kind])
		r.root.tell("steps")
		return
	}
	if n := len(steps.value.items); n < 1 || n > core.StepsMax {
		r.wrong(steps.value.at, "%d steps, want 1 to %d", n, core.StepsMax)
		r.root.tell("steps")
		return
	}
	read := make([]planform.Step, 0, len(steps.value.items))
	byName := map[string]int{}
	for _, n := range steps.value.items {
		if n.kind != mapping {
			r.wrong(n.at, "want a step: a mapping with a name, got %s", kindNames[n.kind])
			r.loose = true
			continue
		}
		var step planform.Step
		r.fill(n, reflect.ValueOf(&step).Elem(), "step")
		name := n.member("name")
		if name == nil && !n.told["name"] {
			r.wrong(n.at, "the step has no name")
			n.tell("name")
		}
		first, twice := byName[step.Name]
		if twice && step.Name != "" {
			r.wrong(name.value.at, "two steps are named %s, the first in line %d", step.Name, r.steps[first].at.line)
			n.tell("name")
		}
		if n.told["name"] { // a name of no other step stands for it
			r.loose, step.Name = true, ""
		} else {
			byName[step.Name] = len(read)
		}
		read, r.steps = append(read, step), append(r.steps, n)
	}
	silent := planform.Silent(read)
	for i := range read {
		after := []string{}
		switch before := max(i-1, 0); {
		case r.steps[i].member("after") != nil:
			after = r.known(i, "after", read, byName)
		case i > 0 && read[before].Name != "": // as written, before they are sorted
			after = append(after, read[before].Name)
		}
		read[i].After = &after
		if read[i].Uses != nil {
			uses := r.known(i, "uses", read, byName)
			read[i].Uses = &uses
		}
		r.loose = r.loose || r.steps[i].told["after"]
	}
	nodes := r.steps
	r.steps = nil
	for _, i := range r.sorted(nodes, read, byName, silent) {
		if read[i].Name == "" {
			read[i].Name = r.unused(i, byName)
		}
		form.Steps = append(form.Steps, read[i])
		r.steps = append(r.steps, nodes[i])
	}
	r.usesBefore(form)
}

// unused is a name of no step, for one whose own is wrong.
func (r *reader) unused(i int, byName map[string]int) string {
	name := fmt.Sprintf("step-%d", i+1)
	for _, taken := byName[name]; taken; _, taken = byName[name] {
		name += "-"
	}
	byName[name] = i
	return name
}

// known are the names, in a field of a step, of steps that are there. The others are noted.
func (r *reader) known(step int, field string, all []planform.Step, byName map[string]int) (known []string) {
	known = []string{}
	m := r.steps[step].member(field)
	if m == nil {
		return known
	}
	for _, item := range m.value.items {
		if item.kind != text {
			continue // said elsewhere
		}
		to, ok := byName[item.text]
		switch {
		case ok && to == step:
			r.wrong(item.at, "%s: %s names the step itself", r.label(step), field)
			r.steps[step].tell(field)
		case !ok:
			r.wrong(item.at, "%s: %s", r.label(step), planform.NoStep(step, field, item.text, all))
			r.steps[step].tell(field)
		default:
			known = append(known, item.text)
		}
	}
	return known
}

// sorted are the steps in an order in which each stands behind those that it comes after. A circle is noted with its path,
// and broken up. silent are those that say nothing of what they come after.
func (r *reader) sorted(nodes []*node, steps []planform.Step, byName map[string]int, silent map[string]string) (order []int) {
	const (
		fresh = iota
		open
		done
	)
	state := make([]int, len(steps))
	var path []int
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		path = append(path, i)
		after := []string{}
		for _, name := range *steps[i].After {
			to := byName[name]
			if state[to] == open {
				var names []string
				for _, j := range path[slices.Index(path, to):] {
					names = append(names, steps[j].Name)
				}
				r.wrong(nodes[i].item("after", name).at, "%s", planform.Circle(names, silent))
				nodes[i].tell("after")
				r.loose = true
				continue
			}
			if after = append(after, name); state[to] == fresh {
				visit(to)
			}
		}
		steps[i].After = &after
		path = path[:len(path)-1]
		state[i] = done
		order = append(order, i)
	}
	for i := range steps {
		if state[i] == fresh {
			visit(i)
		}
	}
	return order
}

// item is the element of a list of names, or the node itself where there is none.
func (n *node) item(field, name string) *node {
	if m := n.member(field); m != nil {
		for _, item := range m.value.items {
			if item.text == name {
				return item
			}
		}
	}
	return n
}

// usesBefore checks that what a step uses is what it comes after, directly or through others.
func (r *reader) usesBefore(form *planform.Plan) {
	at, before := make(map[string]int, len(form.Steps)), make([]core.StepSet, len(form.Steps))
	for i := range form.Steps {
		s := &form.Steps[i]
		var mine core.StepBuilder
		for _, name := range *s.After {
			if a, ok := at[name]; ok {
				mine.Add(a)
				mine.AddAll(before[a])
			}
		}
		at[s.Name], before[i] = i, mine.Set()
		if s.Uses == nil {
			continue
		}
		uses := (*s.Uses)[:0:0]
		for _, name := range *s.Uses {
			if u, ok := at[name]; ok && before[i].Has(u) {
				uses = append(uses, name)
			} else if !r.loose {
				r.wrong(r.steps[i].item("uses", name).at, "step %s: uses names %s, which %s does not come after", s.Name, name, s.Name)
				r.steps[i].tell("uses")
			}
		}
		if uses == nil {
			uses = []string{}
		}
		s.Uses = &uses
	}
}
