package scheduler

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
)

// Fairness. Parked tasks that have not begun are claimed flow by flow: a flow is what has the same class, tenant and type.
// The classes share what is claimed by their weights, the tenants of a class by theirs, the types of a tenant by theirs;
// within a flow it is by deadline. What a flow does not use the others share, and it is not saved up.
//
// It is start-time fair queueing in a tree: each node has the virtual time of its next turn, which a claim moves on by
// stride divided by its weight; the least is next. One that comes back after a pause begins at the time of those
// that go on. Nothing is drawn and no clock is read: the same tasks are claimed in the same order.

const (
	// flowsMax bounds the flows at one agent of a partition; of more, those of a class share one.
	flowsMax   = 1024
	strideUnit = 1 << 20
)

// flowKey tells flows apart. No type is empty: the key without one is of the flow that those beyond flowsMax share.
type flowKey struct {
	class        core.Class
	tenant, kind string
}

// flow is a node of the tree: all, a class, a tenant, or a flow with its tasks.
type flow struct {
	name      string
	stride    uint64 // of its turns: stride divided by its weight
	vtime     uint64 // the virtual time of its next turn
	heapIndex int    // among up.busy; -1: nothing waits in it
	up        *flow
	busy      indexed[*flow] // of its children those in which something waits
	clock     uint64         // the turn of the child that was served last

	children map[string]*flow // of a class
	key      flowKey          // of a flow
	tasks    byDeadline       // of a flow
	missed   int64            // the pass of parkedAt in which one of its tasks was last not noted; 0: none
	skipped  int              // of its tasks so many were found held by the look at hand
}

func (f *flow) putAt(place int) { f.heapIndex = place }

// before reports whether it is f's turn before that of another child.
func (f *flow) before(o *flow) bool {
	return cmp.Or(cmp.Compare(f.vtime, o.vtime), strings.Compare(f.name, o.name)) < 0
}

// flows are the parked tasks at one agent that have not begun.
type flows struct {
	root    flow
	classes [core.Classes]*flow
	all     map[flowKey]*flow
	lastKey flowKey // of what was last asked for
	last    *flow
	waiting int // tasks
	busy    int // flows in which something waits
	unswept int // new flows to come before the next look for flows to forget
}

func child(up *flow, name string, weight int) *flow {
	return &flow{name: name, stride: strideUnit / uint64(max(1, weight)), vtime: up.clock, heapIndex: -1, up: up}
}

// of is the flow of that key, a new one if need be.
func (f *flows) of(key flowKey, w *Weights) *flow {
	if f.last != nil && f.lastKey == key {
		return f.last
	}
	if is := f.all[key]; is != nil {
		f.last, f.lastKey = is, key
		return is
	}
	if f.all == nil {
		f.all = map[flowKey]*flow{}
	}
	if len(f.all) >= flowsMax && key.kind != "" && !f.sweep() {
		return f.of(flowKey{class: key.class}, w)
	}
	class := f.classes[key.class]
	if class == nil {
		class = child(&f.root, key.class.String(), w.class(key.class))
		class.children = map[string]*flow{}
		f.classes[key.class] = class
	}
	tenant := class.children[key.tenant]
	if tenant == nil {
		tenant = child(class, key.tenant, w.Tenants[key.tenant])
		class.children[key.tenant] = tenant
	}
	is := child(tenant, key.kind, w.Types[key.kind])
	is.key = key
	f.all[key] = is
	return is
}

// sweep forgets the flows that would begin where they are if they came back, and reports whether there is room.
func (f *flows) sweep() bool {
	if f.unswept > 0 {
		f.unswept--
		return false
	}
	f.last = nil
	used := map[*flow]bool{}
	for key, is := range f.all {
		if is.forgettable() {
			delete(f.all, key)
		} else {
			used[is.up] = true
		}
	}
	for _, class := range f.classes {
		if class != nil {
			maps.DeleteFunc(class.children, func(_ string, tenant *flow) bool { return !used[tenant] })
		}
	}
	if len(f.all) > flowsMax/2 { // a look goes over all of them
		f.unswept = flowsMax / 2
	}
	return len(f.all) < flowsMax
}

