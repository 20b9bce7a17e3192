package core

import (
	"errors"
	"fmt"
)

// ErrStale is returned for an event that no longer means anything: a reply to a
// command that is not out, a wake for nothing, a cancel of what has ended.
// Nothing changed.
var ErrStale = errors.New("stale event")

// ErrNotAllowed is returned for an operator's request that the task's state
// forbids. Nothing changed.
var ErrNotAllowed = errors.New("not allowed")

// Apply decides what ev means for t, changes t, and writes into out the journal
// records that make the change durable and the effects that may leave once they
// are committed. On an error nothing changed and out is empty.
//
// p is the plan version of t; it is nil only when that plan is unknown, which
// allows EventPoison, EventResolve, and EventCancel and EventUndo of a task that
// never had steps.
func Apply(p *Plan, t *Task, ev *Event, out *Outcome) error {
	out.Reset()
	d := decision{p: p, t: t, ev: ev, out: out, at: max(ev.At, t.UpdatedAt), before: t.State, parked: t.WaitsFor, asked: t.OpenSignals()}
	if ev.Type != "" && ev.Type != t.Type {
		return d.notAllowed("it is of type " + QuoteShort(t.Type) + ", not " + QuoteShort(ev.Type))
	}
	if ev.IfSeq != 0 && ev.IfSeq != t.Seq {
		return d.notAllowed(fmt.Sprintf("the request is about its journal row %d, and it is at row %d by now", ev.IfSeq, t.Seq))
	}
	if p == nil || t.Steps == nil {
		return d.withoutPlan()
	}
	if t.Parent != 0 && !ev.ByParent && (ev.Kind == EventCancel || ev.Kind == EventUndo || t.State == StateUndone) {
		return d.partOfAnother()
	}
	if t.PlanVersion != 0 {
		return d.apply()
	}
	t.PlanVersion, out.Row = p.Version, true // it waited for the plan; the row names the version from now on
	err := d.apply()
	if err != nil {
		t.PlanVersion, out.Row = 0, false
	}
	return err
}

// apply decides about a task with steps.
func (d *decision) apply() error {
	switch d.ev.Kind {
	case EventReply:
		return d.reply()
	case EventUnserved:
		return d.unserved()
	case EventWake:
		return d.wake()
	case EventClaim:
		return d.claim()
	case EventOverdue:
		return d.overdue()
	case EventCancel, EventUndo:
		return d.undo()
	case EventResubmit, EventEdit:
		return d.resubmit()
	case EventAccept:
		return d.accept()
	case EventResolve:
		return d.resolve()
	case EventExtend:
		return d.extend()
	case EventPoison:
		return d.poison()
	case EventWentBack:
		return d.wentBack()
	case EventServed:
		return d.served()
	case EventSignal:
		return d.signal()
	case EventChild:
		return d.child()
	case EventMigrate:
		return d.migrate()
	case EventProbed:
		return d.probed()
	}
	return d.notAllowed(fmt.Sprintf("event kind %d is unknown", d.ev.Kind))
}

// partOfAnother refuses what only the parent of a task may ask: what the task came to counts in the parent.
func (d *decision) partOfAnother() error {
	if d.ev.Kind != EventCancel && d.ev.Kind != EventUndo && d.ev.Kind != EventResubmit && d.ev.Kind != EventEdit {
		return d.stale("it is undone")
	}
	return d.notAllowed("it is a part of task " + QuoteShort(RootID(d.t.ID)) + ", which alone decides about it")
}
