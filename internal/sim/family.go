package sim

import (
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
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
}

// checkChildren holds the children of a task to its journal, after a commit that wrote it (G5).
func (w *World) checkChildren(r *row) {
	plan := planBook{w}.Plan(r.task.Type, r.task.PlanVersion)
	if plan == nil || r.purged || r.task.PlanVersion == 0 {
		return
	}
	for i := range plan.Steps {
		s := r.referee.step(i)
		if !plan.Steps[i].Kind.Parent() {
			continue
		}
		children := w.childrenOf(&r.task, i, r.referee.round)
		switch {
		case len(children) > 0 && !s.begun:
			w.wrong(r.task.Partition, r.task.ID, "G5: step %s has %d children and has not begun", plan.Steps[i].Name, len(children))
		case len(children) == 0 && s.begun && plan.Steps[i].Kind == core.TaskStep:
			w.wrong(r.task.Partition, r.task.ID, "G5: step %s has begun and has no child", plan.Steps[i].Name)
		}
	}
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

// worldAsker answers the expressions of plans: by the seed, the task's id and the step alone, so that to ask again has the
// same answer.
type worldAsker struct{ w *World }

func (a worldAsker) of(what string, t *core.Task, step int) int {
	w := a.w
	w.asked++
	plan := planBook{w}.Plan(t.Type, 0)
	for _, b := range plan.Steps[step].After {
		if s := t.Steps[b].Status; s != core.StepDone && s != core.StepSkipped {
			w.wrong(t.Partition, t.ID, "G7: %s of step %s is asked while step %d is %s", what, plan.Steps[step].Name, b+1, s)
		}
	}
	if s := t.Steps[step].Status; s != core.StepWaiting {
		w.wrong(t.Partition, t.ID, "G7: %s of step %s is asked while the step is %s", what, plan.Steps[step].Name, s)
	}
	return int(w.hashOf(what+" of "+t.ID+"/"+plan.Steps[step].Name) % 1000)
}

var errNoKey = fmt.Errorf("no such key: gone")

// When implements core.Asker.
func (a worldAsker) When(t *core.Task, step int) (bool, error) {
	h := a.of("when", t, step)
	if h < 30 {
		return false, errNoKey
	}
	return h < 700, nil
}

// Input implements core.Asker.
func (a worldAsker) Input(t *core.Task, step int) ([]byte, error) {
	if a.of("input", t, step) < 30 {
		return nil, errNoKey
	}
	return a.w.givenInput(t.ID, planBook{a.w}.Plan(t.Type, 0).Steps[step].Name), nil
}

// givenInput is what the expression of a step's input comes to.
func (w *World) givenInput(id, step string) []byte {
	return fmt.Appendf(nil, `{"given":"%s/%s"}`, id, step)
}

// Until implements core.Asker.
func (a worldAsker) Until(t *core.Task, step int) (core.Instant, error) {
	h := a.of("until", t, step)
	if h < 30 {
		return 0, errNoKey
	}
	return t.CreatedAt + core.Instant(h)*1500, nil
}

// Elements implements core.Asker. Of tasks that are children themselves the lists are short.
func (a worldAsker) Elements(t *core.Task, step int) ([]byte, int, error) {
	h := a.of("elements", t, step)
	if h < 30 {
		return nil, 0, errNoKey
	}
	n := h % (elementsMax + 1)
	if t.Parent != 0 {
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
func (a worldAsker) Result(t *core.Task) ([]byte, error) {
	a.w.asked++
	for i := range t.Steps {
		if s := t.Steps[i].Status; s != core.StepDone && s != core.StepSkipped {
			a.w.wrong(t.Partition, t.ID, "its result is asked while step %d is %s", i+1, s)
		}
	}
	if a.w.hashOf("result of "+t.ID)%1000 < 30 {
		return nil, errNoKey
	}
	return []byte(`{"of":"` + t.ID + `"}`), nil
}
