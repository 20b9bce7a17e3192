package scheduler

import (
	"context"
	"fmt"
	"math"
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

// fanOut begins to bear or to undo the children of a step.
func (a *families) fanOut(p *partition, e *entry, eff *core.Effect) {
	c := a.cycle
	f := newFan(p, e, eff.Step, eff.Seq)
	f.undo, f.since, f.round = eff.Kind == core.EffectUndoChildren, e.task.UpdatedAt, a.cycle.rounds
	f.begin()
	switch {
	case f.undo:
		f.more, f.place = true, math.MaxInt64
		a.queue(f)
	case c.resumed != nil:
		if row := int(f.seq) - 1; row < len(c.resumed.Journal) {
			f.since = c.resumed.Journal[row].At
		}
		f.look, f.round = true, 0
		a.queue(f)
	case e.task.Failures > 0: // an earlier attempt may have born some
		f.look = true
		a.queue(f)
	case c.makes(e): // whether its id is free the commit says
		f.turn = true
		a.firstNext = append(a.firstNext, f)
	default:
		f.turn = true
		c.first = append(c.first, f)
	}
}

// queue gives a fan a turn.
func (a *families) queue(f *fan) {
	if !f.turn {
		f.turn = true
		a.turns = append(a.turns, f)
	}
	a.looks.wake(a.cycle.now)
}

// ready reports whether another round goes on with children at once.
func (a *families) ready() bool {
	return len(a.firstNext) > 0 || a.looks.lookAt != 0 && a.looks.lookAt <= a.cycle.now
}

// has reports whether a fan is of a task that is in flight here, and of a step that is out.
func (a *families) has(f *fan) bool {
	return a.in.partitions[f.p.id] == f.p && f.p.tasks[f.e.task.Number] == f.e && slices.Contains(f.e.fans, f) && f.stands()
}

// taken takes note of a child that is there already: the store is asked how far the step is.
func (a *families) taken(e *entry) {
	up := e.parent
	if up == nil {
		return
	}
	f := up.fan(e.task.ParentStep)
	if f == nil || f.undo {
		return
	}
	f.look, f.round = true, a.cycle.rounds
	if f.taken++; f.taken > takenMost {
		f.look = false
		f.open--
		f.fail("id " + e.task.ID + " of a child is another task's")
	}
	a.queue(f)
}

// stillborn takes note of a child that the database refuses, whatever is in its row.
func (a *families) stillborn(e *entry, why string) {
	if e.parent == nil {
		return
	}
	if f := e.parent.fan(e.task.ParentStep); f != nil && !f.undo {
		f.open--
		f.fail("child " + e.task.ID + ": " + why)
		a.queue(f)
	}
}

// takenMost is how often an id may be found to be taken before the step fails.
const takenMost = 3

// childUndone counts a child whose undo has come to its end.
func (a *families) childUndone(f *fan, e *entry) {
	if e.swept != f.seq {
		return
	}
	e.sweptNoMore()
	f.open--
	if e.task.State != core.StateUndone {
		f.fail("child " + e.task.ID + ": " + e.task.Why)
	}
	a.goOn(f)
}

// childDone counts a child that has come to its end. One in error waits for an operator, and stays open.
func (a *families) childDone(f *fan, e *entry) {
	if f.look { // it is counted with all others, once its end is committed
		f.round = a.cycle.rounds
		return
	}
	switch e.task.State {
	case core.StateProcessed:
		f.done++
	case core.StateUndone:
		f.notDone(e)
	default:
		return
	}
	if f.open--; f.spec.Kind == core.TaskStep {
		f.open, f.next = 0, f.total
		if f.done > 0 {
			f.result(e.task.Result)
		}
	}
	a.goOn(f)
}

// goOn tells the parent of a fan that has come to its end, and gives another a turn.
func (a *families) goOn(f *fan) {
	if f.busy || a.finish(f) {
		return
	}
	if f.wants() {
		a.queue(f)
	}
}

// finish tells the parent that all children of a step have come to their end, if they have.
func (a *families) finish(f *fan) bool {
	if f.look || f.open > 0 {
		return false
	}
	if f.undo || !f.stopped() {
		if f.more || len(f.page) > 0 || !f.undo && f.next < f.total {
			return false
		}
	} else if state := f.e.task.State; state != core.StateProcessing && state != core.StatePending {
		return false // its undo comes
	}
	ev := core.Event{Kind: core.EventChild, At: max(a.cycle.now, f.ended), Actor: a.cfg.Node, Seq: f.seq}
	switch {
	case f.broken != "":
		ev.Code, ev.Error = core.CodeRefused, f.broken
	case f.undo:
	case f.undone > f.spec.FailuresMax:
		ev.Code, ev.Error = core.CodeAgentError, f.failure()
	case f.spec.Kind == core.EachStep:
		ev.Result = fmt.Appendf(nil, `{"done":%d,"failed":%d}`, f.done, f.undone)
	default:
		ev.Result = f.only
	}
	a.cycle.use(f.p, f.e)
	_ = a.shard.event(f.p, f.e, &ev)
	return true
}
