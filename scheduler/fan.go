package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// fan is the children of one step that is out, as the owner counts them: how many are born, open, done and undone. Its size
// does not depend on their number. After a takeover, and of a parent that was put away, the counts are read from the store.
type fan struct {
	p    *partition
	e    *entry // the parent
	spec *core.Step
	step int
	// seq is the row by which the step, or its undo, is out. When the step is out by another row the fan is
	// of the past.
	seq  int64
	undo bool

	total, parallel int
	// next is the index of the child that is born next.
	next int
	// open counts children that are born and have not ended. One in error counts as open, except in an undo.
	open         int
	done, undone int
	// elements are the bounds of each element in the step's list, while births are to come.
	elements [][2]int
	// input computes a child's input from its element; nil: not needed, or not asked for yet.
	input func(index int, element []byte) ([]byte, error)
	// since is when this attempt of the step began.
	since core.Instant
	// ended is when the last of the undone children ended.
	ended core.Instant
	// recount is whether the counts have to be read from the store before the fan can go on.
	recount bool
	// partly is whether children may have been undone before the fan was made: when, and why, is in the store alone.
	partly bool

	// page, more and pageAfter walk over children that exist already: a new attempt of the step restarts those that were
	// undone before it began, oldest first; an undo goes over all, newest first. pageAfter is the number of the last one
	// read, more whether the store has further ones.
	more      bool
	pageAfter int64
	page      []core.ChildRow

	// round is the shard's round that wrote something the fan depends on. It is not in the store before that
	// round is committed, so the fan waits for the next round.
	round int64
	// queued is whether the fan is in families.queued.
	queued bool
	// busy is set while advance works on the fan, so that a child that ends at once does not recurse into it.
	busy bool
	// why tells which child failed first, and why.
	why string
	// broken is the error with which the step fails once no child is open; empty: it need not fail.
	broken string
	// only is the result of a task step's one child.
	only []byte
	// idClashes counts how often a child's id was found to be an existing task.
	idClashes int
}

const (
	// siblingsPage is how many children are read at a time.
	siblingsPage = 256
	// stalledRetry is when a fan that found no room tries again, if nothing happens before that.
	stalledRetry = time.Second
)

// newFan makes the fan of a step that is out by the row seq, without any child.
func newFan(p *partition, e *entry, step int, seq int64) *fan {
	f := &fan{p: p, e: e, spec: &e.plan.plan.Steps[step], step: step, seq: seq, total: 1, parallel: 1}
	if f.spec.Kind == core.EachStep {
		f.total, f.parallel = e.task.Steps[step].Count(), max(1, f.spec.Parallel)
	}
	return f
}

// childID returns the id of a step's child in the parent's present round. (A task that is resubmitted begins
// a new round.)
func childID(parent *core.Task, step *core.Step, index int) string {
	return core.ChildID(parent.ID, step.Name, index, parent.Round, step.Kind == core.EachStep)
}

// has reports whether a task is a child of the parent's present round.
func (e *entry) has(child *core.Task) bool {
	if e.task.Round == 0 {
		return true
	}
	return child.ID == childID(e.task, &e.plan.plan.Steps[child.ParentStep], child.ChildIndex)
}

// fan returns the fan of a step that is out; nil: there is none yet.
func (e *entry) fan(step int) *fan {
	for _, f := range e.fans {
		if f.step == step && f.stands() {
			return f
		}
	}
	return nil
}

// begin makes f the fan of its step, and drops the parent's fans that are of the past.
func (f *fan) begin() {
	e := f.e
	e.fans = slices.DeleteFunc(e.fans, func(o *fan) bool { return o.step == f.step || !o.stands() })
	e.fans = append(e.fans, f)
}

// dropFans drops the fans of all steps: the row by which they began is refused.
func (e *entry) dropFans() { e.fans = nil }

// sweeps counts a child as open in the parent's undo until the child's own undo has ended.
func (f *fan) sweeps(e *entry) { e.swept = f.seq }

// sweptNoMore undoes sweeps.
func (e *entry) sweptNoMore() { e.swept = 0 }

// stands reports whether the step is still out by the fan's row.
func (f *fan) stands() bool { return f.e.task.Steps[f.step].Out == f.seq }

// due returns the step's complete-by.
func (f *fan) due() core.Instant { return f.e.task.Steps[f.step].Due }

// siblings identifies the fan's children to the store.
func (f *fan) siblings() core.Siblings {
	return core.Siblings{Parent: f.e.task.Number, Step: f.step, First: childID(f.e.task, f.spec, 0), Since: f.since}
}

// fail makes the step fail once no child is open. The first reason is kept.
func (f *fan) fail(why string) {
	if f.broken == "" {
		f.broken = why
	}
}

// stopped reports whether no further child may be born: the step will fail, too many children have failed, or
// the parent is being undone.
func (f *fan) stopped() bool {
	state := f.e.task.State
	return f.broken != "" || f.undone > f.spec.FailuresMax || state != core.StateProcessing && state != core.StatePending
}

// wants reports whether the fan has something to do that needs only room.
func (f *fan) wants() bool {
	if f.open >= f.parallel {
		return false
	}
	return f.more || len(f.page) > 0 || !f.undo && !f.stopped() && f.next < f.total
}

// failBefore makes the step fail because of a child of an earlier attempt of which it is not known whether it was undone.
func (f *fan) failBefore(child string) {
	f.fail("child " + child + " was done, and the database went back since: whether it was undone meanwhile is not known")
}

// read reads the next page of the children that exist already: in an undo all that are not undone, newest
// first; else those that were undone before this attempt began, oldest first.
func (f *fan) read(ctx context.Context, store Store) (err error) {
	next, over := store.Children, func(r core.ChildRow) bool { return r.State != core.StateUndone || r.Ended >= f.since }
	if f.undo {
		next, over = store.Youngest, func(r core.ChildRow) bool { return r.State == core.StateUndone }
	}
	f.page, err = next(ctx, f.p.asOf(), f.siblings(), f.pageAfter, siblingsPage)
	f.more = len(f.page) == siblingsPage
	if len(f.page) > 0 {
		f.pageAfter = f.page[len(f.page)-1].Number
	}
	f.page = slices.DeleteFunc(f.page, over)
	return err
}

// notDone counts a child that was undone.
func (f *fan) notDone(e *entry) {
	f.undone++
	f.notes(e)
}

// notes keeps when the last child was undone, and why the first one was.
func (f *fan) notes(e *entry) {
	f.ended = max(f.ended, e.task.UpdatedAt)
	if f.why == "" {
		f.why = "child " + e.task.ID + " was undone: " + e.task.Why
	}
}

// result keeps the result of a task step's one child, or fails the step if it is larger than the step allows.
func (f *fan) result(result []byte) {
	if len(result) > f.spec.ResultMax {
		f.fail(fmt.Sprintf("the result of the child of step %s has %d bytes, the limit is %d", f.spec.Name, len(result), f.spec.ResultMax))
		return
	}
	f.only = result
}

// failure is the step's error when more children were undone than the step allows.
func (f *fan) failure() string {
	text := f.why
	if f.spec.Kind == core.EachStep {
		text = fmt.Sprintf("%d of %d children were undone, the limit is %d", f.undone, f.total, f.spec.FailuresMax)
		if f.why != "" {
			text += "; " + f.why
		}
	} else if text == "" {
		text = "its child was undone"
	}
	return text
}
