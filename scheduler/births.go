package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// How children are born, undone and restarted. Fans are served in turn, so that a step with many children does not keep
// others waiting.

// bearFirst bears the first child of each step that began in this round, or, for a task that was just
// created, in the round before: a child exists as soon as its parent's journal says that the step is out.
func (a *families) bearFirst(ctx context.Context, fans []*fan) error {
	for _, f := range fans {
		if f.queued = false; !a.has(f) {
			continue
		}
		if f.next == 0 && !f.stopped() {
			if err := a.bear(ctx, f); err != nil {
				return err // of the plans: it stops all partitions
			}
		}
		if !a.finish(f) && f.next < f.total {
			a.queue(f)
		}
	}
	return nil
}

// apply serves the queued fans in turn. It uses half of the batch at most, so that new tasks begin beside
// children.
func (a *families) apply(ctx context.Context) (bool, error) {
	c := a.cycle
	budget := max(1, c.writesLeft()/2)
	a.nextRound.lookAt = 0
	if err := a.lookAgain(ctx); err != nil {
		return false, err
	}
	for n := len(a.queued); n > 0; n-- {
		f := a.queued[0]
		a.queued = slices.Delete(a.queued, 0, 1)
		f.queued = false
		if !a.has(f) {
			f.p.idles(f.e)
			continue
		}
		if f.round == a.cycle.rounds { // what it depends on is not committed yet
			a.queue(f)
			continue
		}
		if !a.cycle.roomy() || budget <= 0 {
			a.queue(f)
			continue
		}
		if f.recount {
			budget-- // it costs as much as a birth
		}
		f.busy = true
		did, err := a.advance(ctx, f, max(1, budget/n))
		f.busy = false
		if err != nil {
			return false, err
		}
		budget -= did
		a.cycle.use(f.p, f.e)
		if !a.has(f) || a.finish(f) || f.queued || !f.wants() {
			continue
		}
		if did == 0 && f.e.rests() { // there is no room, and it must not be many of its kind that take it
			a.lookLater(f.p, f.e, c.now.Add(stalledRetry))
			continue
		}
		f.queued = true
		a.queued = append(a.queued, f)
		if did > 0 {
			a.nextRound.wake(c.now)
		} else {
			a.nextRound.wake(c.now.Add(stalledRetry))
		}
	}
	return false, nil
}

// looksMax is how many tasks a cycle looks at that are not in memory, in all partitions: each has to be loaded, and its children
// counted.
const looksMax = 64

// lookAgain queues the fans of tasks that may have to bear children, where there is room for some: once a cycle, so that mail
// comes in between.
func (a *families) lookAgain(ctx context.Context) error {
	if a.cycle.looked {
		return nil
	}
	all, now := a.in.inOrder(), a.cycle.now
	a.nextLook.due(now)
	for _, p := range all {
		if len(p.later) == 0 || p.noMore {
			continue
		}
		// Half of the room is for the children. Where there is hardly any, one task finds some if it is alone.
		room, most := max((a.cfg.InFlight-len(p.tasks))/2, 1-len(p.tasks), 0), max(1, looksMax/len(all))
		n := min(len(p.later), most, a.cfg.Memory.fits(room))
		if n == 0 { // of what a takeover has found all children may have ended, which needs none
			n = min(p.found, most, max(1, a.cfg.Memory.fits(most)))
		}
		if n == 0 {
			a.nextLook.wake(now.Add(stalledRetry))
			continue
		}
		entries, err := a.shard.loadNumbers(ctx, p, p.takeLater(n))
		if err != nil {
			return err // the partitions after it are still to be looked at
		}
		for _, e := range entries {
			for _, f := range e.fans {
				if f.stands() {
					a.queue(f)
				}
			}
		}
		if len(p.later) > 0 {
			a.nextLook.wake(now + 1)
		}
	}
	a.cycle.looked = true
	return nil
}

// advance continues a fan with up to budget children, and returns how many it was.
func (a *families) advance(ctx context.Context, f *fan, budget int) (did int, err error) {
	if f.recount {
		counts, err := a.store.ChildCounts(ctx, f.p.asOf(), f.siblings())
		if err != nil {
			return 0, err
		}
		f.recount = false
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
		if err := a.howUndone(ctx, f); err != nil {
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

// roomFor reports whether one more child may be in flight. A step may always have one, or it could never
// finish.
func (a *families) roomFor(f *fan) bool {
	return a.cycle.roomy() && (f.open == 0 || len(f.p.tasks) < a.cfg.InFlight && a.cfg.Memory.fits(1) > 0)
}

// bear creates the next child of a step. Whatever makes that impossible makes the step fail.
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

// bearAs creates the child with its plan, or, if that cannot be read here, as a task that waits for it.
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
			Partition: p.id, Number: p.number(), ID: id, Type: f.spec.Child, Input: input, InputHash: core.HashInput(f.spec.Child, input),
			Trace: up.task.Trace, Labels: up.task.Labels, Origin: up.task.Origin, CreatedAt: now,
			Deadline: deadline,
			Parent:   up.task.Number, ParentStep: f.step, ChildIndex: index,
		},
		plan: ref,
	}
	f.next++
	f.open++
	if index == 0 { // the store finds the others by this one, so it must be stored before they are born
		f.round = a.cycle.rounds
	}
	ev := core.Event{At: now, Actor: a.cfg.Node, Node: a.cfg.Node, Ask: a.counting.bind(a.cfg.Expressions, e)}
	a.gate.markBlocked(p, e, &ev)
	if p.takeover.ChildMayHaveRun(up.task) {
		ev.Kind, ev.At, ev.Until = core.EventWentBack, max(now, p.takeover.WentBackAt), p.takeover.WentBackAt
	}
	if unread != nil {
		core.BirthUnread(unread, e.task, &ev, &a.cycle.out)
	} else {
		core.Birth(ref.plan, e.task, &ev, &a.cycle.out)
	}
	a.shard.born(p, e)
}

