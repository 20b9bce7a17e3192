package dulytest

import (
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// family is the children of one step while the step or its undo is out. It does what the owner of a partition does on a
// server: it bears children, so many at a time, and tells the parent once when all of them have come to their end.
type family struct {
	parent *Task
	step   int
	seq    int64 // the number under which the parent is told
	undo   bool
	told   bool

	next, count, parallel int
	list                  []byte // of an each
	elements              [][2]int
	inputs                *expr.Children
	undone                []*Task // still to be undone, the newest last

	open, done, failed int
	why                string // of the first failure
}

// begin begins or resumes the children of a step.
func (e *Engine) beginChildren(t *Task, effect core.Effect) {
	f := &family{parent: t, step: effect.Step, seq: effect.Seq, count: 1, parallel: 1}
	if step := &t.plan.Steps[effect.Step]; step.Kind == core.EachStep {
		own := t.task.Steps[effect.Step].Own()
		f.list, f.elements, f.parallel = own.Given, core.Elements(own.Given), step.Parallel
		f.count = len(f.elements)
		f.inputs = t.program.Children(&t.task, effect.Step)
	}
	e.adopt(f)
}

// undoChildren begins or resumes the undo of a step's children, the newest first.
func (e *Engine) undoChildren(t *Task, effect core.Effect) {
	step := &t.plan.Steps[effect.Step]
	f := &family{parent: t, step: effect.Step, seq: effect.Seq, undo: true, parallel: max(1, step.Parallel)}
	for _, child := range t.children {
		if child.task.ParentStep == effect.Step {
			f.undone = append(f.undone, child)
		}
	}
	e.adopt(f)
}

// adopt makes f the family of its step, and lets it go on.
func (e *Engine) adopt(f *family) {
	if f.parent.families == nil {
		f.parent.families = map[int]*family{}
	}
	f.parent.families[f.step] = f
	e.at(e.now, func() { e.goOn(f) })
}

// goOn takes up as many children as may be open, and tells the parent when none is left.
func (e *Engine) goOn(f *family) {
	if f.told || f.parent.families[f.step] != f || f.parent.task.Steps[f.step].Out != f.seq {
		return
	}
	if f.undo {
		e.goOnUndo(f)
		return
	}
	step := &f.parent.plan.Steps[f.step]
	for f.open < f.parallel && f.next < f.count && f.failed <= step.FailuresMax {
		e.child(f, f.next)
		f.next++
	}
	switch each := step.Kind == core.EachStep; {
	case f.failed > step.FailuresMax && each:
		e.tell(f, core.Event{Code: core.CodeRefused, Error: fmt.Sprintf("%d of %d children were undone, and %d may be: %s", f.failed, f.count, step.FailuresMax, f.why)})
	case f.failed > step.FailuresMax:
		e.tell(f, core.Event{Code: core.CodeRefused, Error: f.why})
	case f.open > 0 || f.next < f.count:
	case each:
		e.tell(f, core.Event{Result: fmt.Appendf(nil, `{"done":%d,"failed":%d}`, f.done, f.failed)})
	default:
		e.tell(f, core.Event{Result: f.parent.children[f.parent.child(f.step)].task.Result})
	}
}

// child takes up the child of an index: it is born, begins again, or has come to its end already.
func (e *Engine) child(f *family, index int) {
	parent, step := f.parent, &f.parent.plan.Steps[f.step]
	each := step.Kind == core.EachStep
	id := core.ChildID(parent.task.ID, step.Name, index, parent.task.Round, each)
	if t := e.tasks[id]; t != nil {
		e.again(f, t)
		return
	}
	stored := e.newest(step.Child)
	if stored == nil {
		e.t.Fatalf("task %s: step %s: plan %s of its children is not stored: see Engine.Apply", parent.task.ID, step.Name, step.Child)
		return
	}
	t, plan := stored.task(e), &stored.plan
	t.task = core.Task{
		ID: id, Type: plan.Name, Number: int64(len(e.tasks) + 1), Input: parent.task.InputOf(f.step), Trace: parent.task.Trace,
		CreatedAt: e.now, Deadline: min(e.now.Add(plan.CompleteBy), parent.task.Steps[f.step].Due),
		Parent: parent.task.Number, ParentStep: f.step, ChildIndex: index,
	}
	if each {
		at := f.elements[index]
		input, err := f.inputs.Input(index, f.list[at[0]:at[1]])
		if err != nil {
			f.fail(id, err.Error())
			return
		}
		t.task.Input = input
	}
	if err := e.fits(plan, t.task.Input); err != nil {
		f.fail(id, err.Error())
		return
	}
	t.task.InputHash = core.HashInput(plan.Name, t.task.Input)
	t.parent = parent
	parent.children = append(parent.children, t)
	f.open++
	e.bear(t)
}

// again takes up a child that there is: the parent's step begins again, or the server has come back.
func (e *Engine) again(f *family, t *Task) {
	switch t.task.State {
	case core.StateProcessed:
		f.done++
	case core.StateUndone:
		f.open++
		if err := e.decide(t, core.Event{Kind: core.EventResubmit, ByParent: true}); err != nil {
			f.open--
			f.fail(t.task.ID, t.task.Why)
		}
	default:
		f.open++
	}
}

// fail counts a child that was undone, or could not be born.
func (f *family) fail(id, why string) {
	if f.failed++; f.why == "" {
		f.why = "child " + id + ": " + why
	}
}

// goOnUndo is goOn for an undo.
func (e *Engine) goOnUndo(f *family) {
	for f.open < f.parallel && len(f.undone) > 0 {
		t := f.undone[len(f.undone)-1]
		f.undone = f.undone[:len(f.undone)-1]
		switch t.task.State {
		case core.StateUndone:
		case core.StateUndoing:
			f.open++
		default:
			f.open++
			if err := e.decide(t, core.Event{Kind: core.EventUndo, ByParent: true, Reason: "its parent is undone"}); err != nil {
				e.t.Fatalf("undo of child %s: %v", t.task.ID, err)
			}
		}
	}
	switch {
	case f.open > 0:
	case f.why != "":
		e.tell(f, core.Event{Code: core.CodeRefused, Error: f.why})
	default:
		e.tell(f, core.Event{})
	}
}

// tell tells the parent what its children came to.
func (e *Engine) tell(f *family, ev core.Event) {
	f.told = true
	ev.Kind, ev.Seq = core.EventChild, f.seq
	_ = e.decide(f.parent, ev) // one that is too late is stale
}

// childEnded counts a child that has come to its end. One in error is settled by an operator, or undone by its parent.
func (e *Engine) childEnded(t *Task) {
	f := t.parent.families[t.task.ParentStep]
	if f == nil || f.told {
		return
	}
	switch t.task.State {
	case core.StateProcessed:
		f.open--
		f.done++
	case core.StateUndone:
		f.open--
		if !f.undo {
			f.fail(t.task.ID, t.task.Why)
		}
	default:
		if !f.undo {
			return
		}
		f.open--
		if f.why == "" {
			f.why = "child " + t.task.ID + ": " + t.task.Why
		}
	}
	e.at(e.now, func() { e.goOn(f) })
}

// child is the place among the children of the newest one of a step.
func (t *Task) child(step int) int {
	for i := len(t.children) - 1; i >= 0; i-- {
		if t.children[i].task.ParentStep == step {
			return i
		}
	}
	return -1
}

// Children are the children of the task so far, in the order in which they were born.
func (t *Task) Children() []*Task { return append([]*Task(nil), t.children...) }
