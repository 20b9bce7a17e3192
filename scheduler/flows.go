package scheduler

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
)

// Fairness. Parked tasks that have not begun are claimed flow by flow; a flow is all tasks of one class, tenant and type.
// Classes get claims in proportion to their weights, within a class its tenants, within a tenant its types; within a flow
// the earliest deadline is first. What one flow does not use the others get; nobody saves up a claim for later.
//
// It is start-time fair queueing in a tree. Each node has a virtual time at which it is next served; a claim moves it on by
// strideUnit divided by the node's weight, and the node with the least time is next. A node that was idle resumes at the
// time of those that were not. No randomness and no clock is involved, so the same tasks are claimed in the same order.

const (
	// flowsMax bounds the flows at one agent of a partition. Beyond it the new flows of each class share one.
	flowsMax   = 1024
	strideUnit = 1 << 20 // how far a claim moves a node of weight 1
)

// flowKey identifies a flow. Types are never empty: the key with an empty kind is that of the flow which
// those beyond flowsMax share.
type flowKey struct {
	class        core.Class
	tenant, kind string
}

// flow is a node of the tree: the root, a class, a tenant, or a flow proper, which holds tasks.
type flow struct {
	name string
	// stride is how far one claim moves vtime: strideUnit divided by the weight.
	stride uint64
	// vtime is the virtual time at which the node is next served.
	vtime uint64
	// heapIndex is its index in up.busy; -1: nothing waits in it.
	heapIndex int
	up        *flow
	// busy are the children in which something waits.
	busy indexed[*flow]
	// clock is the vtime of the child that was served last; a child that becomes busy starts from it.
	clock uint64

	// children are a class's tenants.
	children map[string]*flow
	// key and tasks belong to a flow proper.
	key   flowKey
	tasks byDeadline
	// missed is parkedAt.pass when a task of the flow was last left out of memory; 0: none was.
	missed int64
	// skipped counts the tasks that the current claim skipped because they must wait for begun ones.
	skipped int
}

func (f *flow) putAt(place int) { f.heapIndex = place }

// before reports whether f is served before o.
func (f *flow) before(o *flow) bool {
	return cmp.Or(cmp.Compare(f.vtime, o.vtime), strings.Compare(f.name, o.name)) < 0
}

// flows holds the parked tasks of one agent that have not begun.
type flows struct {
	root    flow
	classes [core.Classes]*flow
	all     map[flowKey]*flow
	// lastKey and last cache the latest lookup of of.
	lastKey flowKey
	last    *flow
	// waiting counts tasks; busy counts flows in which something waits.
	waiting int
	busy    int
	// unswept is how many new flows may come before sweep goes over all flows again.
	unswept int
}

// child makes a node below up.
func child(up *flow, name string, weight int) *flow {
	return &flow{name: name, stride: strideUnit / uint64(max(1, weight)), vtime: up.clock, heapIndex: -1, up: up}
}

// of returns the flow of a key, and makes it if need be.
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

// sweep forgets the flows that would come back unchanged, and reports whether there is room for a new flow.
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
	if len(f.all) > flowsMax/2 { // going over all flows is too dear for each new one
		f.unswept = flowsMax / 2
	}
	return len(f.all) < flowsMax
}

// forgettable reports whether a flow, if it was forgotten and made anew, would be served at the same time: it
// is empty, and its virtual time has passed or it had nobody to share with.
func (f *flow) forgettable() bool {
	if f.heapIndex >= 0 || f.missed != 0 {
		return false
	}
	tenant := f.up
	return f.vtime <= tenant.clock || tenant.heapIndex < 0 && (tenant.vtime <= tenant.up.clock || tenant.up.heapIndex < 0)
}

// push adds a task to a flow.
func (f *flows) push(in *flow, one parkedTask) {
	heap.Push(&in.tasks, one)
	f.waiting++
	f.enter(in)
}

// enter makes a flow in which something waits, and the nodes above it, take part again.
func (f *flows) enter(in *flow) {
	if in.heapIndex < 0 {
		f.busy++
	}
	for ; in.up != nil && in.heapIndex < 0; in = in.up {
		in.vtime = max(in.vtime, in.up.clock)
		heap.Push(&in.up.busy, in)
	}
}

// leave takes a flow out of its turn, and the nodes above it in which nothing else waits.
func (f *flows) leave(out *flow) {
	f.busy--
	for ; out.up != nil && len(out.busy) == 0; out = out.up {
		heap.Remove(&out.up.busy, out.heapIndex)
	}
}

// next returns the flow that is served next; nil: nothing waits.
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

// pop removes the flow's first task. It does not charge the flow: see served.
func (f *flows) pop(of *flow) parkedTask {
	f.waiting--
	return heap.Pop(&of.tasks).(parkedTask)
}

// served charges a flow for one claim, and the nodes above it.
func (f *flows) served(is *flow) {
	for ; is.up != nil; is = is.up {
		is.up.clock = is.vtime
		is.vtime += is.stride
		if len(is.up.busy) > 1 {
			heap.Fix(&is.up.busy, is.heapIndex)
		}
	}
}

// evict removes a task of the largest flow to make room for one of in, if in has less than an equal part of
// the room; nil: for one that has begun.
func (f *flows) evict(in *flow, pass int64) (last parkedTask, ok bool) {
	has := 0
	if in != nil {
		has = len(in.tasks)
	}
	if f.busy == 0 || in != nil && (f.busy == 1 && in.heapIndex >= 0 || has >= f.waiting/f.busy) {
		return last, false
	}
	var most *flow
	for _, is := range f.all {
		if most == nil || cmp.Or(cmp.Compare(len(is.tasks), len(most.tasks)), most.compare(is)) > 0 {
			most = is
		}
	}
	if len(most.tasks) < has+2 {
		return last, false
	}
	last = most.tasks.Pop().(parkedTask) // the last of the heap is one of the later deadlines
	f.waiting--
	most.missed = pass
	return last, true
}

// compare orders flows proper by class, tenant and type.
func (f *flow) compare(with *flow) int {
	return cmp.Or(strings.Compare(f.up.up.name, with.up.up.name), strings.Compare(f.up.name, with.up.name), strings.Compare(f.name, with.name))
}

// hungry reports whether some flow has tasks waiting in the store, and none of them in memory.
func (f *flows) hungry() bool {
	for _, is := range f.all {
		if is.missed != 0 && len(is.tasks) == 0 {
			return true
		}
	}
	return false
}

// endPass clears the missed marks of flows whose last miss precedes this pass: the pass has met those tasks.
func (f *flows) endPass(pass int64) {
	for _, is := range f.all {
		if is.missed < pass {
			is.missed = 0
		}
	}
}

// drop removes the tasks for which gone returns true. The order of the calls does not depend on map order.
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