// depth returns how many ancestors a task has.
func (e *entry) depth() (n int) {
	for up := e.parent; up != nil; up = up.parent {
		n++
	}
	return n
}

// inputOf returns the input of a step's child: what the step was given, or of an each step the element with that index, from 0.
// Error: there is no such element, or the input's expression fails.
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

// clocksApart is how far the clocks of two owners may differ.
const clocksApart = 2 * time.Second

// doneBefore makes the step fail if one of its children was done before the database went back. It may have
// been undone in the lost time, and it must not be done twice to find out.
func (a *families) doneBefore(ctx context.Context, f *fan) error {
	if f.undo || f.done == 0 || !f.p.takeover.ChildMayHaveRun(f.e.task) {
		return nil
	}
	back := f.p.takeover.WentBackAt
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

// onlyChild reads how the one child of a step of kind task ended, and keeps its result or failure for the step.
func (a *families) onlyChild(ctx context.Context, f *fan) error {
	if f.spec.Kind != core.TaskStep || f.done+f.undone == 0 {
		return nil
	}
	e, _, err := a.shard.find(ctx, f.p, f.siblings().First)
	if err != nil {
		return err
	}
	if e == nil {
		if f.done > 0 { // the step must not be done without its result
			f.fail(fmt.Sprintf("the result of child %s cannot be read: its journal is forgotten, or cannot be read", f.siblings().First))
		}
		return nil
	}
	f.result(e.task.Result)
	f.why = "child " + e.task.ID + " was undone: " + e.task.Why
	return nil
}

// howUndone reads when the last of the undone children ended and, if that is not known, why the first one was: of a step that
// fails because too many were.
func (a *families) howUndone(ctx context.Context, f *fan) error {
	if f.open > 0 || f.undone <= f.spec.FailuresMax {
		return nil
	}
	f.partly = false
	asked := f.why != ""
	for after, more := int64(0), true; more; {
		page, err := a.store.Children(ctx, f.p.asOf(), f.siblings(), after, siblingsPage)
		if err != nil {
			return err
		}
		more = len(page) == siblingsPage
		for _, r := range page {
			if after = r.Number; r.State != core.StateUndone || r.Ended < f.since {
				continue
			}
			if f.ended = max(f.ended, r.Ended); asked {
				continue
			}
			asked = true
			e, _, err := a.shard.find(ctx, f.p, childID(f.e.task, f.spec, r.Index))
			if err != nil {
				return err
			}
			if e != nil {
				f.notes(e)
			}
		}
	}
	return nil
}

// overSiblings goes over the children that exist already, page by page, and undoes or restarts them, as many
// at a time as may be open.
func (a *families) overSiblings(ctx context.Context, f *fan, budget int) (did int, err error) {
	do := a.restartChild
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
		some := min(len(f.page), budget-did, f.parallel-f.open, max(1, a.cycle.writesLeft()), max(1, a.cfg.Memory.fits(len(f.page))))
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

// undoChild asks for the undo of one child, whatever state it is in, unless it is undone or about to be.
func (a *families) undoChild(f *fan, e *entry) {
	if e.task.State == core.StateUndone {
		return
	}
	f.sweeps(e)
	f.open++
	if e.task.State == core.StateUndoing {
		return
	}
	parent := f.e.task.ID
	err := a.shard.event(f.p, e, &core.Event{Kind: core.EventUndo, At: a.cycle.now, Actor: parent, Reason: "it is a part of task " + parent + ", which is undone", ByParent: true})
	if err != nil {
		e.sweptNoMore()
		f.open--
		f.fail(fmt.Sprintf("child %s cannot be undone: %v", e.task.ID, err))
	}
}

// restartChild restarts a child that was undone in an earlier attempt of the step. One without a plan never
// had steps and cannot be restarted: it counts as undone in this attempt too.
func (a *families) restartChild(f *fan, e *entry) {
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

const (
	// A commit creates at most freshMost × BatchMax tasks. resumeFresh looks at that many of the newest tasks, and at
	// freshLeast at least, because steps of older tasks begin as well.
	freshMost, freshLeast = 4, 1000
	// freshCommits is how many commit ids back resumeFresh looks. One round may use many: a batch with refused rows is
	// committed in parts, down to single tasks, and the node's other shards take ids meanwhile.
	freshCommits = 1 << 16
)

// resumeFresh finds parked tasks that would otherwise wait for ever for a child. The previous owner committed
// that their step began, and died before the next commit, which would have stored the child; or the database
// refused the child and the parent was not told.
func (a *families) resumeFresh(ctx context.Context, p *partition) error {
	last := p.takeover.Found.Commit
	fresh, err := a.store.Fresh(ctx, p.asOf(), p.nextNumber-int64(max(freshMost*a.cfg.BatchMax, freshLeast)), last-freshCommits, last)
	if err != nil {
		return err
	}
	var numbers []int64
	for _, t := range fresh {
		if _, _, err := a.plans.of(ctx, p, t.Type, 0, false); err != nil { // it may have to be read
			return err
		}
		if a.plans.bearing(t.Type) { // a plan that cannot be read here cannot be resumed
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
	there := map[place]bool{} // children still running: their parents will be told of their end
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
				f.recount, f.since = true, e.task.UpdatedAt
				f.begin()
				a.queue(f)
			}
		}
	}
	return nil
}
