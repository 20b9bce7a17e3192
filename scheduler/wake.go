package scheduler

import (
	"cmp"
	"container/heap"

	"duly.dev/duly/internal/core"
)

// wakeHeap are the tasks in flight that are to be woken, the earliest first. Of equals the order is that of their numbers, so
// that one run is as the other.
type wakeHeap []*entry

func (h wakeHeap) Len() int { return len(h) }

func (h wakeHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.wakes, b.wakes), cmp.Compare(a.task.Partition, b.task.Partition), cmp.Compare(a.task.Number, b.task.Number)) < 0
}

func (h wakeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].wakeAt, h[j].wakeAt = i, j
}

// Push implements heap.Interface.
func (h *wakeHeap) Push(x any) {
	e := x.(*entry)
	e.wakeAt = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *wakeHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// wake wakes a task in flight at an instant, unless it is woken before: what is due later is found then.
func (p *partition) wake(e *entry, at core.Instant) {
	switch {
	case p.wakes == nil || p.tasks[e.task.Number] != e: // it is forgotten
	case e.wakes == 0:
		e.wakes = at
		heap.Push(p.wakes, e)
	case at < e.wakes:
		e.wakes = at
		heap.Fix(p.wakes, e.wakeAt)
	}
}

// unwake forgets when a task is to be woken.
func (p *partition) unwake(e *entry) {
	if e.wakes != 0 {
		heap.Remove(p.wakes, e.wakeAt)
		e.wakes = 0
	}
}
