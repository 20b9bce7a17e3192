package scheduler

import (
	"context"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// Children live in their parent's partition. An owner holds a task in memory as long as it holds any of its children: what
// a child comes to is told to its parent in the same batch.

// families are the children of tasks, and what their parents are still to hear of them.
type families struct {
	shard    tasks
	in       *owned
	cycle    *cycle
	plans    *planBook
	gate     *gate
	store    Store
	cfg      *Config
	counting *counting

	told      []told // ends that parents are still to hear of
	relaying  bool
	firstNext []*fan // of tasks created in the round before
	turns     []*fan // steps with children to be born, undone or counted, in the order of their turns
	looks     waker  // a round is to go on with them
}

// tasks is what families want done with tasks.
type tasks interface {
	event(p *partition, e *entry, ev *core.Event) error
	born(p *partition, e *entry)
	loadNumbers(ctx context.Context, p *partition, numbers []int64) ([]*entry, error)
	find(ctx context.Context, p *partition, id string) (e *entry, stored bool, err error)
}

// forget forgets all: no partition is held any more.
func (a *families) forget() { a.told, a.firstNext, a.turns, a.looks = nil, nil, nil, waker{} }

// told is a child that has ended, and whose parent is still to hear of it.
type told struct {
	p *partition
	e *entry
}

// ended notes that a child has.
func (a *families) ended(p *partition, e *entry) {
	e.ends++
	a.told = append(a.told, told{p, e})
}

// relay tells parents what their children came to. What that leads to may end further tasks. Of a child that is born at its
// end, whether it can be stored the commit says first.
func (a *families) relay() {
	if a.relaying {
		return
	}
	a.relaying = true
	var later []told
	for len(a.told) > 0 {
		x := a.told[0]
		a.told = a.told[1:]
		ours := a.in.partitions[x.p.id] == x.p && x.p.tasks[x.e.task.Number] == x.e
		if ours && a.cycle.makes(x.e) {
			later = append(later, x)
			continue
		}
		x.e.ends--
		if ours {
			a.cycle.use(x.p, x.e) // an end that was told in a later round held it until now
			a.childEnded(x.p, x.e)
		}
	}
	a.told, a.relaying = append(a.told[:0], later...), false
}

// childEnded takes note of the end of a child.
func (a *families) childEnded(p *partition, e *entry) {
	up, step := e.parent, e.task.ParentStep
	if up == nil || p.tasks[up.task.Number] != up || up.plan == nil || step >= len(up.task.Steps) || !up.has(e.task) {
		return
	}
	f := up.fan(step)
	switch {
	case f != nil && f.undo:
		a.childUndone(f, e)
	case f != nil:
		a.childDone(f, e)
	case up.plan.plan.Steps[step].Kind == core.TaskStep && up.task.Steps[step].Status == core.StepRunning:
		a.childDone(newFan(p, up, step, up.task.Steps[step].Out), e)
	}
}

// has reports whether a task is a child of the parent's present round.
func (e *entry) has(child *core.Task) bool {
	if e.task.Round == 0 {
		return true
	}
	return child.ID == childID(e.task, &e.plan.plan.Steps[child.ParentStep], child.ChildIndex)
}

// childID is the id of a child in the parent's present round.
func childID(parent *core.Task, step *core.Step, index int) string {
	return core.ChildID(parent.ID, step.Name, index, parent.Round, step.Kind == core.EachStep)
}

// depth is how many ancestors a task has.
func (e *entry) depth() (n int) {
	for up := e.parent; up != nil; up = up.parent {
		n++
	}
	return n
}

const (
	// freshMost is how many times BatchMax a commit makes tasks at most; freshLeast is how many of the newest tasks are looked
	// at anyway: steps of tasks that are not new begin, too.
	freshMost, freshLeast = 4, 1000
	// freshCommits is of how many commits of its node the parked tasks are looked at. A batch with refused rows is committed
	// in parts, down to single tasks, and other shards commit meanwhile.
	freshCommits = 1 << 16
)

// resumeFresh finds parked tasks of which the last commits of the owner before have begun a step, and whose child the next
// one would have had, or the database refused without that its parent has heard so.
func (a *families) resumeFresh(ctx context.Context, p *partition) error {
	last := p.taken.Found.Commit
	fresh, err := a.store.Fresh(ctx, p.asOf(), p.nextNumber-int64(max(freshMost*a.cfg.BatchMax, freshLeast)), last-freshCommits, last)
	if err != nil {
		return err
	}
	var numbers []int64
	for _, t := range fresh {
		ref, _, err := a.plans.of(ctx, p, t.Type, 0, false) // of one that cannot be read nothing is resumed
		if err != nil {
			return err
		}
		if ref != nil && slices.ContainsFunc(ref.plan.Steps, func(step core.Step) bool { return step.Kind == core.TaskStep }) {
			numbers = append(numbers, t.Number)
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	entries, err := a.shard.loadNumbers(ctx, p, numbers)
	if err != nil {
		return err
	}
	type place struct {
		parent int64
		step   int
	}
	there := map[place]bool{} // children of whose end their parents will hear
	for _, e := range p.tasks {
		if e.task.Parent != 0 && !e.task.State.Ended() {
			there[place{e.task.Parent, e.task.ParentStep}] = true
		}
	}
	for _, e := range entries {
		if e.plan == nil {
			continue
		}
		for i := range e.task.Steps {
			if st := &e.task.Steps[i]; e.plan.plan.Steps[i].Kind == core.TaskStep && st.Out != 0 && st.Status == core.StepRunning && !there[place{e.task.Number, i}] {
				f := newFan(p, e, i, st.Out)
				f.look, f.since = true, e.task.UpdatedAt
				e.fans = append(e.fans, f)
				a.queue(f)
			}
		}
	}
	return nil
}

// bear makes the next child of a step. What makes it impossible is the failure of the step.
func (a *families) bear(ctx context.Context, f *fan) error {
	p, up := f.p, f.e
	index := f.next
	id := childID(up.task, f.spec, index)
	if n := up.depth() + 1; n > core.ChildDepthMax {
		f.fail(fmt.Sprintf("child %s of type %s would be %d deep, the limit is %d: its type has itself below it, or the tree of tasks is too deep", core.QuoteShort(id), core.QuoteShort(f.spec.Child), n, core.ChildDepthMax))
		return nil
	}
	if len(id) > core.ChildIDBytesMax {
		f.fail(fmt.Sprintf("id %s of a child has %d bytes, the limit is %d", core.QuoteShort(id), len(id), core.ChildIDBytesMax))
		return nil
	}
	ref, unread, err := a.plans.of(ctx, p, f.spec.Child, 0, false)
	if err != nil {
		return err
	}
	if ref == nil && unread == nil {
		f.fail(fmt.Sprintf("no plan is stored for type %q, of which step %s has children", f.spec.Child, f.spec.Name))
		return nil
	}
	input, err := a.inputOf(f, index)
	if err != nil {
		f.fail(fmt.Sprintf("child %s: %v", core.QuoteShort(id), err))
		return nil
	}
	if ref != nil {
		if _, why := a.plans.unfit(ref, id, input); why != "" {
			f.fail(fmt.Sprintf("child %s: %s", core.QuoteShort(id), why))
			return nil
		}
	}
	a.bearAs(f, id, input, ref, unread)
	return nil
}

// bearAs makes the next child of a step, by its plan or as one that waits for it.
func (a *families) bearAs(f *fan, id string, input []byte, ref *planRef, unread *core.UnreadablePlan) {
	p, up, index, now := f.p, f.e, f.next, a.cycle.now
	deadline := f.due()
	if ref != nil {
		deadline = min(now.Add(ref.plan.CompleteBy), deadline)
	} else if unread.CompleteBy != 0 {
		deadline = min(now.Add(unread.CompleteBy), deadline)
	}
	e := &entry{
		task: &core.Task{
			Partition: p.id, Number: p.nextNumber, ID: id, Type: f.spec.Child, Input: input, InputHash: core.HashInput(f.spec.Child, input),
			Trace: up.task.Trace, Labels: up.task.Labels, Origin: up.task.Origin, CreatedAt: now,
			Deadline: deadline,
			Parent:   up.task.Number, ParentStep: f.step, ChildIndex: index,
		},
		plan: ref,
	}
	p.nextNumber++
	f.next++
	f.open++
	if index == 0 { // the others are found by it: none is born before it is stored
		f.round = a.cycle.rounds
	}
	ev := core.Event{At: now, Actor: a.cfg.Node, Node: a.cfg.Node, Ask: a.counting.bind(a.cfg.Expressions, e)}
	a.gate.says(p, e, &ev)
	if p.taken.ChildMayHaveRun(up.task) {
		ev.Kind, ev.At, ev.Until = core.EventWentBack, max(now, p.taken.WentBackAt), p.taken.WentBackAt
	}
	if unread != nil {
		core.BirthUnread(unread, e.task, &ev, &a.cycle.out)
	} else {
		core.Birth(ref.plan, e.task, &ev, &a.cycle.out)
	}
	a.shard.born(p, e)
}

// inputOf is the input of one child.
func (a *families) inputOf(f *fan, index int) ([]byte, error) {
	if f.spec.Kind != core.EachStep {
		return f.e.task.InputOf(f.step), nil
	}
	own := f.e.task.Steps[f.step].Own()
	if f.elements == nil {
		f.elements = core.Elements(own.Given)
	}
	if index >= len(f.elements) {
		return nil, fmt.Errorf("the list of step %s has %d elements", f.spec.Name, len(f.elements))
	}
	element := own.Given[f.elements[index][0]:f.elements[index][1]]
	if f.spec.Input == "" {
		return element, nil
	}
	if f.input == nil {
		if a.cfg.Expressions == nil {
			return nil, fmt.Errorf("the input of step %s cannot be evaluated here", f.spec.Name)
		}
		f.input = a.cfg.Expressions.Children(f.e.plan.plan, f.e.task, f.step)
	}
	given, err := f.input(index, element)
	if err != nil {
		*a.counting.failed++
	}
	return given, err
}
