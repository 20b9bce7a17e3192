package scheduler

import (
	"context"
	"fmt"
	"math"
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
		f.total, f.parallel = e.task.Steps[step].Own().Count, max(1, f.spec.Parallel)
	}
	return f
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

// fanOut begins to bear or to undo the children of a step.
func (a *families) fanOut(p *partition, e *entry, eff *core.Effect) {
	c := a.cycle
	f := newFan(p, e, eff.Step, eff.Seq)
	f.undo, f.since, f.round = eff.Kind == core.EffectUndoChildren, e.task.UpdatedAt, a.cycle.rounds
	e.fans = slices.DeleteFunc(e.fans, func(o *fan) bool { return o.step == f.step || !o.stands() })
	e.fans = append(e.fans, f)
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

// bearFirst bears the first child of each step that began in this round or, of a task that was created, in the one before:
// a child is there as soon as its parent's journal says so.
func (a *families) bearFirst(ctx context.Context, fans []*fan) error {
	for i, f := range fans {
		if f.turn = false; !a.has(f) {
			continue
		}
		if f.next == 0 && !f.stopped() {
			if err := a.bear(ctx, f); err != nil {
				a.firstNext = append(a.firstNext, fans[i+1:]...) // the error may stop this one's partition alone
				return err
			}
		}
		if !a.finish(f) && f.next < f.total {
			a.queue(f)
		}
	}
	return nil
}

// has reports whether a fan is of a task that is in flight here, and of a step that is out.
func (a *families) has(f *fan) bool {
	return a.in.partitions[f.p.id] == f.p && f.p.tasks[f.e.task.Number] == f.e && slices.Contains(f.e.fans, f) && f.stands()
}

// apply bears and undoes children, of each step in its turn: half of what room the batch has, so that new tasks begin
// beside them.
func (a *families) apply(ctx context.Context) (bool, error) {
	c := a.cycle
	budget := max(1, c.left()/2)
	a.looks.lookAt = 0
	for n := len(a.turns); n > 0; n-- {
		f := a.turns[0]
		a.turns = slices.Delete(a.turns, 0, 1)
		f.turn = false
		if !a.has(f) {
			f.p.idle = append(f.p.idle, f.e)
			continue
		}
		if f.round == a.cycle.rounds { // what it rests on is not committed yet
			a.queue(f)
			continue
		}
		if !a.cycle.roomy() || budget <= 0 {
			a.queue(f)
			continue
		}
		f.busy = true
		did, err := a.advance(ctx, f, max(1, budget/n))
		f.busy = false
		if err != nil {
			return false, err
		}
		budget -= did
		a.cycle.use(f.p, f.e)
		if a.has(f) && !a.finish(f) && f.wants() {
			f.turn = true
			a.turns = append(a.turns, f)
			if did > 0 {
				a.looks.wake(c.now)
			} else {
				a.looks.wake(c.now.Add(stalledAgain))
			}
		}
	}
	return false, nil
}

// ready reports whether another round goes on with children at once.
func (a *families) ready() bool {
	return len(a.firstNext) > 0 || a.looks.lookAt != 0 && a.looks.lookAt <= a.cycle.now
}

// wants reports whether the fan could go on now if it had room.
func (f *fan) wants() bool {
	if f.open >= f.parallel {
		return false
	}
	return f.more || len(f.page) > 0 || !f.undo && !f.stopped() && f.next < f.total
}

// advance goes on with a fan, for up to budget children, and returns how many it was.
func (a *families) advance(ctx context.Context, f *fan, budget int) (did int, err error) {
	if f.look {
		counts, err := a.store.ChildCounts(ctx, f.p.asOf(), f.siblings())
		if err != nil {
			return 0, err
		}
		f.look = false
		f.next, f.open, f.done, f.undone = counts.Born, counts.Running+counts.Error, counts.Done, counts.Undone
		f.more = counts.Left > 0
		if there := f.open + f.done + f.undone + counts.Left; there < f.next { // the database refused their rows
			f.fail(fmt.Sprintf("%d of the first %d children of step %s are missing", f.next-there, f.next, f.spec.Name))
		}
		if err := a.doneBefore(ctx, f); err != nil {
			return 0, err
		}
		if err := a.onlyChild(ctx, f); err != nil {
			return 0, err
		}
	}
	if f.undo || f.more || len(f.page) > 0 {
		if did, err = a.overSiblings(ctx, f, budget); err != nil || f.undo || f.more || len(f.page) > 0 {
			return did, err
		}
	}
	for f.round != a.cycle.rounds && f.next < f.total && f.open < f.parallel && did < budget && !f.stopped() && a.roomFor(f) {
		before := f.next
		if err := a.bear(ctx, f); err != nil {
			return did, err
		}
		did += f.next - before
	}
	if f.next == f.total {
		f.elements, f.input = nil, nil
	}
	return did, nil
}

// clocksApart is how far apart the clocks of two owners may be.
const clocksApart = 2 * time.Second

// doneBefore makes a step fail of which a child was done before the database went back: it may have been undone in the time
// that is lost, and is not done again.
func (a *families) doneBefore(ctx context.Context, f *fan) error {
	if f.undo || f.done == 0 || !f.p.taken.ChildMayHaveRun(f.e.task) {
		return nil
	}
	back := f.p.taken.WentBackAt
	for after, more := int64(0), true; more; {
		page, err := a.store.Children(ctx, f.p.asOf(), f.siblings(), after, siblingsPage)
		if err != nil {
			return err
		}
		more = len(page) == siblingsPage
		var unclear []int64
		for _, r := range page {
			after = r.Number
			switch {
			case r.State != core.StateProcessed || r.Ended >= back.Add(clocksApart):
			case r.Ended < back.Add(-clocksApart):
				f.failBefore(childID(f.e.task, f.spec, r.Index))
				return nil
			default:
				unclear = append(unclear, r.Number)
			}
		}
		if len(unclear) == 0 {
			continue
		}
		saved, err := a.store.LoadNumbers(ctx, f.p.asOf(), unclear)
		if err != nil {
			return err
		}
		for i := range saved {
			noted := func(r core.Record) bool { return r.Kind == core.KindWentBack && r.At >= back }
			if !slices.ContainsFunc(saved[i].Journal, noted) {
				f.failBefore(saved[i].Row.ID)
				return nil
			}
		}
	}
	return nil
}

func (f *fan) failBefore(child string) {
	f.fail("child " + child + " was done, and the database went back since: whether it was undone meanwhile is not known")
}

// onlyChild finds out what the child of a step that has one came to.
func (a *families) onlyChild(ctx context.Context, f *fan) error {
	if f.spec.Kind != core.TaskStep || f.done+f.undone == 0 {
		return nil
	}
	e, _, err := a.shard.find(ctx, f.p, f.siblings().First)
	if err != nil || e == nil {
		return err
	}
	f.result(e.task.Result)
	f.why = "child " + e.task.ID + " was undone: " + e.task.Why
	return nil
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

// roomFor reports whether one more child may be in flight: at least one of each step always.
func (a *families) roomFor(f *fan) bool {
	return a.cycle.roomy() && (f.open == 0 || len(f.p.tasks) < a.cfg.InFlight && a.cfg.Memory.fits(1) > 0)
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

// overSiblings goes over children that are there, page by page, as many at a time as may be open.
func (a *families) overSiblings(ctx context.Context, f *fan, budget int) (did int, err error) {
	do := a.again
	if f.undo {
		do = a.undoChild
	}
	for did < budget && f.open < f.parallel && a.cycle.roomy() {
		if len(f.page) == 0 {
			if !f.more {
				break
			}
			if err = f.read(ctx, a.store); err != nil {
				return did, err
			}
			continue
		}
		some := min(len(f.page), budget-did, f.parallel-f.open, max(1, a.cycle.left()), max(1, a.cfg.Memory.fits(len(f.page))))
		numbers := make([]int64, some)
		for i := range numbers {
			numbers[i] = f.page[i].Number
		}
		f.page = f.page[some:]
		if _, err := a.shard.loadNumbers(ctx, f.p, numbers); err != nil {
			return did, err
		}
		for _, number := range numbers {
			did++
			e := f.p.tasks[number]
			if e == nil {
				f.fail(fmt.Sprintf("child number %d of step %s cannot be loaded: its journal is forgotten, or cannot be read", number, f.spec.Name))
				continue
			}
			do(f, e)
		}
	}
	return did, nil
}

// undoChild undoes one child, whatever it came to, unless it is undone or about to be.
func (a *families) undoChild(f *fan, e *entry) {
	if e.task.State == core.StateUndone {
		return
	}
	e.swept = f.seq
	f.open++
	if e.task.State == core.StateUndoing {
		return
	}
	parent := f.e.task.ID
	err := a.shard.event(f.p, e, &core.Event{Kind: core.EventUndo, At: a.cycle.now, Actor: parent, Reason: "it is a part of task " + parent + ", which is undone", ByParent: true})
	if err != nil {
		e.swept = 0
		f.open--
		f.fail(fmt.Sprintf("child %s cannot be undone: %v", e.task.ID, err))
	}
}

// again lets a child begin again that was undone in an earlier attempt of the step. One that never had steps cannot: it counts as
// undone in this attempt, too.
func (a *families) again(f *fan, e *entry) {
	if e.task.State != core.StateUndone {
		return
	}
	if e.plan == nil {
		f.notDone(e)
		return
	}
	f.open++
	err := a.shard.event(f.p, e, &core.Event{
		Kind: core.EventResubmit, At: a.cycle.now, Actor: f.e.task.ID, ByParent: true, Until: min(a.cycle.now.Add(e.plan.plan.CompleteBy), f.due()),
	})
	if err != nil {
		f.open--
		f.fail(fmt.Sprintf("child %s cannot begin again: %v", e.task.ID, err))
	}
}

// childUndone counts a child whose undo has come to its end.
func (a *families) childUndone(f *fan, e *entry) {
	if e.swept != f.seq {
		return
	}
	e.swept = 0
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

// notDone counts a child that was undone. The first one's reason counts.
func (f *fan) notDone(e *entry) {
	f.undone++
	f.ended = max(f.ended, e.task.UpdatedAt)
	if f.why == "" {
		f.why = "child " + e.task.ID + " was undone: " + e.task.Why
	}
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

// result keeps the result of the only child.
func (f *fan) result(result []byte) {
	if len(result) > f.spec.ResultMax {
		f.fail(fmt.Sprintf("the result of the child of step %s has %d bytes, the limit is %d", f.spec.Name, len(result), f.spec.ResultMax))
		return
	}
	f.only = result
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
