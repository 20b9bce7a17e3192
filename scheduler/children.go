package scheduler

import (
	"context"
	"fmt"
	"math"
	"slices"

	"duly.dev/duly/internal/core"
)

// Children live in their parent's partition. A task stays in memory as long as any of its children, because a child's end and
// what it means for the parent are written in the same batch.

// families bears and undoes the children of tasks, and tells parents of their ends.
type families struct {
	shard    tasks
	in       *owned
	cycle    *cycle
	plans    *planBook
	gate     *gate
	store    Store
	cfg      *Config
	counting *counting

	// unheard are ended children whose parents have not been told.
	unheard []endedChild
	// relaying is set while relay runs, so that an end caused by it is queued instead of recursing.
	relaying bool
	// newFansNext are fans of tasks created in this round. Their first child is born in the next: see
	// bearFirst.
	newFansNext []*fan
	// queued are fans with children to be born, undone or counted, in the order in which they are served.
	queued []*fan
	// nextRound is when a round is wanted to go on with them, nextLook when a cycle is wanted to look at tasks that wait for
	// room.
	nextRound waker
	nextLook  waker
}

// tasks is what families needs of the shard.
type tasks interface {
	event(p *partition, e *entry, ev *core.Event) error
	born(p *partition, e *entry)
	loadNumbers(ctx context.Context, p *partition, numbers []int64) ([]*entry, error)
	find(ctx context.Context, p *partition, id string) (e *entry, stored bool, err error)
}

// forget drops everything: the shard holds no partition any more.
func (a *families) forget() {
	a.unheard, a.newFansNext, a.queued, a.nextRound, a.nextLook = nil, nil, nil, waker{}, waker{}
}

// endedChild is a child that has ended and whose parent has not been told.
type endedChild struct {
	p *partition
	e *entry
}

// noteEnd queues a child's end for its parent.
func (a *families) noteEnd(p *partition, e *entry) {
	e.ends++
	a.unheard = append(a.unheard, endedChild{p, e})
}

// relay tells parents how their children ended. That may end further tasks, which it tells as well. A child
// that is created already ended is reported only after its row has committed.
func (a *families) relay() {
	if a.relaying {
		return
	}
	a.relaying = true
	var later []endedChild
	for len(a.unheard) > 0 {
		x := a.unheard[0]
		a.unheard = a.unheard[1:]
		ours := a.in.partitions[x.p.id] == x.p && x.p.tasks[x.e.task.Number] == x.e
		if ours && a.cycle.makes(x.e) {
			later = append(later, x)
			continue
		}
		x.e.ends--
		if ours {
			a.cycle.use(x.p, x.e) // it was pinned until its parent was told
			a.childEnded(x.p, x.e)
		}
	}
	a.unheard, a.relaying = append(a.unheard[:0], later...), false
}

// childEnded tells one parent of a child's end.
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

// fanOut begins to bear the children of a step, or to undo them.
func (a *families) fanOut(p *partition, e *entry, eff *core.Effect) {
	c := a.cycle
	if f := e.fan(eff.Step); c.resuming && eff.Kind == core.EffectChildren && f != nil { // it was restored
		a.queue(f)
		return
	}
	f := newFan(p, e, eff.Step, eff.Seq)
	f.undo, f.since, f.round = eff.Kind == core.EffectUndoChildren, e.task.UpdatedAt, a.cycle.rounds
	f.begin()
	switch {
	case f.undo:
		f.more, f.pageAfter = true, math.MaxInt64
		a.queue(f)
	case e.task.Failures > 0: // an earlier attempt may have born some
		f.recount = true
		a.queue(f)
	case c.makes(e): // whether its id is free the commit says
		f.queued = true
		a.newFansNext = append(a.newFansNext, f)
	default:
		f.queued = true
		c.newFans = append(c.newFans, f)
	}
}

// restore makes the fans of a stored task. They count their children when one ends, or when they are served.
func (a *families) restore(p *partition, e *entry, saved *core.Saved) {
	if e.plan == nil || e.task.State != core.StateProcessing {
		return
	}
	for i := range e.task.Steps {
		if st := &e.task.Steps[i]; st.Out != 0 && st.Status == core.StepRunning && e.plan.plan.Steps[i].Kind.Parent() {
			f := newFan(p, e, i, st.Out)
			f.recount, f.partly, f.since = true, true, saved.Journal[st.Out-1].At
			f.begin()
		}
	}
}

// lookLater has the fans of a task served when there is room, at an instant at the latest if nothing happens before. It need not be
// in memory until then.
func (a *families) lookLater(p *partition, e *entry, at core.Instant) {
	p.lookLater(e.task.Number)
	a.nextLook.wake(at)
}

// queue has a fan served in the next round that has room.
func (a *families) queue(f *fan) {
	if !f.queued {
		f.queued = true
		a.queued = append(a.queued, f)
	}
	a.nextRound.wake(a.cycle.now)
}

// ready reports whether there is work on children that another round should do at once.
func (a *families) ready() bool {
	return len(a.newFansNext) > 0 || a.nextRound.lookAt != 0 && a.nextRound.lookAt <= a.cycle.now
}

// has reports whether a queued fan is still valid: its task is in flight here, and its step is out by the
// fan's row.
func (a *families) has(f *fan) bool {
	return a.in.partitions[f.p.id] == f.p && f.p.tasks[f.e.task.Number] == f.e && slices.Contains(f.e.fans, f) && f.stands()
}

// childExists handles a child whose id the commit found to be an existing task. The fan counts its children
// in the store again: it may have been born by an earlier owner.
func (a *families) childExists(e *entry) {
	up := e.parent
	if up == nil {
		return
	}
	f := up.fan(e.task.ParentStep)
	if f == nil || f.undo {
		return
	}
	f.recount, f.round = true, a.cycle.rounds
	if f.idClashes++; f.idClashes > idClashesMax {
		f.recount = false
		f.open--
		f.fail("id " + e.task.ID + " of a child is another task's")
	}
	a.queue(f)
}

// stillborn handles a child that the database refuses even as a bare row: the step fails.
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

// idClashesMax is how often a child's id may be found to exist before the step fails: another task has it.
const idClashesMax = 3

// childUndone counts a child whose undo has ended.
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

// childDone counts a child that has ended. One in error waits for an operator and stays open.
func (a *families) childDone(f *fan, e *entry) {
	if f.recount { // the recount counts it, once its end is committed
		f.round = a.cycle.rounds
		if e.task.State == core.StateUndone {
			f.notes(e)
		}
		a.queue(f)
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

// goOn ends the fan's step if all children have ended, or queues the fan if it has more to do.
func (a *families) goOn(f *fan) {
	if f.busy || a.finish(f) {
		return
	}
	if f.wants() {
		a.queue(f)
	}
}

// finish tells the parent that all children of a step have ended, and reports whether they have.
func (a *families) finish(f *fan) bool {
	if f.recount || f.open > 0 {
		return false
	}
	if f.undo || !f.stopped() {
		if f.more || len(f.page) > 0 || !f.undo && f.next < f.total {
			return false
		}
	} else if state := f.e.task.State; state != core.StateProcessing && state != core.StatePending {
		return false // the parent is being undone: the step's undo follows
	}
	if f.partly && f.broken == "" && f.undone > f.spec.FailuresMax {
		f.recount, f.round = true, a.cycle.rounds
		a.queue(f)
		return false
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
