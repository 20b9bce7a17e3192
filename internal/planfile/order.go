package planfile

import (
	"reflect"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// readSteps reads the steps, which may stand in any order, and sorts them so that each stands behind those that it comes
// after; otherwise they keep the order of the file.
func (r *reader) readSteps(form *planform.Plan) {
	steps := r.root.member("steps")
	if steps == nil {
		return
	}
	if steps.value.kind != list {
		r.wrong(steps.value.at, "steps: want a list, got %s", kindNames[steps.value.kind])
		return
	}
	if n := len(steps.value.items); n < 1 || n > core.StepsMax {
		r.wrong(steps.value.at, "%d steps, want 1 to %d", n, core.StepsMax)
		return
	}
	read := make([]planform.Step, len(steps.value.items))
	byName := map[string]int{}
	for i, n := range steps.value.items {
		if n.kind != mapping {
			r.wrong(n.at, "want a step: a mapping with a name, got %s", kindNames[n.kind])
			continue
		}
		r.fill(n, reflect.ValueOf(&read[i]).Elem(), "step")
		name := n.member("name")
		if name == nil {
			r.wrong(n.at, "the step has no name")
			continue
		}
		if first, twice := byName[read[i].Name]; twice {
			r.wrong(name.value.at, "two steps are named %s, the first in line %d", read[i].Name, steps.value.items[first].at.line)
			continue
		}
		byName[read[i].Name] = i
	}
	for i, n := range steps.value.items {
		r.known(n, "after", read[i].Name, byName)
		r.known(n, "uses", read[i].Name, byName)
	}
	if len(r.errors) > 0 {
		return
	}
	for _, i := range r.sorted(steps.value.items, read, byName) {
		form.Steps = append(form.Steps, read[i])
		r.steps = append(r.steps, steps.value.items[i])
	}
	r.usesBefore(form)
}

// known checks that the steps which a step names are there.
func (r *reader) known(n *node, field, step string, byName map[string]int) {
	m := n.member(field)
	if m == nil {
		return
	}
	var names []string
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, item := range m.value.items {
		switch _, ok := byName[item.text]; {
		case item.kind != text: // said elsewhere
		case item.text == step:
			r.wrong(item.at, "step %s: %s names the step itself", step, field)
		case !ok:
			r.wrong(item.at, "step %s: %s names %s, which is no step; there is %s", step, field, core.QuoteShort(item.text), core.ShortText(strings.Join(names, ", "), 300))
		}
	}
}

// sorted are the steps in an order in which each stands behind those that it comes after. A cycle is noted with its path.
func (r *reader) sorted(nodes []*node, steps []planform.Step, byName map[string]int) (order []int) {
	const (
		fresh = iota
		open
		done
	)
	state := make([]int, len(steps))
	var path []int
	var visit func(i int, from pos) bool
	visit = func(i int, from pos) bool {
		switch state[i] {
		case done:
			return true
		case open:
			var names []string
			for _, j := range path[slices.Index(path, i):] {
				names = append(names, steps[j].Name)
			}
			r.wrong(from, "the steps come after each other in a circle: %s after %s", strings.Join(names, " after "), steps[i].Name)
			return false
		}
		state[i] = open
		path = append(path, i)
		for k, name := range steps[i].After {
			if !visit(byName[name], nodes[i].member("after").value.items[k].at) {
				return false
			}
		}
		path = path[:len(path)-1]
		state[i] = done
		order = append(order, i)
		return true
	}
	for i := range steps {
		if !visit(i, nodes[i].at) {
			return nil
		}
	}
	return order
}

// usesBefore checks that what a step uses is what it comes after, directly or through others.
func (r *reader) usesBefore(form *planform.Plan) {
	before := map[string]map[string]bool{}
	for i := range form.Steps {
		s := &form.Steps[i]
		mine := map[string]bool{}
		for _, a := range s.After {
			mine[a] = true
			for b := range before[a] {
				mine[b] = true
			}
		}
		before[s.Name] = mine
		if s.Uses == nil {
			continue
		}
		for k, name := range *s.Uses {
			if !mine[name] {
				r.wrong(r.steps[i].member("uses").value.items[k].at, "step %s: uses names %s, which %s does not come after", s.Name, name, s.Name)
			}
		}
	}
}
