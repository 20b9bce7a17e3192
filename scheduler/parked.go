package scheduler

import (
	"cmp"

	"duly.dev/duly/internal/core"
)

const (
	// parkedMax bounds the tasks at an agent whose order is kept: 96 bytes each, and their labels.
	parkedMax = 8192
	// parkedPage is how many the store is asked for at a time. Each is loaded once.
	parkedPage = 256
)

// parkedTask is a task that waits for room, as of when it was parked.
type parkedTask struct {
	number   int64
	deadline core.Instant
	latest   core.Instant // it must go on by then to make its deadline
	plan     *planRef
	steps    uint64 // that it waits for at the agent
	labels   []core.Label
	keyed    bool
	key      string // of the agent's limit, if keyed
}

// before is the order of parked tasks that wait for the same.
func (t *parkedTask) before(o *parkedTask) bool {
	return cmp.Or(cmp.Compare(t.deadline, o.deadline), cmp.Compare(t.number, o.number)) < 0
}

// byDeadline is a heap of parked tasks.
type byDeadline []parkedTask

func (h byDeadline) Len() int { return len(h) }

func (h byDeadline) Less(i, j int) bool { return h[i].before(&h[j]) }

func (h byDeadline) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byDeadline) Push(x any) { *h = append(*h, x.(parkedTask)) }

// Pop implements heap.Interface.
func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = parkedTask{}
	*h = (*h)[:last]
	return x
}
