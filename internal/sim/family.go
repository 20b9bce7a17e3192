package sim

import (
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Tasks that have tasks: what must be true of parents and their children, and what the expressions of their plans say.

// family are the ids of all tasks that there are or have been: those of the clients, and children.
func (w *World) family() []string {
	ids := slices.Clone(w.ids)
	if w.cfg.Graph {
		var born []string
		for id := range w.born {
			born = append(born, id)
		}
		slices.Sort(born)
		ids = append(ids, born...)
	}
	return ids
}

// childrenOf are the children of one step of a task in a round, as stored.
func (w *World) childrenOf(t *core.Task, step, round int) []*row {
	plan := planBook{w}.Plan(t.Type, 0)
	var all []*row
	for i := 0; ; i++ {
		each := plan.Steps[step].Kind == core.EachStep
		r := w.Store.ids[idKey{t.Partition, core.ChildID(t.ID, plan.Steps[step].Name, i, round, each)}]
		if r != nil {
			all = append(all, r)
		}
		if !each || i >= elementsMax {
			return all
		}
	}
}

// checkBirth holds a child's first row to its parent's journal: it is born by a step that has begun and is out (G5).
func (w *World) checkBirth(t *core.Task) {
	w.born[t.ID] = t.Type
	parent := w.Store.rows[rowKey{t.Partition, t.Parent}]
	if parent == nil {
		w.wrong(t.Partition, t.ID, "G5: it is born without its parent, number %d", t.Parent)
		return
	}
	plan := planBook{w}.Plan(parent.task.Type, 0)
	if t.ParentStep < 0 || t.ParentStep >= len(plan.Steps) || !plan.Steps[t.ParentStep].Kind.Parent() || plan.Steps[t.ParentStep].Child != t.Type {
		w.wrong(t.Partition, t.ID, "G5: it is born by step %d of %s, which has no such children", t.ParentStep+1, parent.task.ID)
	}
	if w.backs == 0 {
		w.checkChildren(parent)
	}
}

// checkChildren holds the children of a task to its journal, after the commit that bore one of them: their step has begun
// (G5). A step that has begun may have none: its child can be impossible, or its id another task's.
func (w *World) checkChildren(r *row) {
	plan := planBook{w}.Plan(r.task.Type, r.task.PlanVersion)
	if plan == nil || r.purged || r.task.PlanVersion == 0 {
		return
	}
	for i := range plan.Steps {
		if !plan.Steps[i].Kind.Parent() || r.referee.step(i).begun {
			continue
		}
		if children := w.childrenOf(&r.task, i, r.referee.round); len(children) > 0 {
			w.wrong(r.task.Partition, r.task.ID, "G5: step %s has %d children and has not begun", plan.Steps[i].Name, len(children))
		}
	}
}

// checkBorn is the other half of G5: a step that has begun has its children. One that is done has had one for each of its
// elements, and of one that waits for them in the calm until its time is over the first has been born. Only a step whose
// child is impossible has none, and that fails at once.
func (w *World) checkBorn(r *row, j *core.Record) {
	plan := planBook{w}.Plan(r.task.Type, r.task.PlanVersion)
	if j.Next >= 0 && !j.Undo {
		r.referee.step(j.Next).begunLate = j.Due <= w.now
	}
	if w.backs > 0 || plan == nil || j.Step < 0 || !plan.Steps[j.Step].Kind.Parent() {
		return
	}
	step := &plan.Steps[j.Step]
	least, each := 1, step.Kind == core.EachStep
	switch {
	case j.Kind == core.KindDone && each:
		var done, failed int
		if _, err := fmt.Sscanf(string(j.Result), `{"done":%d,"failed":%d}`, &done, &failed); err != nil {
			w.wrong(r.task.Partition, r.task.ID, "row %d has the result %s of children: %v", j.Seq, j.Result, err)
		}
		least = done + failed
		if begun := r.listOf(j); begun >= 0 && least != begun {
			w.wrong(r.task.Partition, r.task.ID, "G5: row %d ends step %s after %d children of %d elements", j.Seq, step.Name, least, begun)
		}
	case j.Kind == core.KindDone:
	case j.Kind == core.KindOverdue && !w.storm && !r.referee.step(j.Step).begunLate && r.begunAt(j) >= w.calmFrom && r.journal[j.Seq-2].State != core.StateUndoing:
	default:
		return
	}
	if n := len(w.childrenOf(&r.task, j.Step, j.Round)); n < least {
		w.wrong(r.task.Partition, r.task.ID, "G5: row %d is %s of step %s, which has %d children, want %d", j.Seq, j.Kind, step.Name, n, least)
	}
}

// begunAt is when the step that a row is about began last; 0: not before it.
func (r *row) begunAt(j *core.Record) core.Instant {
	for _, is := range slices.Backward(r.journal[:j.Seq-1]) {
		if is.Next == j.Step && is.Round == j.Round && !is.Undo {
			return is.At
		}
	}
	return 0
}

// listOf is how many elements the list has which an each began with, of the row that ends it; -1: none began.
func (r *row) listOf(j *core.Record) int {
	for i := range r.journal[:j.Seq-1] {
		if is := &r.journal[i]; is.Next == j.Step && is.Round == j.Round && !is.Undo && is.Input != nil {
			return len(core.Elements(is.Input))
		}
	}
	return -1
}

// checkFamily holds the children of a task that has ended to how it ended: no child of an undone one may have an effect
// (G6), each of a step that is done has ended well.
func (w *World) checkFamily(t *core.Task) {
	plan, steps := planBook{w}.Plan(t.Type, t.PlanVersion), w.stepsOf(t)
	if plan == nil || t.PlanVersion == 0 || steps == nil || w.backs > 0 {
		return
	}
	for round := range t.Round + 1 {
		for i := range plan.Steps {
			if plan.Steps[i].Kind.Parent() {
				w.checkChildrenEnd(t, steps[i].Status, i, round)
			}
		}
	}
}

func (w *World) checkChildrenEnd(t *core.Task, status core.StepStatus, step, round int) {
	for _, c := range w.childrenOf(t, step, round) {
		state := c.task.State
		undone := t.State == core.StateUndone || round < t.Round || status == core.StepSkipped
		switch {
		case w.handled[c.task.ID] || w.handled[t.ID]: // a person has said by hand what it came to
		case undone && state != core.StateUndone:
			w.wrong(t.Partition, t.ID, "G6: it is %s with step %d %s, and its child %s is %s", t.State, step+1, status, c.task.ID, state)
		case !undone && t.State == core.StateProcessed && status == core.StepDone && state != core.StateProcessed && state != core.StateUndone:
			w.wrong(t.Partition, t.ID, "it is processed, and its child %s is %s", c.task.ID, state)
		}
	}
}

// worldAsker answers the expressions of one task: by the seed, the task's id and the step alone, so that to ask again has
// the same answer.
type worldAsker struct {
	w    *World
	plan *core.Plan
	t    *core.Task
}

// expressions is what the nodes of a graph world ask; nil: the plans of the world have no expressions.
func (w *World) expressions() scheduler.Expressions {
	if !w.cfg.Graph {
		return nil
	}
	return worldExpressions{w}
}

// worldExpressions binds them to their tasks.
type worldExpressions struct{ w *World }

// Bind implements scheduler.Expressions.
func (x worldExpressions) Bind(p *core.Plan, t *core.Task) core.Asker { return worldAsker{x.w, p, t} }

// Children implements scheduler.Expressions.
func (x worldExpressions) Children(p *core.Plan, t *core.Task, step int) func(int, []byte) ([]byte, error) {
	return func(index int, element []byte) ([]byte, error) {
		if x.w.says(fmt.Sprintf("element %d", index), t.ID, p.Steps[step].Name) < fails {
			return nil, errNoKey
		}
		return fmt.Appendf(nil, `{"of":%s}`, element), nil
	}
}

// of is what an expression of a step comes to, one of a thousand.
func (a worldAsker) of(what string, step int) int {
	w, t := a.w, a.t
	w.asked++
	for _, b := range a.plan.Steps[step].After {
		if s := t.Steps[b].Status; s != core.StepDone && s != core.StepSkipped {
			w.wrong(t.Partition, t.ID, "G7: %s of step %d is asked while step %d is %s", what, step+1, b+1, s)
		}
	}
	if s := t.Steps[step].Status; s != core.StepWaiting {
		w.wrong(t.Partition, t.ID, "G7: %s of step %d is asked while the step is %s", what, step+1, s)
	}
	return w.says(what, t.ID, a.plan.Steps[step].Name)
}

// says is what an expression of a step of a task comes to.
func (w *World) says(what, id, step string) int {
	return int(w.hashOf(what+" of "+id+"/"+step) % 1000)
}

const (
	fails = 30  // of a thousand expressions
	wants = 700 // of a thousand conditions, and those that fail
)

var errNoKey = errors.New("no such key: gone")

// When implements core.Asker.
func (a worldAsker) When(step int) (bool, error) {
	h := a.of("when", step)
	if h < fails {
		return false, errNoKey
	}
	return h < wants, nil
}

// condition is what the condition of a step comes to, where it has one.
func (w *World) condition(t *core.Task, step int) bool {
	plan := w.plan(t.Type)
	return w.says("when", t.ID, plan.Steps[step].Name) < wants
}

// Input implements core.Asker.
func (a worldAsker) Input(step int) ([]byte, error) {
	if a.of("input", step) < fails {
		return nil, errNoKey
	}
	return a.w.givenInput(a.t.ID, a.plan.Steps[step].Name), nil
}

// givenInput is what the expression of a step's input comes to.
func (w *World) givenInput(id, step string) []byte {
	return fmt.Appendf(nil, `{"given":"%s/%s"}`, id, step)
}

// Until implements core.Asker.
func (a worldAsker) Until(step int) (core.Instant, error) {
	h := a.of("until", step)
	if h < fails {
		return 0, errNoKey
	}
	return a.t.CreatedAt + core.Instant(h)*1500, nil
}

// Elements implements core.Asker. Of tasks that are children themselves the lists are short.
func (a worldAsker) Elements(step int) ([]byte, int, error) {
	h := a.of("elements", step)
	if h < fails {
		return nil, 0, errNoKey
	}
	n := h % (elementsMax + 1)
	if a.t.Parent != 0 {
		n = h % 3
	}
	list := []byte("[")
	for i := range n {
		if i > 0 {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `{"element":%d}`, i)
	}
	return append(list, ']'), n, nil
}

// Result implements core.Asker.
func (a worldAsker) Result() ([]byte, error) {
	a.w.asked++
	for i := range a.t.Steps {
		if s := a.t.Steps[i].Status; s != core.StepDone && s != core.StepSkipped {
			a.w.wrong(a.t.Partition, a.t.ID, "its result is asked while step %d is %s", i+1, s)
		}
	}
	if a.w.says("result", a.t.ID, "") < fails {
		return nil, errNoKey
	}
	return []byte(`{"of":"` + a.t.ID + `"}`), nil
}