// forgettable reports whether a flow would come back as it is now: nothing waits in it, and its next turn has passed, or
// there was nothing to take turns with.
func (f *flow) forgettable() bool {
	if f.heapIndex >= 0 || f.missed != 0 {
		return false
	}
	tenant := f.up
	return f.vtime <= tenant.clock || tenant.heapIndex < 0 && (tenant.vtime <= tenant.up.clock || tenant.up.heapIndex < 0)
}

// push lets a task wait in a flow.
func (f *flows) push(in *flow, one parkedTask) {
	heap.Push(&in.tasks, one)
	f.waiting++
	f.enter(in)
}

// enter gives a flow in which something waits its turns.
func (f *flows) enter(in *flow) {
	if in.heapIndex < 0 {
		f.busy++
	}
	for ; in.up != nil && in.heapIndex < 0; in = in.up {
		in.vtime = max(in.vtime, in.up.clock)
		heap.Push(&in.up.busy, in)
	}
}

// leave takes a flow's turns.
func (f *flows) leave(out *flow) {
	f.busy--
	for ; out.up != nil && len(out.busy) == 0; out = out.up {
		heap.Remove(&out.up.busy, out.heapIndex)
	}
}

// next is the flow whose turn it is; nil: nothing waits.
func (f *flows) next() *flow {
	if len(f.root.busy) == 0 {
		return nil
	}
	is := &f.root
	for len(is.busy) > 0 {
		is = is.busy[0]
	}
	return is
}

// pop takes the next task of a flow, which is its turn if that counts.
func (f *flows) pop(of *flow) parkedTask {
	f.waiting--
	return heap.Pop(&of.tasks).(parkedTask)
}

// served counts the turn of a flow.
func (f *flows) served(is *flow) {
	for ; is.up != nil; is = is.up {
		is.up.clock = is.vtime
		is.vtime += is.stride
		if len(is.up.busy) > 1 {
			heap.Fix(&is.up.busy, is.heapIndex)
		}
	}
}

// evict takes a task out of the flow that has most, for one of a flow that has less than its part of all.
func (f *flows) evict(in *flow, pass int64) (last parkedTask, ok bool) {
	if f.busy == 0 || f.busy == 1 && in.heapIndex >= 0 || len(in.tasks) >= f.waiting/f.busy {
		return last, false
	}
	var most *flow
	for _, is := range f.all {
		if most == nil || cmp.Or(cmp.Compare(len(is.tasks), len(most.tasks)), most.compare(is)) > 0 {
			most = is
		}
	}
	if len(most.tasks) < len(in.tasks)+2 {
		return last, false
	}
	last = most.tasks.Pop().(parkedTask) // at the end of the heap: a late one
	f.waiting--
	most.missed = pass
	return last, true
}

// compare orders flows by their names.
func (f *flow) compare(with *flow) int {
	return cmp.Or(strings.Compare(f.up.up.name, with.up.up.name), strings.Compare(f.up.name, with.up.name), strings.Compare(f.name, with.name))
}

// hungry reports whether tasks of some flow wait in the store alone.
func (f *flows) hungry() bool {
	for _, is := range f.all {
		if is.missed != 0 && len(is.tasks) == 0 {
			return true
		}
	}
	return false
}

// endPass notes that a pass over all that is parked is over: what was missed before it has been met.
func (f *flows) endPass(pass int64) {
	for _, is := range f.all {
		if is.missed < pass {
			is.missed = 0
		}
	}
}

// drop takes the tasks out of the flows that gone says, flow by flow.
func (f *flows) drop(gone func(*flow, parkedTask) bool) {
	for _, is := range slices.SortedFunc(maps.Values(f.all), (*flow).compare) {
		before := len(is.tasks)
		is.tasks = slices.DeleteFunc(is.tasks, func(one parkedTask) bool { return gone(is, one) })
		if f.waiting -= before - len(is.tasks); before == len(is.tasks) {
			continue
		}
		heap.Init(&is.tasks)
		if len(is.tasks) == 0 && is.heapIndex >= 0 {
			f.leave(is)
		}
	}
}
