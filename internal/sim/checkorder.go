package sim

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// Order. Of the tasks that are parked at an agent of a partition those that have begun are claimed first, and within the
// same the nearest deadline, but for those that a pause holds or whose time is over.

// claimable is a task that was parked when a step of its owner's loop began.
type claimable struct {
	r     *row
	agent string
	begun bool
	task  *core.Task
	plan  *core.Plan
	taken bool // by the batch at hand
}

// claimables are the tasks of a batch's partitions that could be claimed, before it is committed. Others that the batch is
// about may have moved for other reasons.
func (w *World) claimables(b *core.Batch) (all []claimable) {
	if w.cfg.Graph { // in a graph a task may go on beside what it waits for
		return nil
	}
	writes := map[rowKey]*core.TaskWrite{}
	for i := range b.Writes {
		writes[rowKey{b.Writes[i].Task.Partition, b.Writes[i].Task.Number}] = &b.Writes[i]
	}
	for i := range b.Partitions {
		p := b.Partitions[i].Partition
		owner := w.ownerOf(p)
		if owner == nil || owner.twin || !slices.ContainsFunc(b.Writes, func(t core.TaskWrite) bool { return t.Task.Partition == p && startsCall(&t) }) {
			continue
		}
		for _, r := range w.Store.byNumber[p] {
			key := rowKey{p, r.task.Number}
			is := writes[key]
			if r.task.State != core.StatePending || r.task.WaitsFor == "" || w.gates.wrote[key] >= owner.loopOf(p).began || is != nil && !startsCall(is) {
				continue
			}
			plan, step, t := w.parkedStep(r)
			if step < 0 || is == nil && w.heldByAny(plan, step, t, w.heardBy(owner, p)) {
				continue
			}
			all = append(all, claimable{r, r.task.WaitsFor, hasBegun(t), t, plan, is != nil})
		}
	}
	return all
}

// startsCall reports whether a write is of a task that was parked and begins a step now.
func startsCall(w *core.TaskWrite) bool {
	return !w.Birth && len(w.Records) > 0 && w.Records[0].Kind == core.KindStarted && w.Records[0].Next >= 0 && !w.Records[0].Undo
}

// heardBy are the pauses that an owner knows now, or knew when the step under way began.
func (w *World) heardBy(n *node, p int) []core.Pause {
	return append(slices.Clone(n.loopOf(p).known), n.heard...)
}

func (w *World) heldByAny(plan *core.Plan, step int, t *core.Task, pauses []core.Pause) bool {
	return slices.ContainsFunc(pauses, func(p core.Pause) bool { return p.Holds(plan, step, t) })
}

// checkClaims holds what a batch has claimed to what it has left.
func (w *World) checkClaims(all []claimable) {
	for i := range all {
		for k := range all {
			is, left := &all[i], &all[k]
			if !is.taken || left.taken || is.agent != left.agent || is.task.Partition != left.task.Partition || w.byKey(is.agent) {
				continue
			}
			switch end := left.task.Deadline; {
			case end < w.now.Add(4*skewMax): // it may be one of those that come last
			case !left.begun && is.plan != left.plan && w.begunWait(left.plan, left.task): // for agents that only its version has
			case left.begun && !is.begun:
				w.wrong(is.task.Partition, left.task.ID, "task %s, which has not begun, is claimed at %s before it, which has", is.task.ID, is.agent)
			case left.begun == is.begun && (is.begun || w.sameFlow(is.task, left.task)) && end < is.task.Deadline:
				w.wrong(is.task.Partition, left.task.ID, "task %s is claimed at %s before it, and has more time", is.task.ID, is.agent)
			}
		}
	}
}

// byKey reports whether tasks at an agent may let others go first, because a limit has keys, or had as far as its owners know.
func (w *World) byKey(agent string) bool {
	changed := w.gates.changed[agent]
	return w.Store.limits[agent].Key != "" || changed != 0 && w.now < changed.Add(calmAfter)
}

// sameFlow reports whether two tasks are of one class, tenant and type.
func (w *World) sameFlow(a, b *core.Task) bool {
	return a.Type == b.Type && slices.Equal(w.flowLabels(a), w.flowLabels(b))
}

func (w *World) flowLabels(t *core.Task) (of []core.Label) {
	for _, l := range t.Labels {
		if l.Key == core.PriorityLabel || l.Key == "tenant" {
			of = append(of, l)
		}
	}
	return of
}
