package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// fan is what the owner of a task knows of the children of one step that is out: how many there are, and how far it is
// with bearing or undoing them. It is a few numbers, however many children there are. A takeover counts them in the store.
type fan struct {
	p    *partition
	e    *entry // the parent
	spec *core.Step
	step int
	seq  int64 // number of the row by which the step, or its undo, is out
	undo bool

	total, parallel int
	next            int // index of the child that is born next
	open            int // born and not at their end; in error counts as open, but of an undo
	done, undone    int
	elements        [][2]int // of the list, while there are births to come
	input           func(index int, element []byte) ([]byte, error)
	since           core.Instant // when this attempt of the step began
	ended           core.Instant // when the last child of those that were undone did
	look            bool         // the store is to say how far it is

	// Children that are there already and are to be gone over: undone ones of an earlier attempt, which begin again, oldest
	// first; or all of them, which are undone, newest first.
	more  bool
	place int64 // number of the last one read
	page  []core.ChildRow

	round  int64  // of the shard: what was written in it is not in the store before the next
	turn   bool   // it is among those that have a turn
	busy   bool   // it has its turn just now
	why    string // the first child that failed, and why
	broken string // why the step fails once no child is open
	only   []byte // the result of the only child
	taken  int    // how often an id was a task already
}

const (
	// siblingsPage is how many children are read at a time.
	siblingsPage = 256
	// stalledAgain is after how long a fan that found no room looks again, if nothing else happens before.
	stalledAgain = time.Second
)

func newFan(p *partition, e *entry, step int, seq int64) *fan {
	f := &fan{p: p, e: e, spec: &e.plan.plan.Steps[step], step: step, seq: seq, total: 1, parallel: 1}
	if f.spec.Kind == core.EachStep {
		f.total, f.parallel = e.task.Steps[step].Count(), max(1, f.spec.Parallel)
	}
	return f
}

// childID is the id of a child in the parent's present round.
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

// fan is that of a step which is out; nil: none is known.
func (e *entry) fan(step int) *fan {
	for _, f := range e.fans {
		if f.step == step && f.stands() {
			return f
		}
	}
	return nil
}

// begin makes a fan that of its step, instead of an earlier one and of those of steps that are over.
func (f *fan) begin() {
	e := f.e
	e.fans = slices.DeleteFunc(e.fans, func(o *fan) bool { return o.step == f.step || !o.stands() })
	e.fans = append(e.fans, f)
}

// dropFans forgets those of all steps.
func (e *entry) dropFans() { e.fans = nil }

// sweeps notes that a child counts as open until its undo has come to its end.
func (f *fan) sweeps(e *entry) { e.swept = f.seq }

// sweptNoMore takes that back.
func (e *entry) sweptNoMore() { e.swept = 0 }

// stands reports whether the step is still out under the fan's number.
func (f *fan) stands() bool { return f.e.task.Steps[f.step].Out == f.seq }

func (f *fan) due() core.Instant { return f.e.task.Steps[f.step].Due }

func (f *fan) siblings() core.Siblings {
	return core.Siblings{Parent: f.e.task.Number, Step: f.step, First: childID(f.e.task, f.spec, 0), Since: f.since}
}

// fail makes the step one that fails when no child is open any more. The first reason counts.
func (f *fan) fail(why string) {
	if f.broken == "" {
		f.broken = why
	}
}

// stopped reports whether no further child is born.
func (f *fan) stopped() bool {
	state := f.e.task.State
	return f.broken != "" || f.undone > f.spec.FailuresMax || state != core.StateProcessing && state != core.StatePending
}

// wants reports whether the fan could go on now if it had room.
func (f *fan) wants() bool {
	if f.open >= f.parallel {
		return false
	}
	return f.more || len(f.page) > 0 || !f.undo && !f.stopped() && f.next < f.total
}

func (f *fan) failBefore(child string) {
	f.fail("child " + child + " was done, and the database went back since: whether it was undone meanwhile is not known")
}

// read reads the next children that are to be gone over: of an undo all, newest first, else those that are left undone from
// an earlier attempt.
func (f *fan) read(ctx context.Context, store Store) (err error) {
	next, over := store.Children, func(r core.ChildRow) bool { return r.State != core.StateUndone || r.Ended >= f.since }
	if f.undo {
		next, over = store.Youngest, func(r core.ChildRow) bool { return r.State == core.StateUndone }
	}
	f.page, err = next(ctx, f.p.asOf(), f.siblings(), f.place, siblingsPage)
	f.more = len(f.page) == siblingsPage
	if len(f.page) > 0 {
		f.place = f.page[len(f.page)-1].Number
	}
	f.page = slices.DeleteFunc(f.page, over)
	return err
}

// notDone counts a child that was undone. The first one's reason counts.
func (f *fan) notDone(e *entry) {
	f.undone++
	f.ended = max(f.ended, e.task.UpdatedAt)
	if f.why == "" {
		f.why = "child " + e.task.ID + " was undone: " + e.task.Why
	}
}

// result keeps the result of the only child.
func (f *fan) result(result []byte) {
	if len(result) > f.spec.ResultMax {
		f.fail(fmt.Sprintf("the result of the child of step %s has %d bytes, the limit is %d", f.spec.Name, len(result), f.spec.ResultMax))
		return
	}
	f.only = result
}

// failure says that too many children failed.
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
