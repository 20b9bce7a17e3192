package core

import (
	"cmp"
	"fmt"
)

// A task whose plan its owner cannot read, because a newer binary stored it, is stored all the same. It is parked: it waits
// for its plan as others wait for an agent. No step of it has begun, so that its row names no version; what it waits for
// does. When an owner can read the plan it is claimed; when its deadline comes before, it is undone.

// awaitedPlan begins what such a task waits for. The name of an agent has no colon.
const awaitedPlan = "plan:"

// Awaited is what a task waits for that waits for this plan.
func (u UnreadablePlan) Awaited() string {
	return fmt.Sprintf("%s%s:%d", awaitedPlan, u.Name, u.Version)
}

// AwaitedPlan is the plan that a task waits for by what it waits for; false: that is none, but an agent.
func AwaitedPlan(waitsFor string) (name string, version int64, is bool) {
	if len(waitsFor) < len(awaitedPlan) || waitsFor[:len(awaitedPlan)] != awaitedPlan {
		return "", 0, false
	}
	rest := waitsFor[len(awaitedPlan):]
	for i := range len(rest) {
		if rest[i] == ':' {
			version, err := ParsePlanVersion(rest[i+1:])
			return rest[:i], version, err == nil && version != 0
		}
	}
	return "", 0, false
}

// BirthUnread is Birth of a task whose plan cannot be read.
func BirthUnread(u *UnreadablePlan, t *Task, ev *Event, out *Outcome) {
	out.Reset()
	d := decision{t: t, ev: ev, out: out, at: ev.At}
	if t.CreatedAt == 0 {
		t.CreatedAt = ev.At
	}
	t.PlanVersion, t.WaitsFor = 0, u.Awaited()
	r := d.record(KindSubmitted, -1)
	if r.Deadline = t.Deadline; r.Deadline == 0 {
		p := Plan{CompleteBy: cmp.Or(u.CompleteBy, DefaultTaskCompleteBy), QueueFor: u.QueueFor}
		r.Deadline = p.DeadlineOf(t, d.at)
	}
	if ev.Kind == EventWentBack {
		r.Kind, r.EffectsPossibleUntil = KindWentBack, max(ev.Until, r.Deadline) // how long its commands may take is not known
	}
	out.Effects = append(out.Effects, Effect{Kind: EffectReceived})
	d.finish(&r, StatePending)
}

// unread reports whether the task waits for its plan.
func (t *Task) unread() bool {
	_, _, is := AwaitedPlan(t.WaitsFor)
	return is && t.State == StatePending && t.PlanVersion == 0
}

// overdueUnread answers the supervisor's question about a task that waits for its plan.
func (d *decision) overdueUnread() error {
	if d.at < d.t.Deadline {
		return d.stale("it is not due")
	}
	name, version, _ := AwaitedPlan(d.t.WaitsFor)
	late := fmt.Sprintf("its deadline passed while it waited for a node that can read version %d of plan %s", version, name)
	if d.t.WentBackAt != 0 {
		d.ev.Error = late + ", and whether it ran before the database went back is not known"
		return d.poisonPlanless()
	}
	r := d.record(KindExpired, -1)
	r.Error = late
	d.finish(&r, StateUndone)
	return nil
}

// undoUnread undoes a task that waits for its plan: nothing of it has begun.
func (d *decision) undoUnread() error {
	switch {
	case d.t.Parent != 0 && !d.ev.ByParent:
		return d.partOfAnother()
	case d.t.WentBackAt != 0:
		return d.notAllowed("the database went back since it began, and what it has done is not known")
	}
	kind := KindCancelled
	if d.ev.Kind == EventUndo {
		kind = KindUndoAsked
	}
	r := d.record(kind, -1)
	d.finish(&r, StateUndone)
	return nil
}
